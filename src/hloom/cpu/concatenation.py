"""concatenate: one loop for each operand, which writes it to its part of the result, or narrow rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloom.cpu.elements import Elements, View
from hloom.cpu.index import Index, linearize
from hloom.cpu.interleaving import emit_rows_kernel, find_rows
from hloom.cpu.llvm_text import I64, PTR, Module
from hloom.cpu.loops import (
    LoopKernel,
    Space,
    merge_loops,
    outer_loops,
    planned_space,
    split_space,
    vector_lanes,
    vector_loop,
    walk,
)
from hloom.cpu.program import ProgramEmitter, emitter, kernel_parts
from hloom.ir.instruction import HloInstruction


@emitter("concatenate")
def emit_concatenate(program: ProgramEmitter, i: HloInstruction) -> None:
    """A concatenation, alone or with what its operands are made of."""
    inputs, _, members = kernel_parts(i)
    root = members[-1]
    target = program.view(i)
    rows = find_rows(planned_space(inputs, [root], members), inputs, [root], members)
    if rows is not None:
        kernel = program.shared(
            lambda name: emit_rows_kernel(program.module, name, inputs, [root], members, rows)
        )
        program.call(i, kernel, [*program.input_pointers(i), target.pointer])
        return
    operation: Any = root.operation
    dimension: int = operation.dimensions[0]
    start = 0
    for operand in root.operands:
        if operand.shape.element_count:
            part = _Part(root, operand, dimension, start)
            kernel = program.shared(
                lambda name, p=part: p.emit(program.module, name, inputs, members)  # type: ignore[misc]
            )
            program.call(i, kernel, [*program.input_pointers(i), target.pointer])
        start += operand.shape.dimensions[dimension]


class _Part:
    """One operand, and where it goes."""

    def __init__(self, root: HloInstruction, operand: HloInstruction, dimension: int, start: int) -> None:
        self.root, self.operand, self.dimension, self.start = root, operand, dimension, start

    def place(self, indices: Sequence[Index]) -> tuple[Index, ...]:
        """The index in the result of an index of the operand."""
        d = self.dimension
        return (*indices[:d], indices[d] + self.start, *indices[d + 1 :])

    def space(self, inputs: Sequence[HloInstruction], members: Sequence[HloInstruction]) -> Space:
        """The loops over the operand, merged where it and its place in the result go on by one stride."""
        shapes = [x.shape.dimensions for x in (*members, *inputs) if x.shape.is_array]
        space = split_space(self.operand.shape.dimensions, shapes)
        elements = walk(inputs, [self.operand], space)
        written = linearize(self.place(space.indices), self.root.shape.dimensions)
        return merge_loops(space, [*elements.accesses, written], elements.pinned)

    def emit(
        self, module: Module, name: str, inputs: Sequence[HloInstruction], members: Sequence[HloInstruction]
    ) -> LoopKernel:
        """(inputs..., result, begin, end): the part of the operand in the range."""
        space = self.space(inputs, members)
        function = module.function(name, [PTR] * (len(inputs) + 1) + [I64, I64])
        *pointers, target, begin, end = function.parameters
        lane = space.variables[-1] if space.variables else None
        lanes = vector_lanes([self.operand, *inputs], lane.trips) if lane is not None else 0
        written = linearize(self.place(space.indices), self.root.shape.dimensions)
        if lane is not None and dict(written.terms).get(lane) != 1:
            lanes = 0
        views = {
            x: View(p, x.shape.element_type, x.shape.dimensions)
            for x, p in zip(inputs, pointers, strict=True)
        }
        elements = Elements(function, lanes, views)
        result = View(target, self.root.shape.element_type, self.root.shape.dimensions)

        def body() -> None:
            value = elements.element(self.operand, space.indices)
            elements.store(result, self.place(space.indices), value)

        work = self.operand.shape.element_count * max(1, len(members))
        if lane is None or not lanes:
            with outer_loops(function, space.variables, begin, end), elements.scope():
                body()
        elif len(space.variables) == 1:
            vector_loop(elements, lane, begin, end, body, exact=lane.trips % lanes == 0)
        else:
            low, high = function.constant(I64, 0), function.constant(I64, lane.trips)
            with outer_loops(function, space.variables[:-1], begin, end), elements.scope():
                vector_loop(elements, lane, low, high, body, exact=lane.trips % lanes == 0)
        function.finish()
        trips = space.variables[0].trips if space.variables else 1
        grain = max(lanes, 1) if len(space.variables) <= 1 else 1
        return LoopKernel(name, trips, grain, work)
