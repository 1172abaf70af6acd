"""One update of a scatter: its start in the operand, the bounds check, and the combination in place."""

from __future__ import annotations

import itertools
import math
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm import I1, I32, I64, Value
from hloom.codegen.loops import loop_nest
from hloom.codegen.types import Element
from hloom.ir.affine import Index, Indices, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.gather_scatter import Scatter

UPDATE_WORK: Final = 4
"""Work of one update in addition to computing it: index, bounds check, load, combination and store."""
WRITTEN_OUT: Final = 4
"""Number of elements of a window up to which their updates are written out."""


class Update:
    """Emits the update of one element of a scatter's operand, or of a vector of elements along a window.

    Attributes:
        results: the arrays that are updated in place.
        variables: the loop variables that index an element of the updates array.
    """

    def __init__(
        self, elements: Elements, i: HloInstruction, results: list[View], variables: list[Variable]
    ) -> None:
        self.e, self.i, self.results, self.variables = elements, i, results, variables
        self.operation = operation_of(i, Scatter)
        self.count = len(i.operands) // 2

    def components(self) -> list[tuple[int, Value, bool]]:
        """Emit the loads of the components of the current window's index vector in the scatter indices.

        Returns (operand dimension, value, whether the value is a signed integer) for each component.
        """
        operation = self.operation
        indices = self.i.operands[self.count]
        batch = [Index.of(v) for d, v in enumerate(self.variables) if d not in operation.update_window_dims]
        checks: list[tuple[int, Value, bool]] = []
        for number, dimension in enumerate(operation.scatter_dims_to_operand_dims):
            position = [*batch]
            if operation.index_vector_dim < indices.shape.rank:
                position.insert(operation.index_vector_dim, Index(number))
            value = self.e.element(indices, tuple(position))
            assert isinstance(value, Value)
            checks.append((dimension, value, indices.shape.element_type.is_signed))
        return checks

    def starts(self) -> dict[int, Value]:
        """Emit the start indices of the current window of a scatter, as {operand dimension: i64}.

        The values are those of the scatter indices, not clamped to the operand.
        """
        starts: dict[int, Value] = {}
        for dimension, value, signed in self.components():
            wide = value if value.type is I64 else value.cast("sext" if signed else "zext", I64)
            if value.type is I64 and not signed:  # the upper half of u64 is out of bounds, not negative
                wide = self.e.function.intrinsic("umin", value, self.e.function.constant(I64, 1 << 62))
            starts[dimension] = wide
        return starts

    def wide_starts(self) -> tuple[dict[int, Value], Value]:
        """Emit the start indices of a vector of windows; return ({operand dimension: i32 vector}, mask).

        The mask says which windows start inside the operand; the start indices of the others are undefined.
        """
        e = self.e
        starts: dict[int, Value] = {}
        inside = e.function.constant(I1.vector(e.lanes), 1)
        for dimension, value, signed in self.components():
            start = e.wide(value)
            if start.type.scalar not in (I32, I64):
                start = start.cast("sext" if signed else "zext", I32)
            size = self.i.operands[0].shape.dimensions[dimension]
            inside = inside & start.compare("ult", size)
            starts[dimension] = start if start.type.scalar is I32 else start.cast("trunc", I32)
        return starts, inside

    def inside(self, starts: dict[int, Value]) -> Value | None:
        """Emit the condition that the window at ``starts`` lies entirely inside the operand, an i1.

        Returns None if ``starts`` is empty, as such a window is inside.
        """
        dimensions, sizes = self.results[0].dimensions, self.window_sizes()
        condition: Value | None = None
        for d, start in starts.items():
            fits = start.compare("ule", dimensions[d] - sizes[d])
            condition = fits if condition is None else condition & fits
        return condition

    def window_sizes(self) -> list[int]:
        """Return the size of a scatter's window in each dimension of the operand."""
        operation = self.operation
        dropped = (*operation.inserted_window_dims, *operation.input_batching_dims)
        windows = operation.update_window_dims
        sizes = iter([self.variables[d].extent for d in windows])
        return [1 if d in dropped else next(sizes) for d in range(len(self.results[0].dimensions))]

    def place(self, starts: dict[int, Value]) -> Indices:
        """Return the index in a scatter's operand of the current element of the window at ``starts``.

        The loop variables select the element; the window must lie inside the operand.
        """
        operation = self.operation
        dimensions, sizes = self.results[0].dimensions, self.window_sizes()
        batch = [v for d, v in enumerate(self.variables) if d not in operation.update_window_dims]
        windows = operation.update_window_dims
        window = iter([self.variables[d] for d in windows])
        indices: list[Index] = []
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
                index = index + self.e.opaque(starts[d], size - sizes[d] + 1)
            indices.append(index)
        return tuple(indices)

    def window(self, loops: list[Variable], starts: dict[int, Value]) -> None:
        """Emit the updates of the elements of the window at ``starts``, which the loops run over.

        Those of a few elements are written out.
        """
        count = math.prod(v.trips for v in loops)
        if self.e.lanes or count > WRITTEN_OUT:
            loop_nest(self.e, loops, lambda: self.run(starts))
            return
        for numbers in itertools.product(*(range(v.trips) for v in loops)):
            for variable, number in zip(loops, numbers, strict=True):
                variable.value = self.e.function.constant(I64, number)
            with self.e.scope():
                self.run(starts)

    def run(self, starts: dict[int, Value]) -> None:
        """Emit the update of the current element of the window at ``starts``, in place for every result.

        The elements of the results are loaded, combined with those of the updates arrays, and stored.
        """
        e, position = self.e, self.place(starts)
        here = tuple(Index.of(v) for v in self.variables)
        updates = self.i.operands[self.count + 1 :]
        old: list[Element] = [e.load(result, position) for result in self.results]
        new = [e.element(update, here) for update in updates]
        combined = e.apply(self.i.called_computations[0], [*old, *new])
        for result, value in zip(self.results, combined, strict=True):
            e.store(result, position, value)
