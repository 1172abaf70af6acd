"""Programs over arrays of a few related sizes: rows, columns, values of rows, transposed arrays, shifts."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.evaluate.evaluator import Evaluator
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import Native, draw
from tests.related_programs import related_program

COUNT = 25
"""Programs of a test; of those with numbers of f32, the rounding errors of a few are as large as results."""
MOST_UNDECIDED = 3


@pytest.mark.parametrize("first", range(0, 6 * COUNT, COUNT))
def test_integers_are_exact(first: int) -> None:
    for seed in range(first, first + COUNT):
        module = parse(related_program("s32", seed))
        arguments = [draw(np.random.default_rng(seed), p.shape) for p in module.entry.parameters]
        agreement.same(Native(module)(*arguments), Evaluator().run(module.entry, arguments))


@pytest.mark.parametrize("first", range(0, 6 * COUNT, COUNT))
def test_floats_are_within_rounding_errors(first: int) -> None:
    undecided = 0
    for seed in range(first, first + COUNT):
        module = parse(related_program("f32", seed))
        arguments = [draw(np.random.default_rng(seed), p.shape) for p in module.entry.parameters]
        try:
            agreement.computed(Native(module)(*arguments), module, arguments)
        except agreement.Toothless:
            undecided += 1
    assert undecided <= MOST_UNDECIDED
