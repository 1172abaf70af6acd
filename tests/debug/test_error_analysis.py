"""Bounds of results whose operands have errors: one row for each operation, computed by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hloom.debug.error_analysis import ErrorAnalysis
from hloom.debug.tolerance import analysed
from hloom.error_bounds.bounded import Bounded
from hloom.errors import NoBound
from hloom.ir.module import HloModule
from tests.evaluation import parse
from tests.reducers import binary

INF = math.inf
COMBINERS = (
    binary("add", name="add")
    + binary("multiply", name="times")
    + binary("maximum", name="most")
    + binary("minimum", name="least")
    + binary("add", "s32", name="count")
    + binary("multiply", "s32", name="counted")
    + binary("and", "pred", name="every")
    + """
both {
  a = f32[] parameter(0)  b = f32[] parameter(1)  c = f32[] parameter(2)  d = f32[] parameter(3)
  s = f32[] add(a, c)  t = f32[] add(b, d)  ROOT r = (f32[], f32[]) tuple(s, t)
}
apart {
  a = f32[] parameter(0)  b = f32[] parameter(1)  c = f32[] parameter(2)  d = f32[] parameter(3)
  s = f32[] add(c, a)  m = f32[] maximum(b, d)  ROOT r = (f32[], f32[]) tuple(s, m)
}
summed { a = f32[] parameter(0)  b = f32[2] broadcast(a), dimensions={}
  ROOT r = f32[] reduce(b, a), dimensions={0}, to_apply=add }
