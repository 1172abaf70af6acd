"""The emitter of the operation that hloom does not have: the one file that its native code takes."""

from __future__ import annotations

from hloom.analysis.instructions import operation_of
from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm import I64, PTR, Module, Value
from hloom.codegen.loops import LoopKernel
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.outer_operation import OuterSum  # pyright: ignore[reportMissingImports]
from hloom.plan.kernel import KernelPlan


@KERNELS.register("outer-sum")
def emit_outer_sum(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit a loop over rows, which threads share, around one over columns."""
    i = plan.instruction
    kernel = program.shared(lambda name: _kernel(program.module, name, i))
    program.call(i, kernel, [*(program.pointer(o) for o in i.operands), program.pointer(i)])


def _kernel(module: Module, name: str, i: HloInstruction) -> LoopKernel:
    f = module.function(name, [PTR, PTR, PTR, I64, I64])
    source, other, result, begin, end = f.parameters
    kind, (first, second) = i.shape.element_type, (o.shape.dimensions[0] for o in i.operands)
    e = Elements(f, 0, {})
    row, column = Variable(first, "r"), Variable(second, "c")
    place = (Index.of(row), Index.of(column))
    target = View(result, kind, i.shape.dimensions)
    with f.loop(begin, end) as rows:
        row.value = rows.index
        with f.loop(0, second) as columns:
            column.value = columns.index
            a = e.load(View(source, kind, (first,)), place[:1])
            b = e.load(View(other, kind, (second,)), place[1:])
            assert isinstance(a, Value) and isinstance(b, Value)
            e.store(target, place[::-1] if operation_of(i, OuterSum).transposed else place, a + b)
    f.finish()
    return LoopKernel(name, first, 1, i.shape.element_count)
