"""Loops over more memory than the caches keep, which store past them where the results begin with a line."""

from __future__ import annotations

import numpy as np
import pytest

import hloom
from tests.agreement import same
from tests.evaluation import parse
from tests.native_runs import Native

COUNT = 10_000_003
"""Elements, no multiple of the lanes."""
PROGRAM = f"""
x = f32[{COUNT}] parameter(0)
y = f32[{COUNT}] parameter(1)
a = f32[{COUNT}] add(x, y)
b = f16[{COUNT}] convert(x)
ROOT r = tuple(a, b)"""


@pytest.mark.parametrize("are_lines", [True, False])
def test_results_that_begin_with_a_line_and_others(are_lines: bool) -> None:
    module = parse(PROGRAM)
    x, y = np.random.default_rng(0).normal(size=(2, COUNT)).astype(np.float32)
    # the results of `Native` are 16 bytes behind the beginning of a page
    total, narrow = (hloom.compile(module) if are_lines else Native(module))(x, y)
    same(total, x + y)
    same(narrow, x.astype(np.float16))
