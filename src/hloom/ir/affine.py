"""Symbolic indices: affine expressions of loop variables, by which operands are addressed.

Broadcast, transpose, slice, pad, reverse, iota and most reshapes map an index to another by strides and
offsets. Affine expressions need no arithmetic per element: an address is one pointer and one stride. An index
that is not affine (of a reshape across dimensions, of a gather) becomes an opaque variable, whose value is
computed at its use.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

_numbers = itertools.count()


class Variable:
    """A loop variable, or an opaque index value.

    Attributes:
        extent: the variable takes values in [0, extent).
        trips: number of iterations of its loop. The inner variable of merged loops runs past its extent into
            the next iteration of the outer one: trips is then larger than extent, which bounds index ranges.
        value: its SSA value in the code under emission, scalar or one per lane; None outside its loop.
        is_lane: whether consecutive lanes of a vector hold consecutive values; ``value`` is that of lane 0.
    """

    __slots__ = ("extent", "is_lane", "name", "number", "trips", "value")

    def __init__(self, extent: int, name: str = "i", value: object = None) -> None:
        self.extent = extent
        self.trips = extent
        self.number = next(_numbers)
        self.name = f"{name}{self.number}"
        self.value = value
        self.is_lane = False

    def __repr__(self) -> str:
        return f"{self.name}<{self.extent}"


class Index:
    """constant + sum of coefficient * variable."""

    __slots__ = ("_hash", "constant", "terms")

    constant: int
    terms: tuple[tuple[Variable, int], ...]

    def __init__(self, constant: int = 0, terms: Iterable[tuple[Variable, int]] = ()) -> None:
        merged: dict[Variable, int] = {}
        for variable, coefficient in terms:
            merged[variable] = merged.get(variable, 0) + coefficient
        listed = [term for term in merged.items() if term[1]]
        if len(listed) > 1:
            listed.sort(key=_number)
        self.terms = tuple(listed)
        self.constant = constant
        self._hash = hash((constant, self.terms))

    @classmethod
    def of(cls, variable: Variable) -> Index:
        """Return the variable as an index; 0 if its extent is 1."""
        return cls(0, [(variable, 1)]) if variable.extent != 1 or variable.value is not None else cls(0)

    @classmethod
    def _of_ordered(cls, constant: int, terms: tuple[tuple[Variable, int], ...]) -> Index:
        """Return an index of terms that are merged and in order."""
        index = cls.__new__(cls)
        index.constant, index.terms = constant, terms
        index._hash = hash((constant, terms))
        return index

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and self.constant == other.constant and self.terms == other.terms

    def __repr__(self) -> str:
        return " + ".join([str(self.constant), *(f"{c}*{v.name}" for v, c in self.terms)])

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return self._of_ordered(self.constant + other, self.terms) if other else self
        if not (self.terms and other.terms):
            return self._of_ordered(self.constant + other.constant, self.terms or other.terms)
        return Index(self.constant + other.constant, (*self.terms, *other.terms))

    def __sub__(self, other: Index | int) -> Index:
        return self + other * -1

    def __mul__(self, factor: int) -> Index:
        if factor == 1:
            return self
        terms = tuple([(v, c * factor) for v, c in self.terms]) if factor else ()
        return self._of_ordered(self.constant * factor, terms)

    @property
    def is_constant(self) -> bool:
        """Return whether the index has no variables."""
        return not self.terms

    @property
    def lane_coefficient(self) -> int:
        """Return the increment of the index from lane to lane."""
        return sum(c for v, c in self.terms if v.is_lane)

    def minimum(self) -> int:
        """Return the minimum value."""
        return self.constant + sum(min(0, c * (v.extent - 1)) for v, c in self.terms)

    def maximum(self) -> int:
        """Return the maximum value."""
        return self.constant + sum(max(0, c * (v.extent - 1)) for v, c in self.terms)

    def divide(self, divisor: int) -> Index | None:
        """Return the floor of the quotient if it is affine, else None.

        Coefficients must be multiples of the divisor; the remaining terms must stay in [0, divisor).
        """
        quotients = [(v, c // divisor) for v, c in self.terms if c % divisor == 0]
        remainder = Index(self.constant % divisor, ((v, c) for v, c in self.terms if c % divisor))
        if remainder.minimum() < 0 or remainder.maximum() >= divisor:
            return None
        return Index(self.constant // divisor, quotients)


Indices: TypeAlias = tuple[Index, ...]
"""The index of each dimension of an array."""


def _number(term: tuple[Variable, int]) -> int:
    return term[0].number


def row_major_strides(dimensions: Sequence[int]) -> tuple[int, ...]:
    """Return the row-major strides of a dense array, in elements."""
    strides = [1] * len(dimensions)
    for d in range(len(dimensions) - 2, -1, -1):
        strides[d] = strides[d + 1] * dimensions[d + 1]
    return tuple(strides)


def linearize(indices: Sequence[Index], dimensions: Sequence[int]) -> Index:
    """Return the row-major linear index."""
    constant, stride = 0, 1
    terms: list[tuple[Variable, int]] = []
    for index, size in zip(reversed(indices), reversed(dimensions), strict=True):
        constant += index.constant * stride
        terms += [(variable, coefficient * stride) for variable, coefficient in index.terms]
        stride *= size
    return Index(constant, terms)


def delinearize(linear: Index, dimensions: Sequence[int]) -> tuple[Index, ...] | None:
    """Return the multi-index of an affine linear index; None if it is not affine."""
    indices, _ = leading_indices(linear, dimensions)
    return indices if len(indices) == len(dimensions) else None


def leading_indices(linear: Index, dimensions: Sequence[int]) -> tuple[tuple[Index, ...], Index]:
    """Return the affine indices of the leading dimensions, and the linear index in the other ones."""
    indices: list[Index] = []
    remainder = linear
    for size, stride in zip(dimensions, row_major_strides(dimensions), strict=True):
        if size == 1 or not stride:
            indices.append(Index(0))
            continue
        quotient = remainder.divide(stride)
        if quotient is None:
            break
        indices.append(quotient)
        remainder = remainder - quotient * stride
    return tuple(indices), remainder


def refine(dimensions: Sequence[int], others: Iterable[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Split dimensions so that reshapes to ``others`` fall on factor boundaries where possible.

    Return the factors of every dimension, major to minor. Shapes of another element count are ignored.
    """
    total = math.prod(dimensions)
    if not total:
        return tuple([(size,) for size in dimensions])
    cuts: set[int] = set()
    for shape in others:
        if math.prod(shape) == total:
            cuts.update(row_major_strides(shape))
    split: list[tuple[int, ...]] = []
    for size, stride in zip(dimensions, row_major_strides(dimensions), strict=True):
        factors: list[int] = []
        below = stride
        for cut in sorted(c for c in cuts if stride < c < stride * size):
            if cut % below == 0 and (stride * size) % cut == 0:
                factors.append(cut // below)
                below = cut
        factors.append(stride * size // below)
        split.append(tuple(reversed(factors)))
    return tuple(split)