"""
)


def known(value: Any, error: Any, kind: str) -> Bounded:
    """Return an array with errors; exact if they are 0."""
    array: Any = np.asarray(value, {"pred": bool, "c64": np.complex64}.get(kind) or _dtype(kind))
    spread = np.broadcast_to(np.asarray(error, np.float64), array.shape)
    return Bounded(array, spread if spread.any() else None)


def _dtype(kind: str) -> Any:
    return {
        "f32": np.float32,
        "f64": np.float64,
        "s32": np.int32,
        "s64": np.int64,
        "s8": np.int8,
        "u8": np.uint8,
    }[kind]


def bound(operation: str, result: str, *operands: tuple[str, Any, Any]) -> Any:
    """Return the errors of one operation of operands (shape, value, errors), named p0, p1, …"""
    parameters = "\n".join(f"p{n} = {shape} parameter({n})" for n, (shape, _, _) in enumerate(operands))
    module = parse(
        f"HloModule m\n{COMBINERS}\nENTRY e {{\n{parameters}\n"
        f"after = token[] after-all()\nROOT found = {result} {operation}\n}}"
    )
    given = [known(value, error, shape.partition("[")[0]) for shape, value, error in operands]
    analysis = ErrorAnalysis(module)
    alone = analysis.evaluator.alone
    assert alone is not None
    with np.errstate(all="ignore"):
        found = alone.run(lambda _: analysis.call(module.entry, given))[0]
    return tuple(f.spread.tolist() for f in found) if isinstance(found, tuple) else found.spread.tolist()


def numbers(kind: str, *pairs: tuple[Any, Any]) -> list[tuple[str, Any, Any]]:
    """Return scalar operands of a type from (value, error)."""
    return [(f"{kind}[]", value, error) for value, error in pairs]


def unit(exponent: int, count: float = 1) -> float:
    """Return some units in the last place of f32 numbers from 2 ** exponent to twice that."""
    return count * 2.0 ** (exponent - 23)


@pytest.mark.parametrize(
    ("operation", "operands", "expected"),
    [
        # (1 ± 1/4) + (2 ± 1/2) is at most 3.75, whose unit is that of [2, 4).
        ("add(p0, p1)", [(1, 0.25), (2, 0.5)], 0.75 + unit(1)),
        ("subtract(p0, p1)", [(1, 0.25), (2, 0.5)], 0.75 + unit(0)),
        ("add(p0, p1)", [(1, 0), (2, 0.5)], 0.5 + unit(1)),
        ("add(p0, p1)", [(1, 0), (2, 0)], 0),
        ("multiply(p0, p1)", [(3, 0.5), (-2, 0.25)], 3 * 0.25 + 0.5 * 2 + 0.5 * 0.25 + unit(2)),
        ("divide(p0, p1)", [(6, 1), (2, 0.5)], (1 + 3 * 0.5) / (2 - 0.5) + unit(2)),
        ("divide(p0, p1)", [(6, 1), (1, 1)], INF),
        ("maximum(p0, p1)", [(1, 0.25), (2, 0.5)], 0.5),
        ("minimum(p0, p1)", [(1, 0.75), (2, 0.5)], 0.75),
        ("clamp(p0, p1, p2)", [(1, 0.25), (2, 0.5), (3, 0.125)], 0.5),
        ("negate(p0)", [(1, 0.25)], 0.25),
        ("abs(p0)", [(-1, 0.25)], 0.25),
        ("reduce-precision(p0), exponent_bits=8, mantissa_bits=7", [(1, 0.25)], 0.25 + unit(0)),
        # Functions are within 4 units; they change as at the ends of the interval, sine by 2 at most.
        ("sine(p0)", [(0.5, 0.25)], 0.25 + unit(-1, 4)),
        ("cosine(p0)", [(0, 5)], 2 + unit(1, 4)),
        ("exponential(p0)", [(0, 1)], math.expm1(1) + unit(1, 4)),
        ("exponential(p0)", [(0, 0)], unit(0, 4)),
        ("log(p0)", [(1, 0.5)], math.log(2) + unit(-1, 4)),
        ("log(p0)", [(1, 1)], INF),
        ("sqrt(p0)", [(4, 3)], 1 + unit(1)),
        ("power(p0, p1)", [(2, 1), (2, 0)], 5 + unit(3, 4)),
        ("power(p0, p1)", [(2, 0), (2, 1)], 4 + unit(3, 4)),
        ("atan2(p0, p1)", [(1, 1), (1, 0)], math.pi / 4 + unit(0, 4)),
        # Steps have the values at the ends.
        ("floor(p0)", [(1.5, 1)], 1),
        ("floor(p0)", [(1.5, 0.25)], 0),
        ("ceil(p0)", [(1.5, 2)], 2),
        ("round-nearest-even(p0)", [(1.25, 0.25)], 1),
        ("round-nearest-afz(p0)", [(2.5, 0.25)], 1),
        ("sign(p0)", [(1, 1)], 1),
        ("sign(p0)", [(1, 2)], 2),
        ("sign(p0)", [(1, 0.5)], 0),
    ],
)  # fmt: skip
def test_elementwise_floats(operation: str, operands: list[tuple[float, float]], expected: float) -> None:
    assert bound(operation, "f32[]", *numbers("f32", *operands)) == expected


@pytest.mark.parametrize(
    ("operation", "result", "kind", "operands", "expected"),
    [
        ("convert(p0)", "s32[]", "f32", [(2.75, 1)], 1),
        ("convert(p0)", "s32[]", "f32", [(2.75, 0.25)], 1),
        ("convert(p0)", "s32[]", "f32", [(2.5, 0.25)], 0),
        ("convert(p0)", "pred[]", "f32", [(1, 2)], 1),
        ("convert(p0)", "pred[]", "f32", [(1, 1)], 1),
        ("convert(p0)", "pred[]", "f32", [(-3, 2)], 0),
        # Conversions between integers wrap around.
        ("convert(p0)", "s8[]", "s32", [(100, 27)], 27),
        ("convert(p0)", "s8[]", "s32", [(100, 28)], INF),
        ("convert(p0)", "s8[]", "s32", [(1, INF)], INF),
        ("convert(p0)", "pred[]", "s32", [(1, 1)], 1),
        ("convert(p0)", "pred[]", "s32", [(2, 1)], 0),
        ("add(p0, p1)", "s32[]", "s32", [(5, 1), (6, 2)], 3),
        ("subtract(p0, p1)", "s32[]", "s32", [(5, 1), (6, 2)], 3),
        ("multiply(p0, p1)", "s32[]", "s32", [(5, 1), (-6, 2)], 5 * 2 + 1 * 6 + 1 * 2),
        ("maximum(p0, p1)", "s32[]", "s32", [(5, 1), (6, 2)], 2),
        ("clamp(p0, p1, p2)", "s32[]", "s32", [(5, 1), (6, 2), (7, 3)], 3),
        ("negate(p0)", "s32[]", "s32", [(5, 1)], 1),
        # Near the ends of the type a sum may wrap around, and then be any number.
        ("add(p0, p1)", "s8[]", "s8", [(100, 1), (26, 0)], 1),
        ("add(p0, p1)", "s8[]", "s8", [(100, 1), (27, 0)], INF),
        ("subtract(p0, p1)", "u8[]", "u8", [(3, 1), (2, 0)], 1),
        ("subtract(p0, p1)", "u8[]", "u8", [(3, 2), (2, 0)], INF),
        ("remainder(p0, p1)", "s32[]", "s32", [(5, 1), (3, 0)], INF),
        ("xor(p0, p1)", "s32[]", "s32", [(5, 1), (3, 0)], INF),
        ("xor(p0, p1)", "s32[]", "s32", [(5, 0), (3, 0)], 0),
        ("popcnt(p0)", "s32[]", "s32", [(5, 1)], INF),
        ("is-finite(p0)", "pred[]", "f32", [(5, 1)], 0),
        ("is-finite(p0)", "pred[]", "f32", [(5, INF)], 1),
        # Numbers are in order if they are further apart than both errors.
        ("compare(p0, p1), direction=LT", "pred[]", "f32", [(1, 0.5), (2, 0.25)], 0),
        ("compare(p0, p1), direction=LT", "pred[]", "f32", [(1, 0.5), (2, 0.5)], 1),
        ("compare(p0, p1), direction=LT", "pred[]", "f32", [(math.nan, 0.5), (2, 0.5)], 0),
        ("compare(p0, p1), direction=LT", "pred[]", "f32", [(2, 0.5), (math.nan, 0.5)], 0),
        ("compare(p0, p0), direction=LT", "pred[]", "f32", [(2, 0.5)], 0),
    ],
)  # fmt: skip
def test_elementwise_integers_and_predicates(
    operation: str, result: str, kind: str, operands: list[tuple[float, float]], expected: float
) -> None:
    assert bound(operation, result, *numbers(kind, *operands)) == expected


@pytest.mark.parametrize(
    ("opcode", "decided"),
    [
        # An undecided operand leaves the result decided if the other operand decides it.
        ("and", {(True, True): 1, (True, False): 0}),
        ("or", {(True, True): 0, (True, False): 1}),
        ("xor", {(True, True): 1, (True, False): 1}),
    ],
)
def test_logic(opcode: str, decided: dict[tuple[bool, bool], float]) -> None:
    for (undecided, certain), expected in decided.items():
        for value in (undecided, not undecided):
            pair = numbers("pred", (value, 1), (certain, 0))
            assert bound(f"{opcode}(p0, p1)", "pred[]", *pair) == expected
            assert bound(f"{opcode}(p0, p1)", "pred[]", *pair[::-1]) == expected
    both = numbers("pred", (True, 1), (False, 1))
    assert bound(f"{opcode}(p0, p1)", "pred[]", *both) == 1
    assert bound("not(p0)", "pred[]", *numbers("pred", (True, 1))) == 1


X = ("f32[3]", [1, 2, 4], [0.25, 0, 0.5])
Y = ("f32[3]", [3, 1, 2], [0.25, 0, 0.125])


@pytest.mark.parametrize(
    ("operation", "result", "operands", "expected"),
    [
        ("real(p0)", "f32[]", [("c64[]", 1 + 2j, 0.5)], 0.5),
        ("imag(p0)", "f32[]", [("c64[]", 1 + 2j, 0.5)], 0.5),
        ("complex(p0, p1)", "c64[]", numbers("f32", (1, 0.25), (2, 0.5)), 0.75),
        ("abs(p0)", "f32[]", [("c64[]", 3 + 4j, 0.5)], 0.5 + unit(2, 4)),
        ("negate(p0)", "c64[]", [("c64[]", 3 + 4j, 0.5)], 0.5),
        ("add(p0, p1)", "c64[]", [("c64[]", 3 + 4j, 0.5), ("c64[]", 0, 0)], 0.5 + unit(2, 4)),
        # The angle of a complex power is lost where its rounding error is more than a radian.
        ("power(p0, p1)", "c64[2]", [("c64[2]", [1.1 + 1j, 2], 0), ("c64[2]", [1e17 - 2.5j, 1], 0)],
         [INF, unit(1, 32)]),
        # What moves numbers moves their errors.
        ("reverse(p0), dimensions={0}", "f32[3]", [X], [0.5, 0, 0.25]),
        ("slice(p0), slice={[1:3]}", "f32[2]", [X], [0, 0.5]),
        ("pad(p0, p1), padding=1_0", "f32[4]", [X, ("f32[]", 0, 0.125)], [0.125, 0.25, 0, 0.5]),
        ("broadcast(p0), dimensions={1}", "f32[2,3]", [X], [[0.25, 0, 0.5]] * 2),
        ("reverse(p0), dimensions={0}", "s32[2]", [("s32[2]", [1, 2], [0, 1])], [1, 0]),
        ("reverse(p0), dimensions={0}", "s64[2]", [("s64[2]", [1, 2], [0, INF])], [INF, 0]),
        # Sizes do not depend on numbers, and what forwards a value keeps its errors.
        ("get-dimension-size(p0), dimensions={0}", "s32[]", [X], 0),
        ("add-dependency(p0, after)", "f32[3]", [X], [0.25, 0, 0.5]),
        # Chosen by a predicate that is undecided: the distance of both, and the larger error.
        ("select(p0, p1, p2)", "f32[3]",
         [("pred[3]", [True, False, True], [0, 0, 1]), X, ("f32[3]", [8, 8, 8], [0, 0.125, 1])],
         [0.25, 0.125, 4 + 1]),
        # From an undecided place: the distance of the extremes of the array, with their errors.
        ("dynamic-slice(p0, p1), dynamic_slice_sizes={1}", "f32[1]", [X, ("s32[]", 2, 0)], [0.5]),
        ("dynamic-slice(p0, p1), dynamic_slice_sizes={1}", "f32[1]", [X, ("s32[]", 1, 1)], [4.5 - 0.75]),
        # Places beyond the end are moved to the last one, which is decided again.
        ("dynamic-slice(p0, p1), dynamic_slice_sizes={1}", "f32[1]", [X, ("s32[]", 5, 1)], [0.5]),
        ("dynamic-update-slice(p0, p1, p2)", "f32[3]", [X, ("f32[1]", [3], [0.125]), ("s32[]", 1, 0)],
         [0.25, 0.125, 0.5]),
        ("dynamic-update-slice(p0, p1, p2)", "f32[3]", [X, ("f32[1]", [6], [0.125]), ("s32[]", 1, 1)],
         [6.125 - 0.75] * 3),
    ],
)  # fmt: skip
def test_parts_and_places(operation: str, result: str, operands: Any, expected: Any) -> None:
    assert bound(operation, result, *operands) == expected


ZERO, COUNT = ("f32[]", 0, 0), ("s32[]", 0, 0)


@pytest.mark.parametrize(
    ("operation", "result", "operands", "expected"),
    [
        # 4 terms (with the initial value) of magnitude 7.75 in all, each rounded in either of two orders.
        ("reduce(p0, p1), dimensions={0}, to_apply=add", "f32[]", [X, ZERO],
         0.75 + 2 * 4 * 2.0**-23 * 7.75 + 4 * 2.0**-149),
        ("reduce(p0, p1), dimensions={0}, to_apply=times", "f32[]", [X, ("f32[]", 1, 0)],
         (1.25 * 2 * 4.5 - 8) + 2 * 4 * 2.0**-23 * (1.25 * 2 * 4.5) + 4 * 2.0**-149),
        ("reduce(p0, p1), dimensions={0}, to_apply=most", "f32[]", [X, ZERO], 0.5),
        ("reduce(p0, p1), dimensions={0}, to_apply=least", "f32[]", [X, ZERO], 0.5),
        ("reduce-window(p0, p1), window={size=2}, to_apply=add", "f32[2]", [X, ZERO],
         [0.25 + 2 * 3 * 2.0**-23 * 3.25 + 3 * 2.0**-149, 0.5 + 2 * 3 * 2.0**-23 * 6.5 + 3 * 2.0**-149]),
        ("reduce(p0, p1, p2, p3), dimensions={0}, to_apply=apart", "(f32[], f32[])", [X, Y, ZERO, ZERO],
         [0.75 + 2 * 4 * 2.0**-23 * 7.75 + 4 * 2.0**-149, 0.25]),
        ("reduce-window(p0, p1, p2, p3), window={size=2}, to_apply=apart", "(f32[2], f32[2])",
         [(X[0], X[1], 0), Y, ZERO, ZERO],
         [[2 * 3 * 2.0**-23 * 3 + 3 * 2.0**-149, 2 * 3 * 2.0**-23 * 6 + 3 * 2.0**-149], [0.25, 0.125]]),
        ("dot(p0, p1), lhs_contracting_dims={0}, rhs_contracting_dims={0}", "f32[]",
         [X, ("f32[3]", [1, -1, 1], [0, 0, 0.125])],
         0.25 + 0.5 * 1.125 + 4.5 * 0.125 + 2 * 3 * 2.0**-23 * (1.25 + 2 + 4.5 * 1.125) + 3 * 2.0**-149),
        ("reduce(p0, p1), dimensions={0}, to_apply=count", "s32[]",
         [("s32[3]", [1, 2, 3], [1, 0, 2]), COUNT], 3),
        ("reduce(p0, p1), dimensions={0}, to_apply=every", "pred[]",
         [("pred[2]", [True, True], [1, 0]), ("pred[]", True, 0)], 1),
        ("reduce(p0, p1), dimensions={0}, to_apply=every", "pred[]",
         [("pred[2]", [True, False], [1, 0]), ("pred[]", True, 0)], 0),
    ],
)  # fmt: skip
def test_reductions(operation: str, result: str, operands: Any, expected: Any) -> None:
    found = np.asarray(bound(operation, result, *operands))
    # The terms are added in another order here; of five f64 numbers the sums differ by few units.
    assert np.all(np.abs(found - np.asarray(expected)) <= 4 * np.spacing(np.abs(found)))


@pytest.mark.parametrize(
    ("operation", "result", "operands", "message"),
    [
        ("reduce(p0, p1), dimensions={0}, to_apply=counted", "s32[]",
         [("s32[2]", [1, 2], [1, 0]), ("s32[]", 1, 0)], "reduce %found of undecided integers by multiply"),
        ("reduce(p0, p1), dimensions={0}, to_apply=count", "s32[]",
         [("s32[2]", [1, 2], [INF, 0]), COUNT], "reduce %found of integers that may have any value"),
        ("map(p0), dimensions={0}, to_apply=summed", "f32[2]", [("f32[2]", [1, 2], [1, 0])],
         "map %found is applied element by element"),
        ("maximum(p0, p1)", "c64[]", [("c64[]", 1j, 0.5), ("c64[]", 1, 0)],
         "maximum %found of inexact operands has no bound"),
        ("dot(p0, p1), lhs_contracting_dims={0}, rhs_contracting_dims={0}", "s32[]",
         [("s32[2]", [1, -2], [1, 0]), ("s32[2]", [1, 2], 0)], "dot %found of inexact operands has no bound"),
        ("tan(p0)", "c64[]", [("c64[]", 1j, 0.5)], "tan %found of inexact operands has no bound"),
    ],
)  # fmt: skip
def test_what_has_no_bound(operation: str, result: str, operands: Any, message: str) -> None:
    with pytest.raises(NoBound) as caught:
        bound(operation, result, *operands)
    assert str(caught.value) == f"{message} [check.no-bound]"


def test_dead_code_is_not_evaluated() -> None:
    text = """x = f32[2] parameter(0)
    dead = f32[2] custom-call(x), custom_call_target="no such target"
    ROOT r = f32[2] negate(x)"""
    result: Any = ErrorAnalysis(parse(text)).run([np.ones(2, np.float32)])
    value, bounds = result
    assert value.tolist() == [-1, -1]
    assert np.max(bounds) == 0


def test_a_scatter_of_several_arrays_has_bounds_by_samples() -> None:
    text = (
        COMBINERS
        + """
    ENTRY e {
      x = f32[2] parameter(0)  n = s32[64,1] parameter(1)  u = f32[64] parameter(2)
      ROOT r = (f32[2], f32[2]) scatter(x, x, n, u, u), update_window_dims={}, inserted_window_dims={0},
        scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=both
    }"""
    )
    module = HloModule.from_text("HloModule m\n" + text)
    updates = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    indices = np.arange(64, dtype=np.int32).reshape(64, 1) % 2
    bounds: Any = analysed(module, [np.zeros(2, np.float32), indices, updates])
    for bound in bounds:
        assert 0 < np.max(bound) < 1e-3
