"""Dynamic sizes in native code: what the evaluator gives for arrays of their actual sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom
from hloom.errors import EvaluationError
from hloom.evaluate.evaluator import Evaluator
from hloom.passes.expand.dynamic_form import HOST_TARGET, actual, enclosed, static_form
from hloom.passes.expand.dynamic_padder import static_module
from hloom.shape.shape import Shape
from tests import agreement
from tests.evaluation import parse
from tests.reducers import ADD, binary, comparison

MAXIMUM = binary("maximum", name="top")
COMPARE = comparison("LT", name="less")


REST = binary("subtract", name="rest")
TWO = (
    "less_of_two { a = f32[] parameter(0)\n b = f32[] parameter(1)\n c = s32[] parameter(2)\n"
    " d = s32[] parameter(3)\n ROOT e = pred[] compare(a, b), direction=LT }\n"
)


def module(body: str) -> str:
    return f"HloModule m\n{ADD}{MAXIMUM}{COMPARE}{REST}{TWO}ENTRY e {{\n{body}\n}}"


def check(body: str, *sizes: tuple[int, ...], native: bool = True) -> Any:
    """Run for f32 arguments of these sizes on both backends; by rules, not the host, unless told so."""
    text = module(body)
    rng = np.random.default_rng(0)
    given = [rng.normal(size=s).astype(np.float32) for s in sizes]
    got = hloom.compile(parse(text), backend="cpu")(*given)
    if native:
        agreement.computed(got, parse(text), given)
    else:  # the host runs the evaluator's operation, whatever the combiner
        agreement.same(got, Evaluator().run(parse(text).entry, given))
    by_host = [
        i for i in static_module(parse(text)).instructions()
        if getattr(i.operation, "custom_call_target", "") == HOST_TARGET
    ]  # fmt: skip
    assert bool(by_host) is not native
    return got


X = "x = f32[<=6,4] parameter(0)\n"


@pytest.mark.parametrize("n", [0, 1, 5, 6])
@pytest.mark.parametrize(
    "body",
    [
        "ROOT r = f32[<=6,4] add(x, x)",
        "ROOT r = f32[4,<=6] transpose(x), dimensions={1,0}",
        "z = f32[] constant(0)\nROOT r = f32[4] reduce(x, z), dimensions={0}, to_apply=add",
        "z = f32[] constant(-inf)\nROOT r = f32[] reduce(x, z), dimensions={0,1}, to_apply=top",
        "z = f32[] constant(7)\nROOT r = f32[<=6] reduce(x, z), dimensions={1}, to_apply=add",
        "ROOT r = f32[<=6,2] slice(x), slice={[0:6], [1:3]}",
        "z = f32[] constant(3)\nROOT r = f32[<=14,5] pad(x, z), padding=1_2_1x1_0",
        "ROOT r = f32[<=12,4] concatenate(x, x), dimensions={0}",
        "ROOT r = f32[<=6,8] concatenate(x, x), dimensions={1}",
        "ROOT r = f32[<=6,2,2] reshape(x)",
        "ROOT r = f32[2,<=6,4] broadcast(x), dimensions={1,2}",
        "ROOT r = s32[] get-dimension-size(x), dimensions={0}",
        "y = s32[<=6,4] bitcast-convert(x)\nROOT r = f32[<=6,4] bitcast-convert(y)",
        "ROOT r = f32[4,4] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
        "ROOT r = f32[<=6,<=6] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        "ROOT r = ((f32[<=6,4]), f32[<=6,4]) tuple(t, x)".replace("ROOT", "t = (f32[<=6,4]) tuple(x)\nROOT"),
        "n = s32[] constant(3)\nROOT r = f32[<=6,4] set-dimension-size(x, n), dimensions={0}",
        "n = s32[] constant(9)\nROOT r = f32[<=6,4] set-dimension-size(x, n), dimensions={0}",
        "n = s32[] constant(2)\nROOT r = f32[<=6,<=4] set-dimension-size(x, n), dimensions={1}",
        "ROOT r = f32[<=6,4] sort(x), dimensions={0}, to_apply=less",
        "ROOT r = f32[<=6,4] sort(x), dimensions={1}, to_apply=less",
        "y = s32[<=6,4] convert(x)\n"
        "ROOT r = (f32[<=6,4], s32[<=6,4]) sort(x, y), dimensions={0}, to_apply=less_of_two",
        "z = f32[] constant(7)\nROOT r = f32[4] reduce(x, z), dimensions={0}, to_apply=add",
        "z = f32[] constant(1)\nROOT r = f32[] reduce(x, z), dimensions={0,1}, to_apply=top",
        "ROOT r = f32[<=6,4] reverse(x), dimensions={0}",
        "ROOT r = f32[<=6,4] reverse(x), dimensions={1,0}",
        "ROOT r = f32[<=24] reshape(x)",
        "ROOT r = f32[<=12,2] reshape(x)",
        "ROOT r = f32[<=6,4,4] dot(x, x), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={}, "
        "rhs_contracting_dims={}",
        "c = s32[<=6,4] convert(x)\nt = f32[5,3] constant({{0,1,2},{3,4,5},{6,7,8},{9,10,11},{12,13,14}})\n"
        "ROOT r = f32[<=6,4,3] gather(t, c), offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=2, slice_sizes={1,3}",
        "y = f32[<=6,4,1] reshape(x)\nk = f32[2,1,3] constant({{{1,2,3}},{{4,5,6}}})\n"
        "ROOT r = f32[<=6,3,3] convolution(y, k), window={size=2}, dim_labels=b0f_0io->b0f",
    ],
)
def test_rules(body: str, n: int) -> None:
    check(X + body, (n, 4))


@pytest.mark.parametrize("n", [0, 3, 6])
@pytest.mark.parametrize(
    "body",
    [
        "z = f32[] constant(7)\nROOT r = f32[4] reduce(x, z), dimensions={0}, to_apply=rest",
        "o = s32[] constant(0)\nROOT r = f32[<=6,4] dynamic-slice(x, o, o), dynamic_slice_sizes={6,4}",
        "z = f32[] constant(0)\nROOT r = f32[<=6,4] reduce-window(x, z), window={size=3x1 pad=1_1x0_0}, "
        "to_apply=add",
    ],
)
def test_by_the_host(body: str, n: int) -> None:
    check(X + body, (n, 4), native=False)


def test_set_and_forgotten() -> None:
    body = """x = f32[8] parameter(0)
    n = s32[] constant(5)
    d = f32[<=8] set-dimension-size(x, n), dimensions={0}
    z = f32[] constant(0)
    s = f32[] reduce(d, z), dimensions={0}, to_apply=add
    full = s32[] constant(8)
    ROOT b = f32[8] set-dimension-size(d, full), dimensions={0}"""
    got = check(body, (8,))
    assert (got[5:] == 0).all()


def test_loops_and_branches_carry_sizes() -> None:
    text = f"""HloModule m
    {ADD}
    body {{ s = (s32[], f32[<=6]) parameter(0)
      n = s32[] get-tuple-element(s), index=0
      x = f32[<=6] get-tuple-element(s), index=1
      one = s32[] constant(1)
      m = s32[] add(n, one)
      k = s32[] get-dimension-size(x), dimensions={{0}}
      less = s32[] subtract(k, one)
      y = f32[<=6] set-dimension-size(x, less), dimensions={{0}}
      ROOT r = (s32[], f32[<=6]) tuple(m, y) }}
    condition {{ s = (s32[], f32[<=6]) parameter(0)
      n = s32[] get-tuple-element(s), index=0
      l = s32[] constant(2)
      ROOT c = pred[] compare(n, l), direction=LT }}
    double {{ x = f32[<=6] parameter(0)
      ROOT r = f32[<=6] add(x, x) }}
    same {{ ROOT x = f32[<=6] parameter(0) }}
    ENTRY e {{ x = f32[<=6] parameter(0)
      p = pred[] parameter(1)
      z = s32[] constant(0)
      t = (s32[], f32[<=6]) tuple(z, x)
      w = (s32[], f32[<=6]) while(t), condition=condition, body=body
      y = f32[<=6] get-tuple-element(w), index=1
      ROOT c = f32[<=6] conditional(p, y, y), true_computation=double, false_computation=same }}"""
    exe = hloom.compile(parse(text), backend="cpu")
    x = np.arange(5, dtype=np.float32)
    assert exe(x, np.True_).tolist() == [0, 2, 4]
    assert exe(x, np.False_).tolist() == [0, 1, 2]


def test_sizes_that_do_not_fit_together_are_refused() -> None:
    text = module("x = f32[<=6] parameter(0)\ny = f32[<=6] parameter(1)\nROOT r = f32[<=6] add(x, y)")
    exe = hloom.compile(parse(text), backend="cpu")
    assert exe(np.ones(3, np.float32), np.ones(3, np.float32)).tolist() == [2, 2, 2]
    with pytest.raises(EvaluationError) as caught:
        exe(np.ones(3, np.float32), np.ones(2, np.float32))
    assert caught.value.rule == "evaluate.actual-sizes"


def test_static_form_of_shapes_and_values() -> None:
    shape = Shape.parse("(f32[<=4,<=3], token[], s32[2])")
    assert str(static_form(shape).to_string(layout=False)) == "((f32[4,3], s32[], s32[]), token[], s32[2])"
    value = (np.ones((2, 1), np.float32), None, np.zeros(2, np.int32))
    enclosing: Any = enclosed(value, shape)
    (array, rows, columns), *_ = enclosing
    assert array.shape == (4, 3) and (rows, columns) == (2, 1)
    agreement.same(actual(enclosed(value, shape), shape), value)


STATIC_AS_DYNAMIC = """HloModule m
dynamic { a = f32[<=4] parameter(0) ROOT c = f32[<=4] copy(a) }
static { a = f32[4] parameter(0) ROOT c = f32[4] copy(a) }
less {
  p = (f32[<=4], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=1
  k = s32[] constant(2)
  ROOT r = pred[] compare(i, k), direction=LT
}
next {
  p = (f32[<=4], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=1
  k = s32[] constant(1)
  j = s32[] add(i, k)
  q = f32[4] constant({1, 2, 3, 4})
  ROOT r = (f32[<=4], s32[]) tuple(q, j)
}
ENTRY e {
  x = f32[4] parameter(0)
  n = s32[] parameter(1)
  p = pred[] parameter(2)
  d = f32[<=4] set-dimension-size(x, n), dimensions={0}
  zero = s32[] constant(0)
  BODY
}
"""


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize(
    "body",
    [
        "ROOT t = (f32[<=4], f32[4]) tuple(x, x)",
        "a = (f32[4]) tuple(x) ROOT t = f32[<=4] get-tuple-element(a), index=0",
        "b = (f32[<=4]) tuple(x) a = ((f32[<=4]), f32[<=4]) tuple(b, d)"
        " ROOT c = ((f32[<=4]), f32[<=4]) copy(a)",
        "ROOT c = f32[<=4] conditional(p, d, x), true_computation=dynamic, false_computation=static",
        "ROOT c = f32[<=4] conditional(p, x, x), true_computation=dynamic, false_computation=static",
        "a = f32[<=4] call(x), to_apply=dynamic ROOT s = s32[] get-dimension-size(a), dimensions={0}",
        "a = f32[<=4] call(x), to_apply=static b = f32[4] call(x), to_apply=static"
        " ROOT t = (f32[<=4], f32[4]) tuple(a, b)",
        "t = (f32[<=4], s32[]) tuple(d, zero) ROOT w = (f32[<=4], s32[]) while(t), condition=less, body=next",
        "t = (f32[4], s32[]) tuple(x, zero) ROOT w = (f32[<=4], s32[]) while(t), condition=less, body=next",
        "ROOT b = f32[<=4] opt-barrier(x)",
    ],
)
def test_static_arrays_are_passed_on_as_dynamic_ones(body: str, flag: bool) -> None:
    text = STATIC_AS_DYNAMIC.replace("BODY", body)
    module = parse(text)
    module.verify()
    arguments = [np.arange(4, dtype=np.float32), np.int32(2), np.bool_(flag)]
    expected = hloom.compile(module, backend="evaluator")(*arguments)
    actual_result = hloom.compile(module)(*arguments)
    for ours, theirs in zip(arrays_of(actual_result), arrays_of(expected), strict=True):
        agreement.equal(ours, theirs)


def arrays_of(value: Any) -> list[Any]:
    """The arrays in nested tuples."""
    return [leaf for part in value for leaf in arrays_of(part)] if isinstance(value, tuple) else [value]
