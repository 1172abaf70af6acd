"""Gradients of attention: all products and row operations in one kernel, which stores no scores."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloom
from hloom.ir.instruction import HloInstruction
from hloom.passes.fusion import attention_gradient
from hloom.passes.fusion.attention_gradient import AttentionGradient
from hloom.passes.fusion.fusion import control_computations
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import Native, agree, arguments, compiled
from tests.processors import PROCESSORS, runs_here
from tests.reducers import binary

COMBINERS = binary("maximum", name="highest") + binary("add", name="sum")
ARRAYS = """
  q = {t}[{b},{rows},{h},{g},{d}] parameter(0)
  k = {t}[{b},{keys},{h},{d}] parameter(1)
  v = {t}[{b},{keys},{h},{e}] parameter(2)
  dy = {t}[{b},{rows},{h},{g},{e}] parameter(3)
"""
FORWARD = """
  products = {t}[{b},{h},{rows},{g},{keys}] dot(q, k), lhs_batch_dims={{0,2}}, lhs_contracting_dims={{4}},
    rhs_batch_dims={{0,2}}, rhs_contracting_dims={{3}}
  x = {t}[{w}] transpose(products), dimensions={{0,1,3,2,4}}
  wide = f32[{w}] convert(x)
  {mask}
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[{r}] reduce(masked, low), dimensions={{4}}, to_apply=highest
  tops = f32[{w}] broadcast(top), dimensions={{0,1,2,3}}
  shifted = f32[{w}] subtract(masked, tops)
  exponentials = f32[{w}] exponential(shifted)
  total = f32[{r}] reduce(exponentials, zero), dimensions={{4}}, to_apply=sum
  totals = f32[{w}] broadcast(total), dimensions={{0,1,2,3}}
  softmax = f32[{w}] divide(exponentials, totals)
  p = {t}[{w}] convert(softmax)
  o = {t}[{b},{h},{g},{rows},{e}] dot(p, v), lhs_batch_dims={{0,1}}, lhs_contracting_dims={{4}},
    rhs_batch_dims={{0,2}}, rhs_contracting_dims={{1}}
  y = {t}[{b},{rows},{h},{g},{e}] transpose(o), dimensions={{0,3,1,2,4}}
"""
BACKWARD = """
  dp = {t}[{b},{h},{rows},{g},{keys}] dot(dy, v), lhs_batch_dims={{0,2}}, lhs_contracting_dims={{4}},
    rhs_batch_dims={{0,2}}, rhs_contracting_dims={{3}}
  dpt = {t}[{w}] transpose(dp), dimensions={{0,1,3,2,4}}
  dpw = f32[{w}] convert(dpt)
  quotient = f32[{w}] divide(dpw, totals)
  one = f32[] constant(1)
  ones = f32[{r}] broadcast(one), dimensions={{}}
  square = f32[{r}] multiply(total, total)
  inverse = f32[{r}] divide(ones, square)
  inverses = f32[{w}] broadcast(inverse), dimensions={{0,1,2,3}}
  scaled = f32[{w}] multiply(dpw, inverses)
  terms = f32[{w}] multiply(scaled, exponentials)
  loss = f32[{r}] reduce(terms, zero), dimensions={{4}}, to_apply=sum
  minus = f32[{r}] negate(loss)
  losses = f32[{w}] broadcast(minus), dimensions={{0,1,2,3}}
  difference = f32[{w}] add(quotient, losses)
  dm = f32[{w}] multiply(difference, exponentials)
  {unmask}
  ds = {t}[{w}] convert(dx)
  dqt = {t}[{b},{h},{g},{rows},{d}] dot(ds, k), lhs_batch_dims={{0,1}}, lhs_contracting_dims={{4}},
    rhs_batch_dims={{0,2}}, rhs_contracting_dims={{1}}
  dq = {t}[{b},{rows},{h},{g},{d}] transpose(dqt), dimensions={{0,3,1,2,4}}
  dkt = {t}[{b},{h},{keys},{d}] dot(ds, q), lhs_batch_dims={{0,1}}, lhs_contracting_dims={{2,3}},
    rhs_batch_dims={{0,2}}, rhs_contracting_dims={{3,1}}
  dk = {t}[{b},{keys},{h},{d}] transpose(dkt), dimensions={{0,2,1,3}}
  dvt = {t}[{b},{h},{keys},{e}] dot(p, dy), lhs_batch_dims={{0,1}}, lhs_contracting_dims={{2,3}},
    rhs_batch_dims={{0,2}}, rhs_contracting_dims={{3,1}}
  dv = {t}[{b},{keys},{h},{e}] transpose(dvt), dimensions={{0,2,1,3}}
