"""Iteration spaces: the loops of a kernel, and the indices of its results in terms of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from hloom.ir.affine import Index, Variable, refine
from hloom.records import dataclass


@dataclass(frozen=True, slots=True)
class Space:
    """An iteration space.

    Attributes:
        variables: the loop variables, outermost first.
        indices: the index of each dimension of the results, affine in the variables.
        merged: for each loop, the variables merged into it, innermost first; empty without merging.
        separate: the indices before merging.
    """

    variables: tuple[Variable, ...]
    indices: tuple[Index, ...]
    merged: tuple[tuple[Variable, ...], ...] = ()
    separate: tuple[Index, ...] = ()

    def __str__(self) -> str:
        return " × ".join(str(v.trips) for v in self.variables) or "scalar"

    def at(self, iterations: Mapping[Variable, int]) -> tuple[Index, ...]:
        """Return the indices with constant iterations of some loops substituted."""
        numbers: dict[Variable, int] = {}
        parts = dict(zip(self.variables, self.merged, strict=False))
        for variable, iteration in iterations.items():
            outer = iteration
            for part in parts.get(variable, (variable,)):
                outer, numbers[part] = divmod(outer, part.extent)
        loops = set(self.variables) - set(iterations)
        return tuple(
            Index(
                index.constant + sum(c * numbers[v] for v, c in index.terms if v in numbers),
                ((v, c) for v, c in index.terms if v in loops),
            )
            for index in self.separate or self.indices
        )


def split_space(dimensions: Sequence[int], shapes: Sequence[Sequence[int]]) -> Space:
    """Return the iteration space of an array, dimensions split where reshapes to ``shapes`` require."""
    variables: list[Variable] = []
    indices: list[Index] = []
    for factors in refine(dimensions, shapes):
        index = Index(0)
        stride = math.prod(factors)
        for factor in factors:
            stride //= max(factor, 1)
            variable = Variable(factor)
            variables.append(variable)
            index = index + Index.of(variable) * stride
        indices.append(index)
    return Space(tuple(variables), tuple(indices))


def merge_loops(space: Space, accesses: Collection[Index], pinned: Collection[Variable]) -> Space:
    """Merge adjacent loops if every access advances across both by one stride.

    Args:
        space: the loops.
        accesses: the linear indices of all loads and stores.
        pinned: the variables used outside addresses; their loops are not merged.
    """
    coefficients = [dict(index.terms) for index in set(accesses)]
    loops: list[Variable] = []
    merged: dict[Variable, list[Variable]] = {}
    for variable in reversed(space.variables):
        if variable.extent == 1:
            continue
        if loops:
            inner = loops[-1]
            fits = (
                variable not in pinned
                and inner not in pinned
                and all(terms.get(variable, 0) == terms.get(inner, 0) * inner.trips for terms in coefficients)
            )
            if fits:
                inner.trips *= variable.extent
                merged[inner].append(variable)
                continue
        loops.append(variable)
        merged[variable] = [variable]
    indices = tuple(Index(i.constant, ((v, c) for v, c in i.terms if v in merged)) for i in space.indices)
    variables = tuple(reversed(loops))
    return Space(variables, indices, tuple(tuple(merged[v]) for v in variables), space.indices)
