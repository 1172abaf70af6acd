"""In-place updates: dynamic-update-slice stores its slice, and copies an operand only to preserve it."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm import I64, PTR, Module
from hloom.codegen.loops import LoopKernel, outer_loops, vector_lanes, vector_loop
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.affine import Index, Indices, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.structure import parameter_number
from hloom.plan.kernel import KernelPlan
from hloom.plan.space import split_space


@KERNELS.register("dynamic-update-slice")
def emit_update_slice(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Store the update into the operand's buffer, after a copy if the operand must be preserved."""
    i = plan.instruction
    update, inputs, members = plan.hero, plan.parts.inputs, plan.parts.members
    if update is not members[-1]:
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
    kernel = program.shared(lambda name: _update_kernel(program.module, name, inputs, update, members))
    pointers = program.input_pointers(i)
    program.call(i, kernel, [*pointers, target.pointer])


def _source(i: HloInstruction, update: HloInstruction) -> HloInstruction | None:
    """Return the updated instruction outside the fusion; None if it is computed inside."""
    changed = update.operands[0]
    if i is update:
        return changed
    if changed.opcode != "parameter":
        return None
    return i.operands[parameter_number(changed)]


def _update_kernel(
    module: Module, name: str, inputs: Sequence[HloInstruction], update: HloInstruction,
    members: Sequence[HloInstruction],
) -> LoopKernel:  # fmt: skip
    """Emit the kernel (inputs..., result, begin, end) that stores every element of the update."""
    operand, new, *starts = update.operands
    sizes = new.shape.dimensions
    function = module.function(name, [PTR] * (len(inputs) + 1) + [I64, I64])
    *pointers, target, begin, end = function.parameters
    space = split_space(sizes, [])
    lane: Variable | None = next((v for v in reversed(space.variables) if v.trips > 1), None)
    if lane is not None and space.indices[-1].terms != ((lane, 1),):
        lane = None
    lanes = vector_lanes([*members, *inputs], lane.trips) if lane is not None else 0
    views = {
        i: View(p, i.shape.element_type, i.shape.dimensions) for i, p in zip(inputs, pointers, strict=True)
    }
    elements = Elements(function, lanes, views)
    offsets = [
        elements.position(elements.element(start, ()), start.shape.element_type, extent - size + 1)
        for start, extent, size in zip(starts, operand.shape.dimensions, sizes, strict=True)
    ]
    result = View(target, update.shape.element_type, update.shape.dimensions)

    def body() -> None:
        value = elements.element(new, space.indices)
        elements.store(result, _moved(space.indices, offsets), value)

    others = [v for v in space.variables if v.trips > 1 and v is not lane]
    zero = function.constant(I64, 0)
    if lane is not None and lanes:
        first = function.constant(I64, others[0].trips) if others else zero
        low, high = (zero, function.constant(I64, lane.trips))
        with outer_loops(function, others, zero, first), elements.scope():
            vector_loop(elements, lane, low, high, body, exact=lane.trips % lanes == 0)
    else:
        scalar = [v for v in space.variables if v.trips > 1]
        first = function.constant(I64, scalar[0].trips) if scalar else zero
        with outer_loops(function, scalar, zero, first), elements.scope():
            body()
    function.finish()
    del begin, end
    return LoopKernel(name, 1, 1, new.shape.element_count)


def _moved(indices: Indices, offsets: Sequence[Index]) -> Indices:
    return tuple(index + offset for index, offset in zip(indices, offsets, strict=True))
