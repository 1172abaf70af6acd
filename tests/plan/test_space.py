"""Iteration spaces: merged loops and their constant iterations."""

from __future__ import annotations

import itertools

from hloom.ir.affine import linearize
from hloom.plan.space import merge_loops, split_space


def test_iterations_of_merged_loops_are_indices_within_each_dimension() -> None:
    sizes = (5, 2, 3)
    space = split_space(sizes, [])
    linear = linearize(space.indices, sizes)
    merged = merge_loops(space, [linear], [])
    (loop,) = merged.variables
    assert loop.trips == 30
    found = [tuple(i.constant for i in merged.at({loop: number})) for number in range(30)]
    assert found == list(itertools.product(*map(range, sizes)))


def test_other_loops_stay_variables() -> None:
    sizes = (5, 2, 3)
    space = split_space(sizes, [])
    outer = space.variables[0]
    merged = merge_loops(space, [linearize(space.indices, sizes)], [outer])
    assert [v.trips for v in merged.variables] == [5, 6]
    first, *rest = merged.at({merged.variables[1]: 4})
    assert first.terms == ((merged.variables[0], 1),)
    assert [i.constant for i in rest] == [1, 1]
    assert merged.indices[0].terms == ((merged.variables[0], 1),)
