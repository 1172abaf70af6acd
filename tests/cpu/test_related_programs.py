"""Programs and loops over arrays of a few related sizes: rows, values of rows, transposed arrays, shifts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hloom.evaluate.evaluator import Evaluator
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import Native, draw
from tests.related_programs import related_loop, related_program

COUNT = 25
"""Programs of a test; of those with numbers of f32, the rounding errors of a few are as large as results."""
MOST_UNDECIDED = 3


@pytest.mark.parametrize("program", [related_program, related_loop])
@pytest.mark.parametrize("first", range(0, 4 * COUNT, COUNT))
def test_integers_are_exact(program: Callable[[str, int], str], first: int) -> None:
    for seed in range(first, first + COUNT):
        module = parse(program("s32", seed))
        arguments = [draw(np.random.default_rng(seed), p.shape) for p in module.entry.parameters]
        agreement.same(Native(module)(*arguments), Evaluator().run(module.entry, arguments))


@pytest.mark.parametrize("program", [related_program, related_loop])
@pytest.mark.parametrize("first", range(0, 4 * COUNT, COUNT))
def test_floats_are_within_rounding_errors(program: Callable[[str, int], str], first: int) -> None:
    undecided = 0
    for seed in range(first, first + COUNT):
        module = parse(program("f32", seed))
        arguments = [draw(np.random.default_rng(seed), p.shape) for p in module.entry.parameters]
        try:
            agreement.computed(Native(module)(*arguments), module, arguments)
        except agreement.Toothless:
            undecided += 1
    assert undecided <= MOST_UNDECIDED
