"""Sharding rules: which dimensions of operands and results of an operation belong together.

A factor is an index that an operation loops over. It appears as a dimension of some operands and, unless it
is reduced, of every result. If each device has a tile of every dimension of a factor, it computes a tile of
the result; if the factor is reduced, a summand of it. Source: Shardy's ``OpShardingRule`` (openxla/shardy).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from hloom.records import dataclass
from hloom.shape.shape import Shape

if TYPE_CHECKING:
    from hloom.ir.operation import Operation


@dataclass(frozen=True, slots=True)
class Factor:
    """An index of an operation.

    Attributes:
        size: its extent.
        operands: its dimension in each operand that has it, by the operand's number.
        result: its dimension in every result; None if it is reduced.
        combiner: the operation that combines what devices have reduced.
        kind: "plain" if a device computes a tile from tiles; "halo" if it needs elements of its neighbors;
            "indexed" if indices say which elements it needs; "parallel" if they count along the factor;
            "grouped" if tiles must be whole groups.
    """

    size: int
    operands: Mapping[int, int]
    result: int | None
    combiner: Operation | None = None
    kind: str = "plain"


def parallel(result: Shape, operands: Sequence[Shape], whole: Collection[int] = ()) -> list[Factor]:
    """Return a factor for each dimension that is the same in the result and in all operands of its rank.

    Dimensions in ``whole`` are left out: devices must have all of them.
    """
    having = [n for n, shape in enumerate(operands) if shape.is_array and shape.rank == result.rank]
    return [
        Factor(extent, dict.fromkeys(having, d), d)
        for d, extent in enumerate(result.dimensions)
        if d not in whole
    ]


def with_halos(result: Shape, operands: Sequence[Shape], moved: Collection[int]) -> list[Factor]:
    """Return a factor for each dimension; along some, devices need elements of their neighbors."""
    having = [n for n, shape in enumerate(operands) if shape.is_array and shape.rank == result.rank]
    return [
        Factor(extent, dict.fromkeys(having, d), d, kind="halo" if d in moved else "plain")
        for d, extent in enumerate(result.dimensions)
    ]


def same_extents(a: Shape, b: Shape) -> set[int]:
    """Return the dimensions of the same extent."""
    return {d for d, (m, n) in enumerate(zip(a.dimensions, b.dimensions, strict=True)) if m == n}
