"""Attention: products with row operations between them, by blocks of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloom.cpu.kernels.attention import attention_plan
from hloom.evaluate.evaluator import Evaluator
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import Native, agree, arguments, compiled
from tests.processors import PROCESSORS, runs_here
from tests.reducers import binary

COMBINERS = binary("maximum", name="highest") + binary("add", name="sum")
GROUPS = """
  q = {t}[{b},{rows},{h},{g},{d}] parameter(0)
  k = {t}[{b},{keys},{h},{d}] parameter(1)
  v = {t}[{b},{keys},{h},{e}] parameter(2)
  products = {t}[{b},{h},{keys},{rows},{g}] dot(k, q), lhs_batch_dims={{0,2}}, lhs_contracting_dims={{3}},
    rhs_batch_dims={{0,2}}, rhs_contracting_dims={{4}}
  x = {t}[{b},{h},{g},{rows},{keys}] transpose(products), dimensions={{0,1,4,3,2}}
"""
HEADS = """
  q = {t}[{b},{rows},{h},{d}] parameter(0)
  k = {t}[{b},{keys},{h},{d}] parameter(1)
  v = {t}[{b},{keys},{h},{e}] parameter(2)
  x = {t}[{b},{h},{rows},{keys}] dot(q, k), lhs_batch_dims={{0,2}}, lhs_contracting_dims={{3}},
    rhs_batch_dims={{0,2}}, rhs_contracting_dims={{3}}
"""
SOFTMAX = """
  wide = f32[{scores}] convert(x)
  {mask}
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[{sums}] reduce(masked, low), dimensions={{{last}}}, to_apply=highest
  tops = f32[{scores}] broadcast(top), dimensions={{{all}}}
  shifted = f32[{scores}] subtract(masked, tops)
  e = f32[{scores}] exponential(shifted)
  total = f32[{sums}] reduce(e, zero), dimensions={{{last}}}, to_apply=sum
  totals = f32[{scores}] broadcast(total), dimensions={{{all}}}
  softmax = f32[{scores}] divide(e, totals)
  p = {t}[{scores}] convert(softmax)
"""
SUMS_OF_GROUPS = """
  o = {t}[{b},{h},{e},{g},{rows}] dot(v, p), lhs_batch_dims={{0,2}}, lhs_contracting_dims={{1}},
    rhs_batch_dims={{0,1}}, rhs_contracting_dims={{4}}
  y = {t}[{b},{rows},{h},{g},{e}] transpose(o), dimensions={{0,4,1,3,2}}
  ROOT r = {t}[{b},{rows},{width}] reshape(y)
"""
SUMS_OF_HEADS = """
  o = {t}[{b},{h},{e},{rows}] dot(v, p), lhs_batch_dims={{0,2}}, lhs_contracting_dims={{1}},
    rhs_batch_dims={{0,1}}, rhs_contracting_dims={{3}}
  y = {t}[{b},{rows},{h},{e}] transpose(o), dimensions={{0,3,1,2}}
  ROOT r = {t}[{b},{rows},{width}] reshape(y)
"""
PLAIN = "masked = f32[{scores}] add(wide, wide)"
CAUSAL = """
  i = s32[{rows},{keys}] iota(), iota_dimension=0
  j = s32[{rows},{keys}] iota(), iota_dimension=1
  before = pred[{rows},{keys}] compare(i, j), direction=GE
  mask = pred[{scores}] broadcast(before), dimensions={{{matrix}}}
  lowest = f32[] constant({low})
  others = f32[{scores}] broadcast(lowest), dimensions={{}}
  masked = f32[{scores}] select(mask, wide, others)
"""
GIVEN = CAUSAL.replace("compare(i, j), direction=GE", "parameter(3)")
BIASED = """
  bias = f32[{h},{rows},{keys}] parameter(3)
  biases = f32[{scores}] broadcast(bias), dimensions={{1,{matrix}}}
  capped = f32[{scores}] tanh(wide)
  masked = f32[{scores}] add(capped, biases)
