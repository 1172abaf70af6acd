"""The errors of vector math stay below the bounds of `docs/vector-math.md`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks import vector_math, vector_math_errors

PAGE = (Path(__file__).parents[2] / "docs" / "vector-math.md").read_text()
BOUNDS = {
    name: (float(single), float(double))
    for name, single, double in re.findall(r"^\| ([\w-]+) \| ([\d.]+) \| ([\d.]+) \|", PAGE, re.M)
}
COUNT = 20_000

extended = pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no extended precision")


@extended
@pytest.mark.parametrize("function", vector_math.FUNCTIONS, ids=lambda f: f.name)
def test_errors_stay_below_the_table(function: vector_math.Function) -> None:
    single, double = BOUNDS[function.name]
    assert vector_math.error_of_singles(function, COUNT, seed=1) <= single
    assert vector_math.error_of_doubles(function, COUNT, seed=1) <= double


@extended
def test_the_table_is_no_looser_than_its_margin() -> None:
    """A search as small as this one comes within a half of the table's bounds."""
    function = next(f for f in vector_math.FUNCTIONS if f.name == "asin")
    assert vector_math.error_of_doubles(function, COUNT) > BOUNDS["asin"][1] / 1.5


def test_a_wrong_result_is_an_error_of_its_distance() -> None:
    given = [np.linspace(1, 2, 100, endpoint=False)]
    two_off = vector_math_errors.errors(lambda x: x + 2 * np.spacing(x), lambda x: x, given)
    assert two_off.tolist() == [2.0] * 100


@extended
def test_the_reference_of_erf_is_exact_to_a_fiftieth() -> None:
    mpmath = pytest.importorskip("mpmath")
    x = np.concatenate([np.linspace(-6.4, 6.4, 301), [1e-9, 0.3, 5.9]])
    found = vector_math_errors.erf(x.astype(np.longdouble))
    for one, wide in zip(x, found, strict=True):
        high = float(wide)
        low = float(wide - np.longdouble(high))
        with mpmath.workprec(100):
            off = abs(mpmath.mpf(high) + mpmath.mpf(low) - mpmath.erf(mpmath.mpf(float(one))))
        assert off <= 0.02 * np.spacing(abs(high))
