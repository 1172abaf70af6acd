"""Scatter: updates combined into place one after the other, in row-major order, vectors along each window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloom.cpu.elements import Elements, Indices, View
from hloom.cpu.index import Index, Variable
from hloom.cpu.llvm_text import I64, PTR, Function, Module, Value
from hloom.cpu.loops import LoopKernel, outer_loops, vector_lanes, vector_loop
from hloom.cpu.movement import also
from hloom.cpu.program import ProgramEmitter, emitter
from hloom.cpu.types import Element
from hloom.ir.instruction import HloInstruction


@emitter("scatter")
def emit_scatter(program: ProgramEmitter, i: HloInstruction) -> None:
    """Copy the operands where they must stay as they were, then update the copies."""
    count = len(i.operands) // 2
    results = [((n,) if i.shape.is_tuple else ()) for n in range(count)]
    for operand, index in zip(i.operands[:count], results, strict=True):
        view = program.view(i, index)
        if view.count and program.assignment.buffer(operand) is not program.assignment.buffer(i, index):
            program.copy_bytes(program.pointer(operand), view.pointer, program.leaf_size(i, index))
    updates = i.operands[count + 1]
    if 0 in (*updates.shape.dimensions, *i.operands[0].shape.dimensions):
        return
    kernel = program.shared(lambda name: _scatter_kernel(program.module, name, i, count))
    targets = [program.pointer(i, index) for index in results]
    program.call(i, kernel, [*targets, *(program.pointer(o) for o in i.operands[count:])])


def _scatter_kernel(module: Module, name: str, i: HloInstruction, count: int) -> LoopKernel:
    """(results..., indices, updates..., begin, end): every update; runs as one piece, to keep the order."""
    operation: Any = i.operation
    operands, indices, updates = i.operands[:count], i.operands[count], i.operands[count + 1 :]
    function = module.function(name, [PTR] * (2 * count + 1) + [I64, I64])
    pointers = function.parameters
    results = [
        View(p, o.shape.element_type, o.shape.dimensions) for p, o in zip(pointers, operands, strict=False)
    ]
    views = {
        o: View(p, o.shape.element_type, o.shape.dimensions)
        for p, o in zip(pointers[count:], [indices, *updates], strict=False)
    }
    sizes = updates[0].shape.dimensions
    variables = [Variable(size, "u") for size in sizes]
    windows: tuple[int, ...] = operation.update_window_dims
    lane = variables[windows[-1]] if windows and windows[-1] == len(sizes) - 1 else None
    if lane is not None and not _minor_window(operation, operands[0].shape.rank):
        lane = None
    lanes = vector_lanes([*operands, *updates], lane.trips) if lane is not None else 0
    elements = Elements(function, lanes, views)
    body = _Body(elements, i, results, variables)
    zero = function.constant(I64, 0)
    batch = [v for d, v in enumerate(variables) if d not in windows]
    inner = [v for d, v in enumerate(variables) if d in windows and v is not lane]
    with outer_loops(function, batch, zero, _limit(function, batch)), elements.scope():
        starts = body.starts()
        with outer_loops(function, inner, zero, _limit(function, inner)), elements.scope():
            if lane is not None and lanes:
                high = function.constant(I64, lane.trips)
                vector_loop(
                    elements, lane, zero, high, lambda: body.run(starts), exact=lane.trips % lanes == 0
                )
            elif lane is not None:
                with outer_loops(function, [lane], zero, _limit(function, [lane])), elements.scope():
                    body.run(starts)
            else:
                body.run(starts)
    function.finish()
    return LoopKernel(name, 1, 1, updates[0].shape.element_count)


def _limit(function: Function, variables: Sequence[Variable]) -> Value:
    return function.constant(I64, variables[0].trips if variables else 0)


def _minor_window(operation: Any, rank: int) -> bool:
    """Whether the minor dimension of the operand is one that windows run along."""
    return rank - 1 not in (*operation.inserted_window_dims, *operation.input_batching_dims)


class _Body:
    """One update element, or a vector of them along the window."""

    def __init__(
        self, elements: Elements, i: HloInstruction, results: list[View], variables: list[Variable]
    ) -> None:
        self.e, self.i, self.results, self.variables = elements, i, results, variables
        self.operation: Any = i.operation
        self.count = len(results)

    def starts(self) -> dict[int, Value]:
        """The start in each operand dimension that an index vector component gives, as it is."""
        operation = self.operation
        indices = self.i.operands[self.count]
        batch = [Index.of(v) for d, v in enumerate(self.variables) if d not in operation.update_window_dims]
        found: dict[int, Value] = {}
        for number, dimension in enumerate(operation.scatter_dims_to_operand_dims):
            place = [*batch]
            if operation.index_vector_dim < indices.shape.rank:
                place.insert(operation.index_vector_dim, Index(number))
            value = self.e.element(indices, tuple(place))
            assert isinstance(value, Value)
            signed = indices.shape.element_type.is_signed
            found[dimension] = value if value.type is I64 else value.cast("sext" if signed else "zext", I64)
        return found

    def place(self, starts: dict[int, Value]) -> tuple[Indices, Value | None]:
        """The index in the operand, and the condition that it lies inside."""
        operation = self.operation
        dimensions = self.results[0].dimensions
        batch = [v for d, v in enumerate(self.variables) if d not in operation.update_window_dims]
        windows: tuple[int, ...] = operation.update_window_dims
        window = iter([self.variables[d] for d in windows])
        place: list[Index] = []
        condition: Value | None = None
        for d, size in enumerate(dimensions):
            index = Index(0)
            if d in operation.input_batching_dims:
                number: int = operation.input_batching_dims.index(d)
                dimension: int = operation.scatter_indices_batching_dims[number]
                vector_dim: int = operation.index_vector_dim
                index = Index.of(batch[dimension - (dimension > vector_dim)])
            elif d not in operation.inserted_window_dims:
                index = Index.of(next(window))
            if d in starts:
                index = index + self.e.opaque(starts[d], 1 << 62)
                condition = also(self.e, condition, self.e.index_value(index).compare("ult", size))
            place.append(index)
        return tuple(place), condition

    def run(self, starts: dict[int, Value]) -> None:
        """Combine and store, where the place is inside."""
        place, condition = self.place(starts)
        if condition is not None and not condition.type.lanes:
            with self.e.function.when(condition), self.e.scope():
                self._combine(place)
            return
        with self.e.masked(condition):
            self._combine(place)

    def _combine(self, place: Indices) -> None:
        e = self.e
        here = tuple(Index.of(v) for v in self.variables)
        updates = self.i.operands[self.count + 1 :]
        old: list[Element] = [e.load(result, place) for result in self.results]
        new = [e.element(update, here) for update in updates]
        made = e.apply(self.i.called_computations[0], [*old, *new])
        for result, value in zip(self.results, made, strict=True):
            e.store(result, place, value)
