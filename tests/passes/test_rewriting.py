"""Patterns of rewrite rules: which instructions a rule gets to see, and with which operations."""

from __future__ import annotations

import pytest

from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.operations.arithmetic import Add, Complex, Subtract
from hloom.operations.movement import Broadcast
from hloom.operations.reshaping import Reshape
from hloom.operations.unary import Imag, Negate, Real
from hloom.passes.rewriting import RuleFamily, RuleTable
from tests.evaluation import parse

PROGRAM = """
HloModule m
ENTRY e {
  x = f32[2] parameter(0)
  z = c64[2] parameter(1)
  spread = f32[2,3] broadcast(x), dimensions={0}
  flat = f32[6] reshape(spread)
  again = f32[2,3] reshape(flat)
  minus = f32[2,3] negate(again)
  re = f32[2] real(z)
  im = f32[2] imag(z)
  both = c64[2] complex(re, im)
  turned = c64[2] complex(im, re)
  five = f32[] constant(5)
  fives = f32[2,3] broadcast(five), dimensions={}
  plus = f32[2,3] add(minus, fives)
  less = f32[2,3] subtract(fives, minus)
  ROOT all = (f32[2,3], f32[2,3], c64[2], c64[2]) tuple(plus, less, both, turned)
}
"""


def seen_by(**pattern: object) -> list[str]:
    """Return the names of the instructions that a rule of a pattern is called for."""
    classes = pattern.pop("classes")
    seen: list[str] = []

    def rule(i: HloInstruction, *operations: Operation) -> None:
        assert operations[0] is i.operation
        assert list(operations[1:]) == [o.operation for o in i.operands[: len(operations) - 1]]
        seen.append(i.name)

    family = RuleFamily("test")
    family.rewrites(*classes, **pattern)(rule)  # type: ignore[call-overload]
    module = parse(PROGRAM)
    assert not RuleTable(family).rewrite_module(module)
    return seen


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ({"classes": (Reshape,)}, ["flat", "again"]),
        ({"classes": (Reshape, Negate)}, ["flat", "again", "minus"]),
        ({"classes": (Reshape,), "of": Broadcast}, ["flat"]),
        ({"classes": (Reshape,), "of": (Broadcast, Reshape)}, ["flat", "again"]),
        ({"classes": (Reshape, Negate), "of": Reshape}, ["again", "minus"]),
        ({"classes": (Complex,), "operands": (Real, Imag)}, ["both"]),
        ({"classes": (Complex,), "operands": ((Real, Imag), (Real, Imag))}, ["both", "turned"]),
        ({"classes": (Add, Subtract), "constant": True}, ["plus"]),
        ({"classes": (Add, Subtract), "of": Negate, "constant": True}, ["plus"]),
        ({"classes": (Add, Subtract), "of": Reshape}, []),
    ],
)
def test_a_rule_sees_what_its_pattern_fits(pattern: dict[str, object], wanted: list[str]) -> None:
    assert seen_by(**pattern) == wanted


def test_of_several_rules_the_first_that_fits_is_taken_constants_before_others() -> None:
    order: list[str] = []
    family = RuleFamily("test")

    @family.rewrites(Add)
    def plain(i: HloInstruction, add: Add) -> None:
        order.append("plain")

    @family.rewrites(Add, of=Negate)
    def of_negate(i: HloInstruction, add: Add, negate: Negate) -> None:
        order.append("of negate")

    @family.rewrites(Add, constant=True)
    def of_constant(i: HloInstruction, add: Add) -> None:
        order.append("of constant")

    assert not RuleTable(family).rewrite_module(parse(PROGRAM))
    assert order == ["of constant", "plain", "of negate"]
