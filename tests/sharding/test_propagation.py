"""Shardings spread from the arrays that state one to the others."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.ir.module import HloModule
from hloom.sharding.reporting.traffic import bytes_sent
from tests import agreement
from tests.sharding.runs import run_partitioned

ROWS = (4, 1)


def _group(name: str, operand: str, number: int) -> str:
    return (
        f'{name} = () custom-call({operand}), custom_call_target="xla.sdy.ShardingGroup", '
        f"custom_call_has_side_effect=true, "
        f'frontend_attributes={{xla.sdy.sharding_group_id="{number} : i64"}}'
    )


def test_the_arrays_of_a_group_are_cut_alike() -> None:
    module = HloModule.from_text(f"""
      HloModule m
      ENTRY e {{
        x = f32[8,2] parameter(0), sharding={{devices=[4,1]<=[4]}}
        {_group("g", "x", 0)}
        i = f32[16] iota(), iota_dimension=0
        r = f32[8,2] reshape(i)
        {_group("h", "r", 0)}
        ROOT t = (f32[8,2], f32[8,2]) tuple(x, r)
      }}""")
    x = np.arange(16, dtype=np.float32).reshape(8, 2)
    partitioned, results = run_partitioned(module, 4, [x])
    assert [tiling.tiles for tiling in partitioned.results] == [ROWS, ROWS]
    agreement.same(results, [x, x])
    assert bytes_sent(partitioned.module) == 0


def test_groups_have_numbers() -> None:
    module = HloModule.from_text(f"""
      HloModule m
      ENTRY e {{
        x = f32[8] parameter(0), sharding={{devices=[4]<=[4]}}
        y = f32[8] parameter(1), sharding={{devices=[2,2]<=[4] last_tile_dim_replicate}}
        {_group("g", "x", 0)}
        {_group("h", "y", 1)}
        a = f32[8] iota(), iota_dimension=0
        b = f32[8] iota(), iota_dimension=0
        {_group("i", "a", 1)}
        {_group("j", "b", 0)}
        ROOT t = (f32[8], f32[8]) tuple(a, b)
      }}""")
    x = np.arange(8, dtype=np.float32)
    partitioned, results = run_partitioned(module, 4, [x, x])
    assert [tiling.tiles for tiling in partitioned.results] == [(2,), (4,)]
    agreement.same(results, [x, x])


def test_open_parameters_are_cut_as_they_are_used() -> None:
    module = HloModule.from_text("""
      HloModule m, allow_spmd_sharding_propagation_to_parameters={true,false,true}
      ENTRY e {
        x = f32[8,2] parameter(0)
        y = f32[8,2] parameter(1)
        z = f32[3] parameter(2)
        a = f32[8,2] add(x, y), sharding={devices=[4,1]<=[4]}
        ROOT t = (f32[8,2], f32[3]) tuple(a, z)
      }""")
    x = np.arange(16, dtype=np.float32).reshape(8, 2)
    z = np.arange(3, dtype=np.float32)
    partitioned, results = run_partitioned(module, 4, [x, x, z])
    assert [tiling.tiles for tiling in partitioned.parameters] == [ROWS, (1, 1), (1,)]
    agreement.same(results, [x + x, z])


LOOP = """
  HloModule m
  body {{
    p = (s32[], f32[8], f32[8]) parameter(0)
    n = s32[] get-tuple-element(p), index=0
    a = f32[8] get-tuple-element(p), index=1
    b = f32[8] get-tuple-element(p), index=2
    one = s32[] constant(1)
    m = s32[] add(n, one)
    ab = f32[8] add(a, b)
    ROOT t = (s32[], f32[8], f32[8]) tuple(m, b, ab)
  }}
  less {{
    p = (s32[], f32[8], f32[8]) parameter(0)
    n = s32[] get-tuple-element(p), index=0
    k = s32[] constant(5)
    ROOT r = pred[] compare(n, k), direction=LT
  }}
  ENTRY e {{
    x = f32[8] parameter(0){before}
    zero = s32[] constant(0)
    i = f32[8] iota(), iota_dimension=0
    t = (s32[], f32[8], f32[8]) tuple(zero, x, i)
    w = (s32[], f32[8], f32[8]) while(t), condition=less, body=body
    a = f32[8] get-tuple-element(w), index=1
    ROOT b = f32[8] exponential(a){behind}
  }}"""


@pytest.mark.parametrize("place", ["before", "behind"])
def test_loops_pass_cuts_on(place: str) -> None:
    cut = ", sharding={devices=[4]<=[4]}"
    text = LOOP.format(**{"before": "", "behind": "", place: cut})
    x = np.arange(8, dtype=np.float32) / 64
    partitioned, results = run_partitioned(HloModule.from_text(text), 4, [x])
    module = partitioned.module
    assert [tiling.tiles for tiling in partitioned.results] == [(4,)]
    assert "f32[8]" not in module.to_text().replace("x = f32[8]", "").replace("(x: f32[8]", "")
    assert bytes_sent(module) == 0
    agreement.computed(results, HloModule.from_text(text), [x])


def test_conditionals_pass_cuts_on() -> None:
    module = HloModule.from_text("""
      HloModule m
      one { a = f32[8] parameter(0)
        ROOT r = f32[8] negate(a) }
      other { b = f32[8] parameter(0)
        ROOT r = f32[8] multiply(b, b) }
      ENTRY e {
        p = pred[] parameter(0)
        x = f32[8] parameter(1), sharding={devices=[4]<=[4]}
        i = f32[8] iota(), iota_dimension=0
        c = f32[8] conditional(p, x, i), true_computation=one, false_computation=other
        ROOT r = f32[8] add(c, c)
      }""")
    x = np.arange(8, dtype=np.float32)
    for which in (True, False):
        partitioned, results = run_partitioned(module, 4, [np.array(which), x])
        agreement.same(results, [-2 * x if which else 2 * x * x])
        assert [tiling.tiles for tiling in partitioned.results] == [(4,)]
        assert bytes_sent(partitioned.module) == 0


@pytest.mark.parametrize("tiles", [2, 4])
def test_one_permutation_reverses(tiles: int) -> None:
    module = HloModule.from_text(f"""
      HloModule m
      ENTRY e {{
        x = f32[8] parameter(0), sharding={{devices=[{tiles}]<=[{tiles}]}}
        ROOT r = f32[8] reverse(x), dimensions={{0}}
      }}""")
    x = np.arange(8, dtype=np.float32)
    partitioned, results = run_partitioned(module, tiles, [x])
    agreement.same(results, [x[::-1]])
    assert bytes_sent(partitioned.module) == 4 * 8 // tiles
