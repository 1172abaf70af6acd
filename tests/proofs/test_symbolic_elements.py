"""Elements of few bits are evaluated for every value; programs of all ranks are made from an example."""

from __future__ import annotations

import itertools

import pytest

from hloom.ir.module import HloModule
from hloom.operations.arithmetic import Add, Divide, Multiply
from hloom.operations.conversion import BitcastConvert, Convert
from hloom.operations.unary import Negate
from hloom.proofs.symbolic.elements import scalar
from hloom.proofs.symbolic.exhaustion import are_equal_everywhere
from hloom.proofs.symbolic.polynomial import Polynomial
from hloom.proofs.symbolic.ranks import programs_of_rank
from hloom.proofs.symbolic.terms import Access, Apply, Term
from hloom.shape.element_type import BF16, F32, S8, S16, ElementType

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


def test_numbers_and_bits_are_parts_of_elements() -> None:
    x, twice = leaf(S8), scalar(2, S8)
    assert are_equal_everywhere(Apply(Multiply(), (x, twice), S8), Apply(Add(), (x, x), S8))
    bits = Apply(BitcastConvert(), (leaf(BF16),), S16)
    assert are_equal_everywhere(Apply(BitcastConvert(), (bits,), BF16), leaf(BF16))
    assert not are_equal_everywhere(Apply(Negate(), (bits,), S16), bits)


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


def parameters(rank: int, text: str = PROGRAM, most: int = 1000) -> set[tuple[str, ...]]:
    """Return the shapes of the parameters of every program of a rank."""
    shapes: set[tuple[str, ...]] = set()
    for program in map(HloModule.from_text, programs_of_rank(text, rank, most)):
        program.verify()
        shapes.add(tuple(str(p.shape).split("{")[0] for p in program.entry.parameters))
    return shapes


def test_axes_occur_any_number_of_times_in_all_values() -> None:
    assert parameters(0) == {("f32[]", "f32[]", "s32[]")}
    # rows, columns, contracted, and batch, which the example does not have
    rows, columns = ("f32[3]", "f32[]", "s32[]"), ("f32[]", "f32[4]", "s32[]")
    contracted, batch = ("f32[5]", "f32[5]", "s32[]"), ("f32[3]", "f32[3]", "s32[]", "s32[]")
    assert parameters(1) == {rows, columns, contracted, batch}
    # two rows have two start indices, in both orders of a row and a column
    assert {("f32[3,3]", "f32[]", "s32[]", "s32[]"), ("f32[3]", "f32[4]", "s32[]")} <= parameters(2)
    assert all(len(shapes[0].split(",")) <= 4 for shapes in parameters(4, most=10))


def test_axes_are_in_every_order() -> None:
    text = """
    HloModule m
    ENTRY e {
      x = f32[3,5] parameter(0)
      t = f32[5,3] transpose(x), dimensions={1,0}
      ROOT b = f32[5,3,2] broadcast(t), dimensions={0,1}
    }"""
    roots = [HloModule.from_text(program).entry.root for program in programs_of_rank(text, 2, 1000)]
    pairs = {(root.operands[0].operation.dimensions, root.operation.dimensions) for root in roots}  # type: ignore[attr-defined]
    transposes = [(0, 1), (1, 0)]
    assert pairs == {*itertools.product(transposes, transposes), ((0,), (0,)), ((0,), (1,)), ((), ())}


def test_an_axis_that_is_split_or_joined_occurs_once() -> None:
    text = """
    HloModule m
    ENTRY e {
      x = f32[6] parameter(0)
      r = f32[2,3] reshape(x)
      ROOT c = f32[4,3] concatenate(r, r), dimensions={0}
    }"""
    assert parameters(2, text) == {("f32[6]",)}
    assert parameters(3, text) == {("f32[3,6]",), ("f32[6,2]",)}