"""


def text(mask: str = PLAIN, **sizes: Any) -> str:
    """Return a program of batches ``b``, heads ``h`` in groups of ``g``, of depth ``d`` and width ``e``.

    ``g`` = 0: the heads have keys and values of their own.
    """
    size = {"t": "f32", "b": 1, "h": 2, "g": 0, "d": 8, "e": 8, "rows": 20, "keys": 20, "low": "-1e9"} | sizes
    size["width"] = size["h"] * max(size["g"], 1) * size["e"]
    parts = [GROUPS, SOFTMAX, SUMS_OF_GROUPS] if size["g"] else [HEADS, SOFTMAX, SUMS_OF_HEADS]
    rows = [size[name] for name in ("b", "h", "g", "rows") if name != "g" or size["g"]]
    last = len(rows)
    size["sums"], size["scores"] = (",".join(map(str, some)) for some in (rows, [*rows, size["keys"]]))
    size["all"], size["last"], size["matrix"] = ",".join(map(str, range(last))), last, f"{last - 1},{last}"
    parts[1] = parts[1].replace("{mask}", mask)
    return f"HloModule attention\n{COMBINERS}ENTRY main {{{''.join(parts).format(**size)}}}\n"


def fuses(program: str) -> bool:
    """Return whether the optimized program is one kernel."""
    code = [i for i in compiled(program).optimized.entry.instructions if i.opcode != "parameter"]
    return [i.opcode for i in code] == ["fusion"]


@pytest.mark.parametrize("mask", [PLAIN, CAUSAL, GIVEN, BIASED])
@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "f16"])
@pytest.mark.parametrize("groups", [0, 3])
def test_attention_is_one_kernel(mask: str, kind: str, groups: int) -> None:
    program = text(mask, t=kind, g=groups, rows=33, keys=41)
    assert fuses(program)
    agree(program, *arguments(np.random.default_rng(0), program), rounded=True)


@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(1, 70),
    st.integers(1, 70),
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from([PLAIN, CAUSAL]),
)
def test_any_sizes(b: int, h: int, g: int, rows: int, keys: int, d: int, e: int, mask: str) -> None:
    program = text(mask, b=b, h=h, g=g, rows=rows, keys=keys, d=d, e=e)
    agree(program, *arguments(np.random.default_rng(rows), program), rounded=True)


@pytest.mark.parametrize(
    ("rows", "keys", "depth", "width"),
    [
        (300, 270, 64, 64),
        (129, 1100, 80, 40),
        (16, 16, 256, 2),
        (130, 300, 2, 33),
    ],
)
def test_several_blocks_of_rows(rows: int, keys: int, depth: int, width: int) -> None:
    program = text(CAUSAL, h=5, rows=rows, keys=keys, d=depth, e=width)
    assert fuses(program)
    agree(program, *arguments(np.random.default_rng(0), program), rounded=True)


def test_long_rows_of_scores_are_stored() -> None:
    longest = attention_plan.BLOCK_BYTES // attention_plan.LEAST_BLOCK // 4 - 16
    assert fuses(text(rows=16, keys=longest))
    assert not fuses(text(rows=16, keys=longest + 1))


def test_rows_without_any_key_are_what_softmax_makes_of_them() -> None:
    for low in ("-inf", "-1e9"):
        program = text(GIVEN, rows=40, keys=24, low=low)
        q, k, v, mask = arguments(np.random.default_rng(0), program)
        mask[7] = False
        mask[31] = True
        assert fuses(program)
        result = agree(program, q, k, v, mask, rounded=True)
        assert np.isnan(result[0, 7]).all() == (low == "-inf")
        assert np.isfinite(result[0, 31]).all()


def test_infinite_and_undefined_keys_reach_the_rows_that_read_them() -> None:
    program = text(CAUSAL, rows=40, keys=40, low="-inf")
    q, k, v = arguments(np.random.default_rng(0), program)
    k[0, 25, 0, 0] = np.nan
    v[0, 30, 1, 3] = np.inf
    result = agree(program, q, k, v, rounded=True)
    columns = np.arange(16) != 11
    assert np.isfinite(result[0, :25, columns]).all()
    assert np.isnan(result[0, :30, 11]).all()
    assert np.isposinf(result[0, 30:, 11]).all()
    assert np.isnan(result[0, 25:, :8]).all()


def test_weights_that_others_read_are_stored() -> None:
    program = (
        text()
        .replace("ROOT r = ", "r = ")
        .replace("reshape(y)\n", "reshape(y)\n  ROOT both = (f32[1,20,16], f32[1,2,20,20]) tuple(r, p)\n")
    )
    agree(program, *arguments(np.random.default_rng(0), program), rounded=True)


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
def test_lesser_processors(name: str, kind: str) -> None:
    if not runs_here(name):
        pytest.skip(f"this machine is no {name}")
    module = parse(text(CAUSAL, t=kind, g=3, rows=70, keys=75, d=20, e=24))
    values = arguments(np.random.default_rng(0), module.to_text())
    got = Native(module, PROCESSORS[name])(*values)
    agreement.computed(got, module, values)
    agreement.computed(Evaluator().run(module.entry, values), module, values)


def wide_arguments(program: str, factor: float) -> list[Any]:
    """Return queries and keys whose scores are exact and have a range of 128, and values times a factor."""
    queries, keys, values = arguments(np.random.default_rng(4), program)
    queries[...] = np.random.default_rng(5).integers(-8, 9, queries.shape)
    place = np.arange(keys.shape[1])
    keys[...] = 0
    keys[:, place, :, place % keys.shape[3]] = 4
    wide = np.clip(values.astype(np.float32), -4, 4) * np.float32(factor)
    return [queries, keys, wide.astype(values.dtype)]


@pytest.mark.parametrize("factor", [1.0, 1e-30, 1e35])
@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("keys", [70, 160])
def test_weights_that_are_subnormal(keys: int, kind: str, factor: float) -> None:
    """The least weights of scores with a wide range are subnormal; values may be too large to bound sums.

    Weights of bf16 are rounded to 8 bits, and so is the result; those of f32 have errors of some ulp.
    """
    program = text(t=kind, rows=50, keys=keys, d=32, e=64)
    queries, part, values = wide_arguments(program, factor)
    entry = parse(program).entry
    got, wanted = compiled(program)(queries, part, values), Evaluator().run(entry, [queries, part, values])
    sizes = Evaluator().run(entry, [queries, part, np.abs(values)])  # sums of magnitudes
    agreement.within(got, wanted, np.asarray(sizes, np.float64) * 2.0 ** (-7 if kind == "bf16" else -18))


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4"])
def test_enlarged_weights_have_the_same_bits(name: str) -> None:
    if not runs_here(name):
        pytest.skip(f"this machine is no {name}")
    program = text(rows=50, keys=70, d=32, e=64)
    target, given = PROCESSORS[name], wide_arguments(program, 1.0)
    enlarged, plain = (
        Native(parse(program), machine)(*given)
        for machine in (target, replace(target, model="vendor_id=AuthenticAMD"))
    )
    agreement.same(enlarged, plain)
