"""Elementwise arithmetic of two operands: add, subtract, multiply, divide, remainder, maximum, minimum, power ...

The page "Element-wise binary arithmetic operations"; corner cases are decided so that nothing traps.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hloom.ir.operation import Array, operation
from hloom.operations.elementwise import ANY, Elementwise
from hloom.shape.element_type import ElementType


class _Binary(Elementwise):
    __slots__ = ()
    accepts: ClassVar[frozenset[ElementType]] = ANY


@operation("add", "lhs rhs")
class Add(_Binary):
    """lhs + rhs; for pred: or. Integers wrap."""

    def compute(self, lhs: Array, rhs: Array) -> Array:
        """numpy's sum, which is `or` for booleans."""
        return lhs + rhs


@operation("multiply", "lhs rhs")
class Multiply(_Binary):
    """lhs * rhs; for pred: and. Integers wrap."""

    def compute(self, lhs: Array, rhs: Array) -> Array:
        """numpy's product, which is `and` for booleans."""
        return lhs * rhs


@operation("divide", "lhs rhs")
class Divide(_Binary):
    """lhs / rhs. Integers truncate; x / 0 has all bits set; MIN / -1 is MIN."""

    def compute(self, lhs: Array, rhs: Array) -> Array:
        """Truncating division without traps; IEEE division for floats."""
        if lhs.dtype.kind in "iu":
            zero = rhs == 0
            overflow = (rhs == -1) if lhs.dtype.kind == "i" else np.False_
            safe = np.where(zero | overflow, rhs.dtype.type(1), rhs)
            quotient = lhs // safe
            remainder = lhs - quotient * safe
            quotient = quotient + ((remainder != 0) & ((lhs < 0) != (safe < 0))).astype(lhs.dtype)
            quotient = np.where(overflow, -lhs, quotient)
            return np.where(zero, ~lhs.dtype.type(0), quotient)
        with np.errstate(all="ignore"):
            return lhs / rhs
