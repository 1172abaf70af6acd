"""Programs of the corpus that send more than XLA's have a reason, which holds."""

from __future__ import annotations

import pytest

from hloom.ir.module import HloModule
from hloom.passes.registry import run
from hloom.sharding.partitioning.partitioner import partitioned_program
from hloom.sharding.reporting.traffic import bytes_sent
from tests.sharding.corpus_reasons import REASONS
from tests.sharding_corpus import unreasoned

MISMATCHED_CALLS = """HloModule m
  g {
    x = s32[8,2] parameter(0)
    zero = s32[] constant(0)
    b = s32[8,2] broadcast(zero), dimensions={}
    ROOT p = s32[8,2] multiply(x, b) }
  ENTRY e {
    x = s32[8,2] parameter(0), sharding={devices=[2,2]<=[4]}
    y = s32[8,2] parameter(1), sharding={devices=[4,1]<=[4]}
    c = s32[8,2] call(x), to_apply=g, sharding={devices=[2,2]<=[4]}
    d = s32[8,2] call(y), to_apply=g, sharding={devices=[2,2]<=[4]}
    ROOT r = s32[8,2] add(c, d), sharding={devices=[2,2]<=[4]} }"""


@pytest.mark.parametrize("name", REASONS)
def test_a_reason_allows_what_it_says(name: str) -> None:
    most = REASONS[name].most
    assert unreasoned(name, most, 0) == []
    assert unreasoned(name, most + 1, 0) == [f"{name}: {most + 1} : 0"]
    assert unreasoned(name, most, most) == [f"{name}: {most} : {most} needs no reason"]
    assert unreasoned("another", 3, 1) == ["another: 3 : 1"]


def test_products_with_zero_are_simplified_before() -> None:
    module = HloModule.from_text(MISMATCHED_CALLS)
    assert bytes_sent(partitioned_program(module, 4).module) == 8
    run(module, "call-inliner,algsimp,dce")
    assert bytes_sent(partitioned_program(module, 4).module) == 0
