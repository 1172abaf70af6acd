"""Counts of operations, arithmetic and bytes."""

from __future__ import annotations

import pytest

import agreement
from hloom import HloModule
from hloom.tools.statistics import quantity, statistics_of, statistics_text

SCALARS = """
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = pred[] compare(a, b), direction=LT
}
"""


def flops(body: str, computations: str = SCALARS) -> float:
    return statistics_of(
        HloModule.from_text(f"HloModule m\n{computations}\nENTRY e {{\n{body}\n}}\n")
    ).work.flops


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("p = f32[3,4] parameter(0)\n ROOT r = f32[3,4] add(p, p)", 12),
        ("p = f32[3,4] parameter(0)\n ROOT r = f32[4,3] transpose(p), dimensions={1,0}", 0),
        (
            "a = f32[3,4] parameter(0)\n b = f32[4,5] parameter(1)\n"
            "ROOT r = f32[3,5] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            2 * 3 * 4 * 5,
        ),
        (
            "a = f32[1,3,8] parameter(0)\n b = f32[5,3,2] parameter(1)\n"
            "ROOT r = f32[1,5,7] convolution(a, b), window={size=2}, dim_labels=bf0_oi0->bf0",
            2 * 5 * 7 * 3 * 2,
        ),
        ("a = f32[3,4] parameter(0)\n z = f32[] constant(0)\n"
         "ROOT r = f32[3] reduce(a, z), dimensions={1}, to_apply=add", 9),
        ("a = f32[8] parameter(0)\n z = f32[] constant(0)\n"
         "ROOT r = f32[4] reduce-window(a, z), window={size=2 stride=2}, to_apply=add", 8),
        ("a = f32[8] parameter(0)\n ROOT r = f32[8] sort(a), dimensions={0}, to_apply=less", 24),
        ("a = f32[4,4] parameter(0)\n ROOT r = f32[4,4] cholesky(a), lower=true", 64 / 3),
    ],
)  # fmt: skip
def test_arithmetic(body: str, expected: float) -> None:
    agreement.near(flops(body), expected)


def test_calls_and_loops() -> None:
    text = """HloModule m
more {
  i = s32[] parameter(0)
  n = s32[] constant(10)
  ROOT p = pred[] compare(i, n), direction=LT
}
step {
  i = s32[] parameter(0)
  one = s32[] constant(1)
  ROOT j = s32[] add(i, one)
}
ENTRY e {
  z = s32[] parameter(0)
  c = s32[] call(z), to_apply=step
  ROOT w = s32[] while(c), condition=more, body=step
}
"""
    found = statistics_of(HloModule.from_text(text))
    assert (found.work.flops, found.work.unknown_loops) == (3, 1)
    assert "1 loops counted as one turn" in statistics_text(found, lambda text, role: text)


def test_bytes() -> None:
    found = statistics_of(
        HloModule.from_text(
            "HloModule m\nENTRY e {\n p = (f32[10], bf16[3]) parameter(0)\n c = f64[2] constant({1, 2})\n"
            " x = f32[10] get-tuple-element(p), index=0\n ROOT r = f32[10] exponential(x)\n}\n"
        )
    )
    assert (found.parameters[0][2], found.constant_bytes, found.result_bytes) == (46, 16, 40)
    assert found.work.transcendentals == 10


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (999, "999 B"), (1200, "1.2 kB"), (3.5e9, "3.5 GB"), (2e15, "2 PB")]
)
def test_quantities(number: float, text: str) -> None:
    assert quantity(number, "B") == text
