"""concatenate: one loop per operand that stores its part of the result, or narrow rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.codegen.elements import View
from hloom.codegen.llvm import I8, Function, Module, Value
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
from hloom.cpu.kernels.movement.transposition import (
    TiledKernel,
    TransposeTiling,
    emit_parts_kernel,
    find_tiling,
)
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.errors import plural
from hloom.ir.affine import Index, row_major_strides
from hloom.ir.instruction import HloInstruction
from hloom.operations.movement import Concatenate
from hloom.plan.iteration import accesses_of, planned_space
from hloom.plan.kernel import KernelPlan
from hloom.plan.parts import KernelParts, merge_narrow_dimensions
from hloom.plan.space import Space, merge_loops, split_space
from hloom.records import dataclass

LEAST_TOGETHER: Final = 1 << 18
"""Bytes of a result from which one kernel stores several operands."""
MOST_TOGETHER: Final = 8
"""Most operands of such a kernel, whose code is that of each of them."""
TOGETHER_BYTES: Final = 1 << 14
"""Bytes of a result's rows that stay in the first-level cache until all operands are stored."""


@KERNELS.register("concatenate")
def emit_concatenate(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit a concatenate, or its fusion with the producers of its operands.

    If the operands are parts of narrow rows of the result, a kernel interleaves their columns. Else kernels
    store an operand each, or several side by side.
    """
    i = plan.instruction
    target = program.view(i)
    if not target.count:
        return
    parts = merge_narrow_dimensions(replace(plan.parts, roots=plan.parts.members[-1:]))
    inputs, members, (root,) = parts.inputs, parts.members, parts.roots
    pointers = dict(zip(inputs, program.input_pointers(i), strict=True))
    (dimension,) = operation_of(root, Concatenate).dimensions
    is_major = math.prod(root.shape.dimensions[:dimension]) == 1
    space = planned_space(inputs, parts.roots, members)
    rows = None if is_major else find_rows(space, parts, program.module.target)
    if rows is not None:
        kernel = program.shared(lambda name: emit_rows_kernel(program.module, name, parts, rows))
        program.call(i, kernel, [*pointers.values(), target.pointer])
        return
    is_large = target.count * storage_bytes(root.shape.element_type) >= LEAST_TOGETHER
    most = MOST_TOGETHER if is_large and not is_major else 1
    for group in _groups(_parts_of(root, parts), most):
        sources, address = [x for x in inputs if any(x in part.inputs for part in group)], target.pointer
        emit = partial(_emit_together, program.module, group, sources)
        if len(group) == 1:
            (part,) = group
            is_whole = is_major and part.operand in members
            emit = partial(part.emit_whole if is_whole else part.emit, program.module)
            address = program.function.offset(address, part.start, I8)
        program.call(i, program.shared(emit), [*(pointers[x] for x in sources), address])


def _parts_of(root: HloInstruction, parts: KernelParts) -> list[_Part]:
    """Return the parts of a concatenate's result that have elements."""
    (dimension,) = operation_of(root, Concatenate).dimensions
    strides = row_major_strides(root.shape.dimensions)
    size = storage_bytes(root.shape.element_type) * strides[dimension]
    start, result = 0, list[_Part]()
    for operand in root.operands:
        if operand.shape.element_count:
            needed = _needed(operand, parts.inputs)
            sources = [x for x in parts.inputs if x in needed]
            result.append(_Part(operand, strides, start, sources, [m for m in parts.members if m in needed]))
        start += operand.shape.dimensions[dimension] * size
    return result


def _groups(parts: Sequence[_Part], most: int) -> list[list[_Part]]:
    """Divide parts into groups for one kernel: at most ``most`` neighbors with the same outermost loop."""
    groups: list[list[_Part]] = []
    for part in parts:
        last = groups[-1] if groups else []
        if last and len(last) < most and 0 < part.rows == last[0].rows:
            last.append(part)
        else:
            groups.append([part])
    return groups


def _emit_together(
    module: Module, group: Sequence[_Part], inputs: Sequence[HloInstruction], name: str
) -> LoopKernel:
    """Emit the kernel (inputs..., result, begin, end) of several parts, which stores all of them row by row.

    Each kernel of one part would write the lines of the result that it shares with others once more.
    """
    shapes = [*(i.shape for i in inputs), group[0].operand.shape]
    function, arrays, begin, end = begin_kernel(module, name, shapes)
    views, result = dict(zip(inputs, arrays, strict=False)), arrays[-1].pointer
    emitters = [part.loops(function, views, function.offset(result, part.start, I8)) for part in group]
    row_bytes = sum(p.operand.shape.byte_size for p in group) // group[0].rows
    rows = max(1, TOGETHER_BYTES // row_bytes)
    with function.loop(begin, end, rows) as loop:
        last = function.intrinsic("smin", loop.index + rows, end)
        for emit in emitters:
            emit(loop.index, last)
    function.finish()
    form = f"{plural(len(group), 'operand')} together"
    return LoopKernel(name, group[0].rows, 1, sum(part.work for part in group), form)


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
        start: the byte of the result at which the operand begins.
        inputs: the instructions that the kernel reads from memory.
        members: the instructions that the kernel computes, operands first.
    """

    operand: HloInstruction
    strides: tuple[int, ...]
    start: int
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
        space, parts = self.space(), self.parts
        tiling = self.tiling(space)
        if tiling is not None:
            return TiledKernel(module, name, parts, space, tiling, strides=self.strides).emit()
        shapes = [i.shape for i in (*self.inputs, self.operand)]
        function, arrays, begin, end = begin_kernel(module, name, shapes)
        self.loops(function, dict(zip(self.inputs, arrays, strict=False)), arrays[-1].pointer)(begin, end)
        function.finish()
        lanes = self.lanes(space)
        return nest_kernel(name, space.variables, lanes, self.work, lanes_text(lanes))

    def loops(
        self, function: Function, views: Mapping[HloInstruction, View], result: Value
    ) -> Callable[[Value, Value], None]:
        """Emit what precedes the loops that store the operand from the address ``result`` on.

        Returns the function that emits the loops, for a range of the outermost one.
        """
        space = self.space()
        target = replace(View.of(result, self.operand.shape), strides=self.strides)
        sources = {x: views[x] for x in self.inputs}
        pieces = Pieces(function, self.parts, sources, space, self.lanes(space))

        def emit(begin: Value, end: Value) -> None:
            with outer_loops(function, space.variables[:-1], begin, end):
                pieces.emit([target], begin, end, repeats=True)

        return emit

    @property
    def parts(self) -> KernelParts:
        return KernelParts(tuple(self.inputs), (self.operand,), tuple(self.members))

    def tiling(self, space: Space) -> TransposeTiling | None:
        """Return how the operand is transposed in tiles of the loops ``space``; None if it is not."""
        tiling = find_tiling(space, self.parts) if self.operand in self.members else None
        is_along = tiling is not None and dict(self.written(space.indices).terms).get(tiling.lane) == 1
        return tiling if is_along else None

    def lanes(self, space: Space) -> int:
        """Return the lanes along the innermost loop; 0 if the result is not contiguous along it."""
        lane = space.variables[-1] if space.variables else None
        if lane is None or dict(self.written(space.indices).terms).get(lane) != 1:
            return 0
        return vector_lanes([self.operand, *self.inputs], lane.trips)

    @property
    def rows(self) -> int:
        """Return the iterations of the loop around vectors; 0 if there is none, or for tiles."""
        space = self.space()
        loops = [v.trips for v in space.variables]
        if self.tiling(space) is not None or len(loops) <= (1 if self.lanes(space) else 0):
            return 0
        return loops[0]

    @property
    def work(self) -> int:
        count = self.operand.shape.element_count
        return max(work_of(self.members, count), count)
