"""concatenate: one loop per operand that stores its part of the result, or narrow rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from hloom.analysis.instructions import operation_of
from hloom.codegen.llvm import I8, Module
from hloom.codegen.loops import (
    LoopKernel,
    Pieces,
    begin_kernel,
    lanes_text,
    nest_kernel,
    outer_loops,
    vector_lanes,
    work_of,
)
from hloom.codegen.types import storage_bytes
from hloom.cpu.kernels.movement.interleaving import emit_rows_kernel, find_rows
from hloom.cpu.kernels.movement.transposition import TiledKernel, emit_parts_kernel, find_tiling
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.affine import Index, row_major_strides
from hloom.ir.instruction import HloInstruction
from hloom.operations.movement import Concatenate
from hloom.plan.iteration import accesses_of, planned_space
from hloom.plan.kernel import KernelPlan
from hloom.plan.parts import KernelParts, merge_narrow_dimensions
from hloom.plan.space import Space, merge_loops, split_space
from hloom.records import dataclass


@KERNELS.register("concatenate")
def emit_concatenate(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit a concatenate, or its fusion with the producers of its operands: one kernel for each operand.

    If the operands are parts of narrow rows of the result, a single kernel interleaves their columns instead.
    """
    i = plan.instruction
    target = program.view(i)
    if not target.count:
        return
    parts = merge_narrow_dimensions(replace(plan.parts, roots=plan.parts.members[-1:]))
    inputs, members, (root,) = parts.inputs, parts.members, parts.roots
    (dimension,) = operation_of(root, Concatenate).dimensions
    is_major = math.prod(root.shape.dimensions[:dimension]) == 1
    space = planned_space(inputs, parts.roots, members)
    rows = None if is_major else find_rows(space, parts, program.module.target)
    if rows is not None:
        kernel = program.shared(lambda name: emit_rows_kernel(program.module, name, parts, rows))
        program.call(i, kernel, [*program.input_pointers(i), target.pointer])
        return
    strides = row_major_strides(root.shape.dimensions)
    size = storage_bytes(root.shape.element_type) * strides[dimension]
    pointers = dict(zip(inputs, program.input_pointers(i), strict=True))
    start = 0
    for operand in root.operands:
        if operand.shape.element_count:
            needed = _needed(operand, pointers)
            sources = [x for x in inputs if x in needed]
            part = _Part(operand, strides, sources, [m for m in members if m in needed])
            is_whole = is_major and operand in members
            kernel = program.shared(partial(part.emit_whole if is_whole else part.emit, program.module))
            address = program.function.offset(target.pointer, start * size, I8)
            program.call(i, kernel, [*(pointers[x] for x in sources), address])
        start += operand.shape.dimensions[dimension]


def _needed(operand: HloInstruction, inputs: Collection[HloInstruction]) -> set[HloInstruction]:
    """Return ``operand`` and all from which a kernel computes it, down to its ``inputs`` in memory."""
    waiting, needed = [operand], {operand}
    while waiting:
        instruction = waiting.pop()
        if instruction not in inputs:
            waiting += [o for o in instruction.operands if o not in needed]
            needed.update(instruction.operands)
    return needed


@dataclass(frozen=True, slots=True)
class _Part:
    """One operand of a concatenate, and what its kernel needs to store it in the result.

    Attributes:
        operand: the operand, an instruction in memory or one that the kernel computes.
        strides: the strides of the result, in elements.
        inputs: the instructions that the kernel reads from memory.
        members: the instructions that the kernel computes, operands first.
    """

    operand: HloInstruction
    strides: tuple[int, ...]
    inputs: Sequence[HloInstruction]
    members: Sequence[HloInstruction]

    def written(self, indices: Sequence[Index]) -> Index:
        """Return the index at which a concatenate's result stores the element ``indices`` of an operand.

        It is counted in elements from the place of the operand's first element in the result.
        """
        total = Index(0)
        for index, stride in zip(indices, self.strides, strict=True):
            total = total + index * stride
        return total

    def space(self) -> Space:
        """Return the loops over the elements of one operand of a concatenate.

        One loop takes the place of several adjacent dimensions if the strides of the inputs and of the result
        allow it.
        """
        shapes = [x.shape.dimensions for x in (*self.members, *self.inputs) if x.shape.is_array]
        space = split_space(self.operand.shape.dimensions, shapes)
        accesses = accesses_of(self.inputs, [self.operand], space.indices)
        return merge_loops(space, [*accesses.linear, self.written(space.indices)], accesses.pinned)

    def emit_whole(self, module: Module, name: str) -> LoopKernel:
        """Emit the kernel (inputs..., result, begin, end) of a computed operand that is contiguous there."""
        return emit_parts_kernel(
            module, name, KernelParts(tuple(self.inputs), (self.operand,), tuple(self.members))
        )

    def emit(self, module: Module, name: str) -> LoopKernel:
        """Emit the kernel (inputs..., result, begin, end) that stores one operand of a concatenate.

        ``result`` is the address, in the concatenation, of the operand's first element.
        """
        space, inputs = self.space(), self.inputs
        parts = KernelParts(tuple(inputs), (self.operand,), tuple(self.members))
        tiling = find_tiling(space, parts) if self.operand in self.members else None
        if tiling is not None and dict(self.written(space.indices).terms).get(tiling.lane) == 1:
            return TiledKernel(module, name, parts, space, tiling, strides=self.strides).emit()
        function, arrays, begin, end = begin_kernel(module, name, [i.shape for i in (*inputs, self.operand)])
        lane = space.variables[-1] if space.variables else None
        lanes = vector_lanes([self.operand, *inputs], lane.trips) if lane is not None else 0
        if lane is not None and dict(self.written(space.indices).terms).get(lane) != 1:
            lanes = 0
        views, result = dict(zip(inputs, arrays, strict=False)), replace(arrays[-1], strides=self.strides)
        pieces = Pieces(function, parts, views, space, lanes)
        with outer_loops(function, space.variables[:-1], begin, end):
            pieces.emit([result], begin, end, repeats=True)
        function.finish()
        work = max(work_of(self.members, self.operand.shape.element_count), self.operand.shape.element_count)
        return nest_kernel(name, space.variables, lanes, work, lanes_text(lanes))
