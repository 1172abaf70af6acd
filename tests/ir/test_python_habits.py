"""Instructions are a sequence, and their repr says all."""

from __future__ import annotations

import pytest

from hloom import HloModule
from hloom.ir.instruction import HloInstruction
from hloom.operations.reduction import Reduce
from hloom.shape.shape import Shape
from tests.reducers import with_reducers

MODULE = with_reducers("""HloModule m
ENTRY e {
  x = f32[4,8] parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[4] reduce(x, zero), dimensions={1}, to_apply=add, metadata={op_name="sum"}
}
""")


def test_instructions_are_a_sequence() -> None:
    entry = HloModule.from_text(MODULE).entry
    instructions = entry.instructions
    assert instructions[0].name == "x"
    assert instructions[-1] is entry.root
    assert [i.name for i in instructions[1:]] == ["zero", "r"]
    assert [i.name for i in reversed(instructions)] == ["r", "zero", "x"]
    assert len(instructions) == 3 and instructions.index(entry.root) == 2
    assert entry.root in instructions and entry not in instructions
    with pytest.raises(IndexError):
        _ = instructions[3]
    assert repr(instructions) == repr(list(instructions))


def test_repr_is_the_text() -> None:
    root = HloModule.from_text(MODULE).entry.root
    assert repr(root) == (
        '<%r = f32[4]{0} reduce(%x, %zero), dimensions={1}, to_apply=%add, metadata={op_name="sum"}>'
    )


def test_repr_of_an_unfinished_instruction() -> None:
    """Its called computation is missing, which the printer needs."""
    made = HloInstruction("r", Reduce(dimensions=(1,)), Shape("f32[4]"))
    assert repr(made).startswith("<%r = f32[4]{0} reduce(")