"""
ROOT = """
  ROOT all = ({t}[{b},{rows},{h},{g},{e}], {t}[{b},{rows},{h},{g},{d}], {t}[{b},{keys},{h},{d}],
    {t}[{b},{keys},{h},{e}]{more}) tuple(y, dq, dk, dv{weights})
"""
PLAIN = "masked = f32[{w}] add(wide, wide)", "dx = f32[{w}] add(dm, dm)"
_MASKED = """
  mask = pred[{w}] broadcast(before), dimensions={{3,4}}
  lowest = f32[] constant({low})
  others = f32[{w}] broadcast(lowest), dimensions={{}}
  masked = f32[{w}] select(mask, wide, others)
"""
_UNMASKED = """
  zeros = f32[{w}] broadcast(zero), dimensions={{}}
  dx = f32[{w}] select(mask, dm, zeros)
"""
CAUSAL = (
    """
  i = s32[{rows},{keys}] iota(), iota_dimension=0
  j = s32[{rows},{keys}] iota(), iota_dimension=1
  before = pred[{rows},{keys}] compare(i, j), direction=GE
"""
    + _MASKED,
    _UNMASKED,
)
GIVEN = "before = pred[{rows},{keys}] parameter(4)" + _MASKED, _UNMASKED
BIASED = (
    """
  bias = f32[{h},{rows},{keys}] parameter(4)
  biases = f32[{w}] broadcast(bias), dimensions={{1,3,4}}
  capped = f32[{w}] tanh(wide)
  masked = f32[{w}] add(capped, biases)
""",
    """
  slope = f32[{w}] multiply(capped, capped)
  every = f32[{w}] broadcast(one), dimensions={{}}
  rest = f32[{w}] subtract(every, slope)
  dx = f32[{w}] multiply(dm, rest)
""",
)


@pytest.fixture(autouse=True)
def small_gradients_are_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_gradient, "LEAST_BYTES", 0)


def sizes(**given: Any) -> dict[str, Any]:
    """Return the sizes of a program: batches, heads in groups, rows, keys, depth of queries and of values."""
    size = {"t": "f32", "b": 1, "h": 2, "g": 2, "d": 8, "e": 8, "rows": 20, "keys": 20, "low": "-1e9"}
    size |= {"more": "", "weights": ""} | given
    size["r"] = ",".join(str(size[name]) for name in ("b", "h", "g", "rows"))
    return size | {"w": f"{size['r']},{size['keys']}"}


def text(mask: tuple[str, str] = PLAIN, **given: Any) -> str:
    """Return a program that computes attention, and its gradient."""
    parts = ARRAYS + FORWARD.replace("{mask}", mask[0]) + BACKWARD.replace("{unmask}", mask[1]) + ROOT
    return f"HloModule attention\n{COMBINERS}ENTRY main {{{parts.format(**sizes(**given))}}}\n"


def has_gradient(program: str, **given: Any) -> bool:
    """Return whether the optimized program has a gradient's kernel, and stores no floats for all weights."""
    size = sizes(**given)
    weights = math.prod(size[name] for name in ("b", "h", "g", "rows", "keys"))
    matrix = Counter((size["rows"], size["keys"]))
    steps = [i for c in control_computations(compiled(program).optimized) for i in c.instructions]
    arrays = [a for i in steps if i.opcode != "parameter" for _, a in i.shape.leaves() if a.is_array]
    floats = [a for a in arrays if a.element_type.is_floating and a.element_count >= weights]
    stored = any(matrix <= Counter(a.dimensions) for a in floats)
    return any(map(is_gradient, steps)) and not stored


def is_gradient(i: HloInstruction) -> bool:
    """Return whether an instruction is a fusion of products with several results."""
    return (
        i.shape.is_tuple and any(x.opcode == "dot" for x in i.called_instructions()) and i.opcode == "fusion"
    )


