"""Rules of custom calls: which dimensions belong together, and what a module gets from another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hloom.errors import HloError
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.custom_call import TARGETS
from hloom.sharding.partitioning.custom_calls import adopt, rule_of
from hloom.sharding.reporting.traffic import bytes_sent
from tests import agreement
from tests.reducers import with_reducers
from tests.sharding.runs import run_partitioned

CALL = """
HloModule m
ENTRY e {
  x = s32[4,2] parameter(0)
  y = s32[8] parameter(1)
  ROOT c = (s32[8], s32[2]) custom-call(x, y), custom_call_target="t",
      frontend_attributes={xla.sdy.sharding_rule="RULE"}
}
"""
PIECE = with_reducers("""
HloModule piece
double { v = f32[] parameter(0)  ROOT w = f32[] add(v, v) }
ENTRY e {
  x = f32[] parameter(0)
  y = f32[] call(x), to_apply=double
  ROOT r = f32[] all-reduce(y), channel_id=1, replica_groups={}, to_apply=add
}
""")


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


@pytest.mark.parametrize(
    ("width", "lhs", "rhs", "result", "sent"),
    [
        (8, "[4,1]<=[4]", "[1,1,4]<=[4] last_tile_dim_replicate", "[4,1]<=[4]", 0),
        # The rows of the other side and their scales are gathered: 3 tiles of 2 rows of 8 and 4 bytes.
        (8, "[4,1]<=[4]", "[4,1]<=[4]", "[4,1]<=[4]", 3 * 2 * (8 + 4)),
        # Partial sums of f32[8,8] are scattered.
        (64, "[1,4]<=[4]", "[1,4]<=[4]", "[4,1]<=[4]", 8 * 8 * 4 * 3 // 4),
    ],
)
def test_block_scaled_products_are_cut(
    width: int, lhs: str, rhs: str, result: str, sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def product(call: HloInstruction, operands: Sequence[Any]) -> Any:
        x, y, scale, other = (np.asarray(one, np.float32) for one in operands)
        return (x * np.repeat(scale, 2, 1)) @ (y * np.repeat(other, 2, 1)).T

    monkeypatch.setitem(TARGETS, "__op$block_scaled_dot", product)
    module = HloModule.from_text(f"""HloModule m
      ENTRY e {{
        x = s8[8,{width}] parameter(0), sharding={{devices={lhs}}}
        y = s8[8,{width}] parameter(1), sharding={{devices={rhs}}}
        u = s8[8,{width // 2}] parameter(2), sharding={{devices={lhs}}}
        v = s8[8,{width // 2}] parameter(3), sharding={{devices={rhs}}}
        ROOT p = f32[8,8] custom-call(x, y, u, v), custom_call_target="__op$block_scaled_dot",
          sharding={{devices={result}}} }}""")
    random = np.random.default_rng(0)
    values = [random.integers(-4, 5, (8, n)).astype(np.int8) for n in (width, width, width // 2, width // 2)]
    partitioned, (found,) = run_partitioned(module, 4, values)
    agreement.equal(found, product(module.entry.root, values))
    assert bytes_sent(partitioned.module) == sent
