"""Divided indices: quotients and remainders that address a contiguous array are the dividend again."""

from __future__ import annotations

from hloom.codegen.elements import Elements
from hloom.codegen.llvm import I64, Module
from hloom.codegen.target import Target
from hloom.ir.affine import Index, Variable


def emitter() -> Elements:
    """Return an emitter into a function of one argument."""
    module = Module(Target.named("x86_64-linux-gnu", "x86-64-v3"))
    return Elements(module.function("kernel", [I64]), 8, {})


def test_a_quotient_and_its_remainder_are_the_dividend() -> None:
    e = emitter()
    column = Index.of(Variable(24, "i", e.function.parameters[0]))
    outer, inner = e.division(column, 6)
    middle, last = e.division(inner, 2)
    row = Index.of(Variable(5, "r", e.function.parameters[0]))
    assert e.undivided(row * 24 + outer * 6 + middle * 2 + last) == row * 24 + column
    assert e.undivided(outer * 12 + middle * 4 + last * 2 + 3) == column * 2 + 3


def test_other_sums_of_quotients_and_remainders_stay() -> None:
    e = emitter()
    outer, inner = e.division(Index.of(Variable(24, "i", e.function.parameters[0])), 6)
    for index in (outer * 4 + inner, outer, inner, outer * 6, inner * 4 + outer):
        assert e.undivided(index) == index