@pytest.mark.parametrize("mask", [PLAIN, CAUSAL, GIVEN, BIASED], ids=["plain", "causal", "given", "biased"])
@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("groups", [1, 3])
def test_a_gradient_is_one_kernel(mask: tuple[str, str], kind: str, groups: int) -> None:
    size = {"t": kind, "g": groups, "rows": 75, "keys": 70}
    program = text(mask, **size)
    assert has_gradient(program, **size)
    agree(program, *arguments(np.random.default_rng(0), program), rounded=True)


@given(
    st.integers(1, 2),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([1, 7, 16, 33, 64, 129]),
    st.sampled_from([1, 7, 16, 40, 129]),
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from([PLAIN, CAUSAL]),
)
def test_any_sizes(
    b: int, h: int, g: int, rows: int, keys: int, d: int, e: int, mask: tuple[str, str]
) -> None:
    program = text(mask, b=b, h=h, g=g, rows=rows, keys=keys, d=d, e=e)
    # Where one key has all the weight, the gradient of scores is zero but for rounding.
    with contextlib.suppress(agreement.Toothless):
        agree(program, *arguments(np.random.default_rng(rows), program), rounded=True)


@pytest.mark.parametrize(
    ("heads", "rows", "keys", "depth", "width"),
    [(13, 150, 140, 8, 8), (1, 512, 300, 16, 40), (2, 129, 1100, 64, 8), (12, 128, 128, 9, 17)],
)
def test_blocks_and_parts_of_rows(heads: int, rows: int, keys: int, depth: int, width: int) -> None:
    size = {"h": heads, "g": 1, "rows": rows, "keys": keys, "d": depth, "e": width}
    program = text(CAUSAL, **size)
    assert has_gradient(program, **size)
    agree(program, *arguments(np.random.default_rng(0), program), rounded=True)


def test_threads_change_no_bit() -> None:
    module = parse(text(CAUSAL, t="f32", h=5, g=2, rows=200, keys=150))
    values = arguments(np.random.default_rng(0), module.to_text())
    one, several = Native(module)(*values), hloom.compile(module)(*values)
    agreement.same(one, several)


@pytest.mark.parametrize("low", ["-inf", "-1e9"])
def test_rows_without_any_key_are_what_softmax_makes_of_them(low: str) -> None:
    program = text(GIVEN, rows=40, keys=24, low=low)
    q, k, v, dy, mask = arguments(np.random.default_rng(0), program)
    mask[:] = True
    mask[7] = False
    assert has_gradient(program, rows=40, keys=24)
    y, dq, dk, dv = agree(program, q, k, v, dy, mask, rounded=True)
    undefined = low == "-inf"
    assert np.isnan(y[0, 7]).all() == np.isnan(dv).all() == undefined
    assert np.isfinite(dq).all()
    assert np.isfinite(dk).all()


def test_infinite_and_undefined_numbers_reach_what_reads_them() -> None:
    program = text(CAUSAL, g=1, rows=40, keys=40, low="-inf")
    q, k, v, dy = arguments(np.random.default_rng(0), program)
    q[0, 25, 0, 0, 0] = np.nan
    dy[0, 30, 1, 0, 3] = np.inf
    y, dq, dk, dv = agree(program, q, k, v, dy, rounded=True)
    others = np.arange(40) != 25
    assert np.isnan(y[0, 25, 0]).all()
    assert np.isfinite(y[0, others]).all()
    assert np.isnan(dq[0, 25, 0]).all()
    assert np.isfinite(dq[0, others, 0]).all()
    assert np.isnan(dk[0, :26, 0]).all()
    assert np.isnan(dk[0, :, 0, 0]).all()
    assert np.isfinite(dk[0, 26:, 0, 1:]).all()
    assert np.isposinf(dv[0, :31, 1, 3]).all()
    assert np.isnan(dv[0, 31:, 1, 3]).all()


def test_weights_that_are_a_result_are_stored() -> None:
    size = sizes()
    program = text(more=", f32[{w}]".format(**size), weights=", p")
    assert not has_gradient(program)
    agree(program, *arguments(np.random.default_rng(0), program), rounded=True)


@pytest.mark.parametrize("program", [text(CAUSAL), text(GIVEN, t="bf16", g=1)])
def test_without_a_kernel_the_program_stays_as_it_is(program: str) -> None:
    module = parse(program)
    before = module.to_text()
    assert not AttentionGradient(lambda _: False).run(module)
    assert module.to_text() == before


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_lesser_processors(name: str, kind: str) -> None:
    if not runs_here(name):
        pytest.skip(f"this machine is no {name}")
    module = parse(text(CAUSAL, t=kind, g=3, rows=70, keys=75, d=20, e=24))
    values = arguments(np.random.default_rng(0), module.to_text())
    agreement.computed(Native(module, PROCESSORS[name])(*values), module, values)


