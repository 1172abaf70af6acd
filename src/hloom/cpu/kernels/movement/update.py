"""In-place updates: dynamic-update-slice stores its slice, and copies an operand only to preserve it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hloom.codegen.elements import Elements
from hloom.codegen.llvm import Module
from hloom.codegen.loops import (
    LoopKernel,
    begin_kernel,
    lanes_text,
    loop_nest,
    moved_bytes,
    nest_kernel,
    vector_lanes,
    work_of,
)
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.affine import Index, Indices, linearize
from hloom.ir.instruction import HloInstruction
from hloom.operations.structure import parameter_number
from hloom.plan.iteration import accesses_of
from hloom.plan.kernel import KernelPlan
from hloom.plan.parts import KernelParts
from hloom.plan.space import merge_loops, split_space


@KERNELS.register("dynamic-update-slice")
def emit_update_slice(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit a dynamic-update-slice in place: store the update into the operand's memory.

    The operand is copied first if it must be preserved. A fusion that ends in another operation, or computes
    the operand, becomes a loop over all elements of the result.
    """
    i = plan.instruction
    update = plan.hero
    if update is not plan.parts.members[-1]:
        program.elements(plan)
        return
    target = program.view(i)
    operand = _source(i, update)
    if operand is None:
        program.elements(plan)
        return
    if not program.same_memory(operand, i) and target.count:
        program.copy_bytes(program.pointer(operand), target.pointer, program.leaf_size(i))
    if 0 in update.operands[1].shape.dimensions or not target.count:
        return
    kernel = program.shared(lambda name: _update_kernel(program.module, name, plan.parts, update))
    program.call(i, kernel, [*program.input_pointers(i), target.pointer])


def _source(i: HloInstruction, update: HloInstruction) -> HloInstruction | None:
    """Return the operand of ``i`` that holds the array changed by the dynamic-update-slice ``update``.

    ``i`` is the fusion around ``update``, or ``update`` itself. Returns None if the fusion computes the
    array.
    """
    changed = update.operands[0]
    if i is update:
        return changed
    if changed.opcode != "parameter":
        return None
    return i.operands[parameter_number(changed)]


def _update_kernel(module: Module, name: str, parts: KernelParts, update: HloInstruction) -> LoopKernel:
    """Emit the kernel (inputs..., result, begin, end) that stores the update's elements in the result.

    ``update`` is the dynamic-update-slice; the rest of the result is left as it is.
    """
    operand, new, *starts = update.operands
    sizes, inputs = new.shape.dimensions, parts.inputs
    function, arrays, begin, end = begin_kernel(module, name, [i.shape for i in (*inputs, update)])
    space = split_space(sizes, [])
    written = linearize(space.indices, operand.shape.dimensions)
    accesses = accesses_of(inputs, [new], space.indices)
    space = merge_loops(space, [*accesses.linear, written], accesses.pinned)
    loops = space.variables
    contiguous = bool(loops) and dict(written.terms).get(loops[-1]) == 1
    lanes = vector_lanes([*parts.members, *inputs], loops[-1].trips) if contiguous else 0
    elements = Elements(function, lanes, dict(zip(inputs, arrays, strict=False)))
    offsets = [
        elements.position(elements.element(start, ()), start.shape.element_type, extent - size + 1)
        for start, extent, size in zip(starts, operand.shape.dimensions, sizes, strict=True)
    ]

    def body() -> None:
        value = elements.element(new, space.indices)
        elements.store(arrays[-1], _moved(space.indices, offsets), value)

    loop_nest(elements, loops, body, begin, end)
    function.finish()
    read = [i.shape for i in inputs if i is not operand or len(operand.users) > 1]
    kernel = nest_kernel(
        name, loops, lanes, work_of(parts.members, new.shape.element_count), lanes_text(lanes)
    )
    return replace(kernel, moved_bytes=moved_bytes(read, [new.shape]))


def _moved(indices: Indices, offsets: Sequence[Index]) -> Indices:
    return tuple(index + offset for index, offset in zip(indices, offsets, strict=True))
