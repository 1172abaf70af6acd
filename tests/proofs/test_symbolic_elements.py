"""Elements of few bits are evaluated for every value; programs of higher ranks are made from an example."""

from __future__ import annotations

import pytest

from hloom.ir.module import HloModule
from hloom.operations.arithmetic import Add, Divide, Multiply
from hloom.operations.conversion import Convert
from hloom.operations.unary import Negate
from hloom.proofs.symbolic.elements import scalar
from hloom.proofs.symbolic.exhaustion import are_equal_everywhere
from hloom.proofs.symbolic.polynomial import Polynomial
from hloom.proofs.symbolic.repetition import repeated_programs
from hloom.proofs.symbolic.terms import Access, Apply, Term
from hloom.shape.element_type import BF16, F32, S8, ElementType

pytestmark = pytest.mark.filterwarnings("error")


def leaf(kind: ElementType, number: int = 0) -> Term:
    return Access((number,), Polynomial(), kind)


def test_all_values_of_two_bytes_are_compared() -> None:
    x, y = leaf(S8), leaf(S8, 1)
    total = Apply(Add(), (x, y), S8)
    assert are_equal_everywhere(total, Apply(Add(), (y, x), S8))
    half = Apply(Divide(), (Apply(Multiply(), (x, scalar(2, S8)), S8), scalar(2, S8)), S8)
    assert not are_equal_everywhere(half, x)  # 64 * 2 overflows
    z = leaf(BF16)
    wide = Apply(Convert(), (z,), F32)
    assert are_equal_everywhere(
        Apply(Convert(), (Apply(Negate(), (wide,), F32),), BF16), Apply(Negate(), (z,), BF16)
    )
    assert not are_equal_everywhere(Apply(Add(), (z, scalar(0.0, BF16)), BF16), z)  # -0 + 0 is 0


def test_more_bits_are_left_to_the_solver() -> None:
    assert not are_equal_everywhere(leaf(F32), leaf(F32))
    assert not are_equal_everywhere(Apply(Add(), (leaf(BF16), leaf(BF16, 1)), BF16), leaf(BF16))


PROGRAM = """
HloModule m
ENTRY e {
  x = f32[3,5] parameter(0)
  y = f32[5,4] parameter(1)
  i = s32[] parameter(2)
  d = f32[3,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[4,3] transpose(d), dimensions={1,0}
  ROOT s = f32[2,2] dynamic-slice(t, i, i), dynamic_slice_sizes={2,2}
}
"""


def test_a_dimension_is_repeated_in_all_values() -> None:
    programs = [HloModule.from_text(text) for text in repeated_programs(PROGRAM, 2)]
    for program in programs:
        program.verify()
    shapes = [[str(p.shape).split("{")[0] for p in program.entry.parameters] for program in programs]
    assert sorted(shapes) == [
        ["f32[3,3,5]", "f32[5,4]", "s32[]", "s32[]"],
        ["f32[3,5,5]", "f32[5,5,4]", "s32[]"],
        ["f32[3,5]", "f32[5,4,4]", "s32[]", "s32[]"],
    ]
    assert {str(program.entry.root.shape).split("{")[0] for program in programs} == {"f32[2,2]", "f32[2,2,2]"}
    assert not list(repeated_programs(PROGRAM, 4))  # of rank 5