FORWARD_LOOP = """
more_layers {{ s = (s32[], {x}, {xs}, {ws}, {ws}, {rs}, {weights}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({n})
  ROOT less = pred[] compare(i, n), direction=LT
}}
layer {{
  s = (s32[], {x}, {xs}, {ws}, {ws}, {rs}, {weights}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  nil = s32[] constant(0)
  x = {x} get-tuple-element(s), index=1
  stack = {xs} get-tuple-element(s), index=2
  xrow = f32[1,{rows},{d}] reshape(x)
  stack2 = {xs} dynamic-update-slice(stack, xrow, i, nil, nil)
  scores = f32[{rows},{rows}] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[{rows}] reduce(scores, low), dimensions={{1}}, to_apply=highest
  tops = f32[{rows},{rows}] broadcast(top), dimensions={{0}}
  shifted = f32[{rows},{rows}] subtract(scores, tops)
  e = f32[{rows},{rows}] exponential(shifted)
  total = f32[{rows}] reduce(e, zero), dimensions={{1}}, to_apply=sum
  totals = f32[{rows},{rows}] broadcast(total), dimensions={{0}}
  p = f32[{rows},{rows}] divide(e, totals)
  y = {x} dot(p, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  es = {ws} get-tuple-element(s), index=3
  erow = f32[1,{rows},{rows}] reshape(e)
  es2 = {ws} dynamic-update-slice(es, erow, i, nil, nil)
  ps = {ws} get-tuple-element(s), index=4
  prow = f32[1,{rows},{rows}] reshape(p)
  ps2 = {ws} dynamic-update-slice(ps, prow, i, nil, nil)
  ts = {rs} get-tuple-element(s), index=5
  trow = f32[1,{rows}] reshape(total)
  ts2 = {rs} dynamic-update-slice(ts, trow, i, nil)
  w = {weights} get-tuple-element(s), index=6
  ROOT t = (s32[], {x}, {xs}, {ws}, {ws}, {rs}, {weights}) tuple(next, y, stack2, es2, ps2, ts2, w)
}}
"""
BACKWARD_LOOP = """
more_gradients {{ s = (s32[], {x}, {xs}, {ws}, {ws}, {rs}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({n})
  ROOT less = pred[] compare(i, n), direction=LT
}}
gradient {{
  s = (s32[], {x}, {xs}, {ws}, {ws}, {rs}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  nil = s32[] constant(0)
  last = s32[] constant({last})
  j = s32[] subtract(last, i)
  dy = {x} get-tuple-element(s), index=1
  stack = {xs} get-tuple-element(s), index=2
  es = {ws} get-tuple-element(s), index=3
  ps = {ws} get-tuple-element(s), index=4
  ts = {rs} get-tuple-element(s), index=5
  xrow = f32[1,{rows},{d}] dynamic-slice(stack, j, nil, nil), dynamic_slice_sizes={{1,{rows},{d}}}
  x = {x} reshape(xrow)
  erow = f32[1,{rows},{rows}] dynamic-slice(es, j, nil, nil), dynamic_slice_sizes={{1,{rows},{rows}}}
  e = f32[{rows},{rows}] reshape(erow)
  prow = f32[1,{rows},{rows}] dynamic-slice(ps, j, nil, nil), dynamic_slice_sizes={{1,{rows},{rows}}}
  p = f32[{rows},{rows}] reshape(prow)
  trow = f32[1,{rows}] dynamic-slice(ts, j, nil), dynamic_slice_sizes={{1,{rows}}}
  total = f32[{rows}] reshape(trow)
  totals = f32[{rows},{rows}] broadcast(total), dimensions={{0}}
  dp = f32[{rows},{rows}] dot(dy, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  zero = f32[] constant(0)
  terms = f32[{rows},{rows}] multiply(dp, p)
  loss = f32[{rows}] reduce(terms, zero), dimensions={{1}}, to_apply=sum
  losses = f32[{rows},{rows}] broadcast(loss), dimensions={{0}}
  difference = f32[{rows},{rows}] subtract(dp, losses)
  slope = f32[{rows},{rows}] divide(e, totals)
  ds = f32[{rows},{rows}] multiply(difference, slope)
  dq = {x} dot(ds, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  dk = {x} dot(ds, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  dv = {x} dot(p, dy), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  both = {x} add(dq, dk)
  dx = {x} add(both, dv)
  ROOT t = (s32[], {x}, {xs}, {ws}, {ws}, {rs}) tuple(next, dx, stack, es, ps, ts)
}}
ENTRY main {{
  x = {x} parameter(0)
  w = {weights} parameter(1)
  nil = s32[] constant(0)
  zero = f32[] constant(0)
  xs = {xs} broadcast(zero), dimensions={{}}
  ws = {ws} broadcast(zero), dimensions={{}}
  rs = {rs} broadcast(zero), dimensions={{}}
  start = (s32[], {x}, {xs}, {ws}, {ws}, {rs}, {weights}) tuple(nil, x, xs, ws, ws, rs, w)
  f = (s32[], {x}, {xs}, {ws}, {ws}, {rs}, {weights}) while(start), condition=more_layers, body=layer
  y = {x} get-tuple-element(f), index=1
  xs2 = {xs} get-tuple-element(f), index=2
  es = {ws} get-tuple-element(f), index=3
  ps = {ws} get-tuple-element(f), index=4
  ts = {rs} get-tuple-element(f), index=5
  again = (s32[], {x}, {xs}, {ws}, {ws}, {rs}) tuple(nil, y, xs2, es, ps, ts)
  g = (s32[], {x}, {xs}, {ws}, {ws}, {rs}) while(again), condition=more_gradients, body=gradient
  dx = {x} get-tuple-element(g), index=1
  ROOT r = ({x}, {x}{more}) tuple(y, dx{result})
}}
"""


