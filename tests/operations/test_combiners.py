"""Combiners: which orders of their values are proven to give the sequential answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hloom.analysis.combiners import grouping, is_choice
from hloom.ir.computation import HloComputation
from hloom.operations.combiners import Grouping
from tests.evaluation import parse
from tests.reducers import ARGMAX, JAX_ARGMAX, LATER, binary, selecting


def combiner(text: str) -> HloComputation:
    """The computation called f."""
    module = parse(f"HloModule m\n{text}ENTRY e {{ ROOT z = f32[] constant(0) }}")
    return next(c for c in module.computations if c.name == "f")


def of_one(*lines: str, kind: str = "f32") -> str:
    """A combiner of one accumulator a and one value b."""
    body = "\n ".join(lines)
    return f"f {{ a = {kind}[] parameter(0)\n b = {kind}[] parameter(1)\n {body} }}\n"


def of_two(*lines: str, kind: str = "f32") -> str:
    """A combiner of the accumulators a, b and the values c, d."""
    parameters = "\n ".join(f"{name} = {kind}[] parameter({n})" for n, name in enumerate("abcd"))
    body = "\n ".join(lines)
    return f"f {{ {parameters}\n {body} }}\n"


FIRST_NOT_ZERO = of_one(
    "z = s32[] constant(0)", "n = pred[] compare(a, z), direction=NE", "ROOT r = s32[] select(n, a, b)",
    kind="s32",
)  # fmt: skip

KNOWN = {
    "sum": (binary("add"), "FREE"),
    "product of complex numbers": (binary("multiply", "c64"), "FREE"),
    "maximum": (binary("maximum"), "FREE"),
    "maximum of complex numbers": (binary("maximum", "c64"), "SEQUENTIAL"),
    "exclusive or": (binary("xor", "u8"), "FREE"),
    "sum by way of f32": (of_one(
        "x = f32[] convert(a)", "y = f32[] convert(b)", "s = f32[] add(x, y)", "ROOT r = bf16[] convert(s)",
        kind="bf16"), "FREE"),
    "sum and maximum": (of_two("x = f32[] add(a, c)", "y = f32[] maximum(d, b)",
                               "ROOT r = (f32[], f32[]) tuple(x, y)"), "FREE"),
    "sums that change places": (of_two("x = f32[] add(a, c)", "y = f32[] add(b, d)",
                                       "ROOT r = (f32[], f32[]) tuple(y, x)"), "SEQUENTIAL"),
    "twice one value": (of_one("ROOT r = f32[] add(b, b)"), "SEQUENTIAL"),
    "difference": (binary("subtract"), "SEQUENTIAL"),
    "absolute difference": (of_one("s = f32[] subtract(a, b)", "ROOT r = f32[] abs(s)"), "SEQUENTIAL"),
    "mean": (of_one("h = f32[] constant(0.5)", "s = f32[] add(a, b)", "ROOT r = f32[] multiply(s, h)"),
             "SEQUENTIAL"),
    "sum of squares": (of_one("s = f32[] multiply(b, b)", "ROOT r = f32[] add(a, s)"), "SEQUENTIAL"),
    "not and": (of_one("s = pred[] and(a, b)", "ROOT r = pred[] not(s)", kind="pred"), "SEQUENTIAL"),
    "the last": (LATER, "ASSOCIATIVE"),
    "the first": (LATER.replace("ROOT y", "y").replace("x = f32", "ROOT x = f32"), "ASSOCIATIVE"),
    "the first that is not zero": (FIRST_NOT_ZERO, "ASSOCIATIVE"),
    "select by GT": (selecting("GT"), "ASSOCIATIVE_WITHOUT_NAN"),
    "select by GT of integers": (selecting("GT", "s8"), "ASSOCIATIVE"),
    "select by GT of two bits": (selecting("GT", "u2"), "ASSOCIATIVE"),
    "select by the total order": (selecting("GT", comparison=", type=TOTALORDER"), "ASSOCIATIVE"),
    "select by NE": (selecting("NE", "s32"), "ASSOCIATIVE"),
    "clamped": (of_one("z = s32[] constant(0)", "n = s32[] constant(9)", "m = s32[] maximum(a, b)",
                       "ROOT r = s32[] clamp(z, m, n)", kind="s32"), "ASSOCIATIVE"),
    "the page's argmax": (ARGMAX, "ASSOCIATIVE_WITHOUT_NAN"),
    "the page's argmax of integers": (ARGMAX.replace("f32", "s32"), "ASSOCIATIVE"),
    "keeping the first": (ARGMAX.replace("GE", "GT"), "ASSOCIATIVE_WITHOUT_NAN"),
    "jax": (JAX_ARGMAX, "ASSOCIATIVE"),
    "jax bf16": (JAX_ARGMAX.replace("f32", "bf16"), "ASSOCIATIVE"),
    "jax f64 s64": (JAX_ARGMAX.replace("f32", "f64").replace("s32", "s64"), "ASSOCIATIVE"),
    "jax u8": (JAX_ARGMAX.replace("f32", "u8"), "ASSOCIATIVE"),
    "jax argmin": (JAX_ARGMAX.replace("GT", "LT"), "ASSOCIATIVE"),
    "crossed": (of_two("l = pred[] compare(a, d), direction=LT", "x = f32[] select(l, a, c)",
                       "ROOT r = (f32[], f32[]) tuple(x, d)"), "SEQUENTIAL"),
}  # fmt: skip


@pytest.mark.parametrize("text, wanted", KNOWN.values(), ids=KNOWN)
def test_known_combiners(text: str, wanted: str) -> None:
    assert grouping(combiner(text)).name == wanted


CHOICES = {
    "jax": (JAX_ARGMAX, [1], True),
    "jax, with the value": (JAX_ARGMAX, [0, 1], False),  # of zeros with signs, the last
    "jax u8, with the value": (JAX_ARGMAX.replace("f32", "u8"), [0, 1], True),
    "the page's argmax": (ARGMAX, [1], False),  # not associative for NaN
    "the page's argmax of integers": (ARGMAX.replace("f32", "s32"), [0, 1], True),
    "the last": (LATER, [0], True),
    "select by GT of integers": (selecting("GT", "s8"), [0], True),
    "clamped": (KNOWN["clamped"][0], [0], False),
    "sum": (binary("add"), [0], False),
    "sum and maximum": (KNOWN["sum and maximum"][0], [0, 1], False),
    "the larger of both slots": (of_two(
        "x = s32[] maximum(a, c)", "y = s32[] maximum(b, d)", "ROOT r = (s32[], s32[]) tuple(x, y)",
        kind="s32"), [0, 1], False),
}  # fmt: skip


@pytest.mark.parametrize("text, live, wanted", CHOICES.values(), ids=CHOICES)
def test_combiners_that_choose_one_of_their_arguments(text: str, live: list[int], wanted: bool) -> None:
    assert is_choice(combiner(text), live) is wanted


@pytest.mark.parametrize("text, _", KNOWN.values(), ids=KNOWN)
def test_what_is_proven_holds_for_random_numbers(text: str, _: str) -> None:
    """Both groupings of three elements, of many random ones, with ties, zeros, NaN and infinities."""
    from hloom.evaluate.evaluator import Evaluator

    computation = combiner(text)
    found = grouping(computation)
    count = len(computation.parameters) // 2
    kinds = [p.shape.element_type for p in computation.parameters[:count]]
    if found is Grouping.SEQUENTIAL or any(k.is_floating and found is Grouping.FREE for k in kinds):
        return
    rng = np.random.default_rng(0)

    def elements() -> list[np.ndarray]:
        made = []
        for kind in kinds:
            values = rng.integers(0, 3, 4000)
            if kind.is_floating:
                values = rng.choice([-np.inf, -2.5, -1, -0.0, 0.0, 1, 2.5, np.inf, np.nan], 4000)
                if found is Grouping.ASSOCIATIVE_WITHOUT_NAN:
                    values = np.where(np.isnan(values), 7.0, values)
            made.append(values.astype(kind.numpy_dtype))
        return made

    def combined(a: list[np.ndarray], b: list[np.ndarray]) -> list[np.ndarray]:
        result: Any = Evaluator().map(computation, [*a, *b])
        return list(result) if isinstance(result, tuple) else [result]

    a, b, c = elements(), elements(), elements()
    for left, right in zip(combined(combined(a, b), c), combined(a, combined(b, c)), strict=True):
        assert left.tobytes() == right.tobytes()
