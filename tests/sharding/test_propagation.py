"""Shardings spread from the arrays that state one to the others."""

from __future__ import annotations

import numpy as np
from tests.sharding.runs import run_partitioned

import agreement
from hloom.ir.module import HloModule
from hloom.sharding.traffic import bytes_sent

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
