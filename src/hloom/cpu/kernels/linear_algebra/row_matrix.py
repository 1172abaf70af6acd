"""Loops over the rows of a square matrix of real numbers in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hloom.codegen.llvm import I32, I64, Function, Type, Value
from hloom.codegen.llvm.memory import masked_load, masked_store
from hloom.codegen.types import register_type
from hloom.shape.element_type import ElementType

BLOCK: Final = 4
"""Rows or columns that a factorization computes together: the rank of an update."""


class RowMatrix:
    """Emits addresses, vectors and loops along the rows of n x n matrices.

    Attributes:
        n: the number of rows and of columns.
        lanes, wide: the number of elements of a vector, and its type.
    """

    def __init__(self, f: Function, kind: ElementType, n: int) -> None:
        self.f, self.n = f, n
        self.type: Type = register_type(kind)
        self.lanes = 64 // self.type.size
        self.wide = self.type.vector(self.lanes)

    def at(self, base: Value, row: Value | int, column: Value | int) -> Value:
        """Return the address of the element (row, column) of the matrix at ``base``."""
        line = self.f.offset(base, row * self.n, self.type)
        return self.f.offset(line, column, self.type)

    def mask(self, limit: Value) -> Value:
        """Emit the mask of the lanes whose index is less than ``limit``."""
        f = self.f
        numbers = f.constant(I32.vector(self.lanes), list(range(self.lanes)))
        return numbers.compare("slt", limit.cast("trunc", I32).splat(self.lanes))

    def sweep(self, low: Value, body: Callable[[Value, Value | None], None]) -> None:
        """Emit a loop that runs ``body(j, mask)`` for each vector of indices, from ``low`` on.

        The vector begins at index j. The mask is None, except for an incomplete last vector.
        """
        f = self.f
        high = f.constant(I64, self.n)
        full_end = low + ((high - low) & -self.lanes)
        with f.loop(low, full_end, self.lanes) as loop:
            body(loop.index, None)
        with f.when(full_end.compare("slt", high)):
            body(full_end, self.mask(high - full_end))

    def load(self, pointer: Value, mask: Value | None) -> Value:
        """Emit the load of a vector; lanes outside ``mask`` are not read. None stands for all lanes."""
        return self.f.load(self.wide, pointer) if mask is None else masked_load(self.wide, pointer, mask)

    def store(self, vector: Value, pointer: Value, mask: Value | None) -> None:
        """Emit the store of a vector; lanes outside ``mask`` are not written. None stands for all lanes."""
        if mask is None:
            self.f.store(vector, pointer)
        else:
            masked_store(vector, pointer, mask)

    def groups(self, first: Value, body: Callable[[Value, int], None]) -> None:
        """Emit loops that run ``body(row, count)`` for rows from ``first`` on, `BLOCK` at a time, then one.

        The number of rows before ``first`` is a multiple of `BLOCK`.
        """
        f = self.f
        grouped = first + ((f.constant(I64, self.n) - first) & -BLOCK)
        with f.loop(first, grouped, BLOCK) as loop:
            body(loop.index, BLOCK)
        if self.n % BLOCK:
            with f.loop(grouped, self.n) as loop:
                body(loop.index, 1)

    def subtract(self, a: Value, i: Value, k: Value, low: Value, factors: Sequence[Sequence[Value]]) -> None:
        """Emit the subtraction of products of the rows k to k + BLOCK from rows of a matrix, from row i on.

        ``factors``: for each of the rows, those of the products, in every lane; ``low``: the first column.
        """
        f = self.f

        def columns(j: Value, mask: Value | None) -> None:
            rows = [self.load(self.at(a, k + p, j), mask) for p in range(BLOCK)]
            for c, scalars in enumerate(factors):
                total = self.load(self.at(a, i + c, j), mask)
                for scalar, row in zip(scalars, rows, strict=True):
                    total = f.fma(-scalar, row, total)
                self.store(total, self.at(a, i + c, j), mask)

        self.sweep(low, columns)
