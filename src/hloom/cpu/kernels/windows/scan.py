"""Scans with an elementwise step: one loop along the axis, with neighboring lines in the lanes.

The carries of a step stay in registers. Scans with other steps are loops of whole operations; see
`hloom.passes.expand.scan_expander`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hloom.analysis.instructions import operation_of
from hloom.codegen.accumulators import flatten, spread, unflatten
from hloom.codegen.elements import Elements, View
from hloom.codegen.lines import SCANNED_STEPS_AHEAD, Lines, Place
from hloom.codegen.llvm import Module
from hloom.codegen.loops import LoopKernel, begin_kernel, form_of
from hloom.codegen.types import Element
from hloom.cpu.program import HOST, KERNELS, ProgramEmitter
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.scan import Scan
from hloom.passes.expand.scan_expander import Parts, is_elementwise, parts_of
from hloom.plan.kernel import KernelPlan


@KERNELS.register("scan")
def emit_scan(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit a scan: the call of a kernel if its computation is elementwise, else of the host's evaluator."""
    i = plan.instruction
    if not is_elementwise(i):
        KERNELS[HOST].emit(program, plan)
        return
    indices = [(n,) for n in range(len(i.shape.tuple_shapes))] if i.shape.is_tuple else [()]
    targets = [program.pointer(i, index) for index in indices]
    kernel = program.shared(lambda name: _kernel(program.module, name, i))
    program.call(i, kernel, [*(program.pointer(o) for o in i.operands), *targets])


def _kernel(module: Module, name: str, i: HloInstruction) -> LoopKernel:
    """Emit the kernel (inputs..., initial carries..., outputs..., final carries..., begin, end) of a scan.

    It loops over lines; a line has all elements along the scanned dimension.
    """
    parts = parts_of(i)
    shapes = [*(o.shape for o in i.operands), *parts.outputs, *parts.last]
    f, views, begin, end = begin_kernel(module, name, shapes)
    sizes = (*parts.slice[: parts.axis], parts.steps, *parts.slice[parts.axis :])
    lines = Lines.of(sizes, parts.axis, i.operands)
    e = Elements(f, lines.lanes, {})
    walk = _Walk(e, i, parts, views)
    lines.walk(e, begin, end, walk.line)
    f.finish()
    trips, grain = lines.trips
    work = math.prod(sizes) * len(walk.step.post_order())
    return LoopKernel(name, trips, grain, work, form_of(lines.lanes, e))


class _Walk:
    """Emits a scan instruction along one line, or along each line of a vector of lines.

    A line has all elements along the scanned dimension.
    """

    def __init__(self, e: Elements, i: HloInstruction, parts: Parts, views: Sequence[View]) -> None:
        self.e, self.parts = e, parts
        self.step = i.called_computations[0]
        self.reverse = operation_of(i, Scan).is_reverse
        inputs, carries, outputs = len(parts.inputs), len(parts.carries), len(parts.outputs)
        self.inputs, self.carries = views[:inputs], views[inputs : inputs + carries]
        self.outputs, self.last = views[-carries - outputs :][:outputs], views[len(views) - carries :]

    def line(self, place: Place) -> None:
        """Emit the loop over the steps of a line, with carries in registers; then store the last carries.

        ``place`` maps a position in the line to an array index.
        """
        e, f = self.e, self.e.function
        number = Variable(max(self.parts.steps, 1), "s")
        at = Index.of(number) * -1 + (self.parts.steps - 1) if self.reverse else Index.of(number)
        slice_ = tuple(x for d, x in enumerate(place(Index(0))) if d != self.parts.axis)
        start = [spread(e, e.load(view, slice_)) for view in self.carries]
        with (
            f.loop(0, self.parts.steps, 1, flatten(start)) as loop,
            e.scope(),
            e.prefetching(number, SCANNED_STEPS_AHEAD),
        ):
            number.value = loop.index
            index = place(at if number.extent > 1 else Index(0))
            elements: list[Element] = [e.load(view, index) for view in self.inputs]
            elements += unflatten(loop.values, start)
            for parameter, value in zip(self.step.parameters, elements, strict=True):
                e.know(parameter, slice_, value)
            outputs = [spread(e, x) for x in e.leaves(self.step.root, slice_)]
            for view, value in zip(self.outputs, outputs, strict=False):
                e.store(view, index, value)
            loop.next(*flatten(outputs[len(self.outputs) :]))
        for view, value in zip(self.last, unflatten(loop.values, start), strict=True):
            e.store(view, slice_, value)