def layers(rows: int, *, more: str = "", result: str = "") -> str:
    """Return a program of three layers, whose gradients a second loop computes from rows of the first one."""
    n, d = 3, 16
    size = {
        "rows": rows,
        "d": d,
        "n": n,
        "last": n - 1,
        "x": f"f32[{rows},{d}]",
        "xs": f"f32[{n},{rows},{d}]",
    }
    size |= {"ws": f"f32[{n},{rows},{rows}]", "rs": f"f32[{n},{rows}]", "weights": "f32[2]"}
    size |= {"more": more.format(**size), "result": result}
    return f"HloModule layers\n{COMBINERS}{(FORWARD_LOOP + BACKWARD_LOOP).format(**size)}\n"


@pytest.mark.parametrize("rows", [40, 129])
def test_loops_store_no_weights(rows: int) -> None:
    program = layers(rows)
    assert has_gradient(program, b=1, h=1, g=1, rows=rows, keys=rows)
    x, w = arguments(np.random.default_rng(0), program)
    agree(program, x / 4, w, rounded=True)


def test_stacks_in_opposite_orders_do_not_share_rows() -> None:
    """Row j of the weights belongs to the layer whose activations are row n - 1 - j of theirs."""
    program = (
        layers(40)
        .replace("stack2 = ", "top_row = s32[] constant(2)\n  back = s32[] subtract(top_row, i)\n  stack2 = ")
        .replace("(stack, xrow, i, nil, nil)", "(stack, xrow, back, nil, nil)")
        .replace("dynamic-slice(stack, j, nil, nil)", "dynamic-slice(stack, i, nil, nil)")
    )
    assert not has_gradient(program, b=1, h=1, g=1, rows=40, keys=40)
    x, w = arguments(np.random.default_rng(0), program)
    agree(program, x / 4, w, rounded=True)


def test_weights_of_all_layers_that_are_a_result_are_stored() -> None:
    program = layers(40, more=", {ws}", result=", es")
    assert not has_gradient(program, b=1, h=1, g=1, rows=40, keys=40)
    assert any(
        "[3,40,40]" in str(i.shape) for i in compiled(program).optimized.instructions() if i.opcode == "while"
    )
    x, w = arguments(np.random.default_rng(0), program)
    agree(program, x / 4, w, rounded=True)


def test_without_a_kernel_loops_stay_as_they_are() -> None:
    module = parse(layers(40))
    before = module.to_text()
    assert not AttentionGradient(lambda _: False).run(module)
    assert module.to_text() == before
