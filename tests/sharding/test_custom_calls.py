"""Rules of custom calls: which dimensions belong together, and what a module gets from another one."""

from __future__ import annotations

import pytest

from hloom.errors import HloError
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.sharding.custom_calls import adopt, rule_of

CALL = """
HloModule m
ENTRY e {
  x = s32[4,2] parameter(0)
  y = s32[8] parameter(1)
  ROOT c = (s32[8], s32[2]) custom-call(x, y), custom_call_target="t",
      frontend_attributes={xla.sdy.sharding_rule="RULE"}
}
"""
PIECE = """
HloModule piece
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
double { v = f32[] parameter(0)  ROOT w = f32[] add(v, v) }
ENTRY e {
  x = f32[] parameter(0)
  y = f32[] call(x), to_apply=double
  ROOT r = f32[] all-reduce(y), channel_id=1, replica_groups={}, to_apply=add
}
"""


def call_with(rule: str) -> HloInstruction:
    return HloModule.from_text(CALL.replace("RULE", rule)).entry.root


def test_factors_are_the_major_ones_of_their_dimensions() -> None:
    rule = "#sdy.op_sharding_rule<([ij, k], [ijk])->([ijk], [z_1]) {i=2, j=2, k=2, z_1=2}, custom>"
    found = rule_of(call_with(rule))
    assert [(f.factor.size, f.factor.operands, f.results) for f in found] == [
        (2, {0: 0, 1: 0}, {0: 0}),
        (2, {}, {1: 0}),
    ]
    assert rule_of(call_with(rule.replace("}, custom", "} need_replication={i, z_1}, custom"))) == []


def test_a_rule_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(HloError) as caught:
        rule_of(call_with("i j -> i"))
    assert caught.value.rule == "sharding.rule" and caught.value.instruction == "c"


def test_a_piece_takes_names_and_channels_that_are_free() -> None:
    module, piece = HloModule.from_text(PIECE), HloModule.from_text(PIECE)
    adopt(module, piece, lambda: 7)
    names = [c.name for c in module.computations] + [i.name for c in module.computations for i in c]
    assert len(set(names)) == len(names) and len(module.computations) == 4
    assert sorted(i.opcode for i in piece.entry) == ["add", "all-reduce", "parameter"]
    assert piece.entry.root.operation.channel_id == 7  # type: ignore[attr-defined]
