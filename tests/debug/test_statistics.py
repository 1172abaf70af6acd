"""Values in few words: short arrays in full, statistics of others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hloom.debug.statistics import summary


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "token"),
        (np.int32(7), "7"),
        (np.arange(8), "[0, 1, 2, 3, 4, 5, 6, 7]"),
        (np.arange(8).reshape(2, 4), "[[0, 1, 2, 3], [4, 5, 6, 7]]"),
        (np.arange(9), "9 elements, min 0, max 8, mean 4"),
        ((np.float32(2), (None, np.zeros(0))), "(2., (token, []))"),
        (np.full(9, 3 + 4j), "9 elements, min 5, max 5, mean 5"),
        (np.array([math.nan, math.inf, *range(7)]), "9 elements, min 0, max 6, mean 3, 1 NaN, 1 inf"),
        (np.full(9, -math.inf), "9 elements, 9 inf"),
    ],
)
def test_values_in_few_words(value: Any, words: str) -> None:
    assert summary(value) == words
