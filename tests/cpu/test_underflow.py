"""Products and quotients of exponentials: subnormal ones are rounded as others are, on every processor."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.codegen.elementwise.arithmetic import underflows
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import Native, draw
from tests.processors import PROCESSORS, runs_here

COUNT = 20_000
RESULTS = ", ".join([f"f32[{COUNT}]"] * 7)
PROGRAM = f"""
HloModule tails

ENTRY main {{
  x = f32[{COUNT}] parameter(0)
  y = f32[{COUNT}] parameter(1)
  e = f32[{COUNT}] exponential(x)
  l = f32[{COUNT}] logistic(x)
  one = f32[] constant(1)
  ones = f32[{COUNT}] broadcast(one), dimensions={{}}
  more = f32[{COUNT}] add(e, ones)
  p = f32[{COUNT}] multiply(e, y)
  q = f32[{COUNT}] multiply(y, l)
  r = f32[{COUNT}] divide(e, y)
  s = f32[{COUNT}] divide(y, more)
  ROOT t = ({RESULTS}) tuple(e, l, more, p, q, r, s)
}}"""


def factors() -> tuple[np.ndarray, np.ndarray]:
    """Return arguments of exponentials of all sizes, and factors of all magnitudes with special values."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-110, 110, COUNT).astype(np.float32)
    y = (rng.uniform(1, 2, COUNT) * 2.0 ** rng.integers(-149, 128, COUNT)).astype(np.float32)
    x[::7] = rng.uniform(-104, -86, x[::7].size)
    y[::5] = rng.uniform(-4, 4, y[::5].size)
    y[:COUNT:11] = draw(rng, f"f32[{y[::11].size}]")
    y[:6] = [np.inf, -np.inf, np.nan, 0, -0.0, 2.0**-149]
    x[:6] = -90
    return x, y


@pytest.mark.parametrize("name", PROCESSORS)
def test_results_are_rounded_once(name: str) -> None:
    if not runs_here(name):
        pytest.skip(f"this machine is no {name}")
    x, y = factors()
    e, logistic, more, *got = Native(parse(PROGRAM), PROCESSORS[name])(x, y)
    with np.errstate(all="ignore"):
        wanted = [e * y, y * logistic, e / y, y / more]
    assert (e < 2.0**-126).any() and (e == 0).any()
    for result, exact in zip(got, wanted, strict=True):
        assert ((np.abs(result) < 2.0**-126) & (result != 0)).any()
        agreement.same(result, exact)


def test_only_products_of_exponentials_are_often_subnormal() -> None:
    module = parse(PROGRAM)
    named = {i.name: i for i in module.entry.instructions}
    assert [n for n, i in named.items() if underflows(i)] == ["p", "q", "r", "s"]
    plain = parse(PROGRAM.replace("exponential", "tanh").replace("logistic", "sine"))
    assert not any(underflows(i) for i in plain.entry.instructions)
