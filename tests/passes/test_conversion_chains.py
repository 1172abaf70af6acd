"""Integers that become floats and integers again saturate, where integers alone would wrap."""

from __future__ import annotations

import itertools

import pytest

from hloom.passes.simplify.algebraic_simplifier import AlgebraicSimplifier
from tests.one_operation import every
from tests.pass_checks import after

INTEGERS = ("pred", "s4", "u4", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
FLOATS = ("f8e5m2", "f16", "bf16", "f32", "f64")


@pytest.mark.parametrize("first", ["s4", "u4", "s8", "u8", "s16", "u16"])
def test_all_values_through_all_pairs_of_types(first: str) -> None:
    values = every(first)
    count = len(values)
    lines = [f"x = {first}[{count}] parameter(0)"]
    roots: list[str] = []
    for number, (middle, last) in enumerate(itertools.product((*INTEGERS, *FLOATS), INTEGERS)):
        lines.append(f"m{number} = {middle}[{count}] convert(x)")
        lines.append(f"r{number} = {last}[{count}] convert(m{number})")
        roots.append(f"r{number}")
    text = "\n  ".join([*lines, f"ROOT r = tuple({', '.join(roots)})"])
    after(text, AlgebraicSimplifier(), arguments=[values])
