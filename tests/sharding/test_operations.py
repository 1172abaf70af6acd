"""Every operation with a rule of its own gives the same on tiles, whatever tiles: uneven, permuted, few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hloom.ir.module import HloModule
from tests import agreement
from tests.reducers import binary, comparison
from tests.sharding.runs import run_partitioned

REDUCERS = (
    binary("add", name="sum")
    + binary("maximum", name="largest")
    + comparison("LT", name="less")
    + comparison("GE", name="at_least")
)

PROGRAMS = {
    "slice": "ROOT r = f32[4,3] slice(x), slice={[3:7], [1:6:2]} SHARDED",
    "pad": "i = f32[] constant(7)\n ROOT r = f32[13,11] pad(x, i), padding=3_2x1_4 SHARDED",
    "interior pad": "i = f32[] constant(7)\n ROOT r = f32[16,13] pad(x, i), padding=2_-1_1x1_1_1 SHARDED",
    "crop": "i = f32[] constant(7)\n ROOT r = f32[5,8] pad(x, i), padding=-2_-1x0_2 SHARDED",
    "reverse": "ROOT r = f32[8,6] reverse(x), dimensions={0,1} SHARDED",
    "concatenate": "ROOT r = f32[13,6] concatenate(x, y), dimensions={0} SHARDED",
    "iota": "i = f32[8,6] iota(), iota_dimension=0 SHARDED\n ROOT r = f32[8,6] add(i, x)",
    "sort": "ROOT r = f32[8,6] sort(x), dimensions={0}, to_apply=less SHARDED",
    "reduce": "i = f32[] constant(3)\n ROOT r = f32[6] reduce(y, i), dimensions={0}, to_apply=sum SHARDED1",
    "largest": """i = f32[] constant(-9)
      ROOT r = f32[5] reduce(y, i), dimensions={1},
      to_apply=largest SHARDED1""",
    "dot": """
      ROOT r = f32[8,5] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1} SHARDED""",
    "narrow dot": """
      a = bf16[8,6] convert(x)
      b = bf16[5,6] convert(y)
      ROOT r = bf16[8,5] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={1} SHARDED""",
    "windows": """
      i = f32[] constant(0)
      ROOT r = f32[8,3] reduce-window(x, i), window={size=3x2 stride=1x2 pad=1_1x0_0},
        to_apply=sum SHARDED""",
    "dilated windows": """
      i = f32[] constant(-8)
      ROOT r = f32[15,5] reduce-window(x, i), window={size=3x2 pad=1_1x0_0 lhs_dilate=2x1},
        to_apply=largest SHARDED""",
    "convolution": """
      a = f32[2,4,6] reshape(x)
      b = f32[3,6,5] slice(k), slice={[0:3], [0:6], [0:5]}
      ROOT r = f32[2,4,5] convolution(a, b), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f SHARDED3""",
    "strided convolution": """
      a = f32[1,8,6] reshape(x)
      b = f32[4,6,5] slice(k), slice={[0:4], [0:6], [0:5]}
      ROOT r = f32[1,3,5] convolution(a, b), window={size=4 stride=3 pad=1_1}, dim_labels=b0f_0io->b0f
        SHARDED3""",
    "gradient of a kernel": """
      a = f32[1,8,6] reshape(x)
      b = f32[6,6,5] slice(k), slice={[0:6], [0:6], [0:5]}
      ROOT r = f32[1,3,5] convolution(a, b), window={size=6 pad=1_-1}, dim_labels=b0f_0io->b0f SHARDED3""",
    "groups of features": """
      a = f32[2,4,6] reshape(x)
      b = f32[3,3,4] slice(k), slice={[0:3], [0:3], [0:4]}
      ROOT r = f32[2,4,4] convolution(a, b), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f,
        feature_group_count=2 SHARDED3""",
    "groups of batches": """
      a = f32[2,4,6] reshape(x)
      b = f32[3,6,4] slice(k), slice={[0:3], [0:6], [0:4]}
      ROOT r = f32[1,4,4] convolution(a, b), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f,
        batch_group_count=2 SHARDED3""",
    "batch as space": """
      a = f32[8,2,3] reshape(x)
      b = f32[8,3,5] slice(k), slice={[0:8], [0:3], [0:5]}
      ROOT r = f32[8,2,5] convolution(a, b), window={size=8 stride=7 lhs_dilate=8}, dim_labels=0bf_0io->0bf
        SHARDED3""",
    "free dimension as space": """
      a = f32[1,8,6] reshape(x)
      b = f32[4,6,5] slice(k), slice={[0:4], [0:6], [0:5]}
      ROOT r = f32[4,8,5] convolution(a, b), window={size=4 pad=3_3 rhs_reversal=1}, dim_labels=0bf_0io->0bf
        SHARDED3""",
    "dynamic slice": """
      ROOT r = f32[3,6] dynamic-slice(x, n, o), dynamic_slice_sizes={3,6} SHARDED""",
    "dynamic slice of both": """
      ROOT r = f32[1,2] dynamic-slice(x, n, n), dynamic_slice_sizes={1,2} SHARDED""",
    "dynamic update": "ROOT r = f32[8,6] dynamic-update-slice(x, y, n, o) SHARDED",
    "gather of rows": """
      ROOT r = f32[7,6] gather(x, rows), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
        index_vector_dim=1, slice_sizes={1,6} SHARDED""",
    "gather of elements": """
      p = s32[7,2] reshape(s)
      ROOT r = f32[7] gather(x, p), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1},
        index_vector_dim=1, slice_sizes={1,1} SHARDED1""",
    "gather along": """
      q = s32[8,2] iota(), iota_dimension=0
      p = s32[8,2] slice(rows2), slice={[0:8], [0:2]}
      c = s32[8,2,2] gather(p, q), offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0},
        index_vector_dim=2, slice_sizes={1,2} SHARDED3
      d = f32[8,2,2] convert(c)
      e = f32[8,1,1] slice(d), slice={[0:8], [1:2], [1:2]}
      f = f32[8] reshape(e)
      g = f32[8,6] broadcast(f), dimensions={0}
      ROOT r = f32[8,6] add(g, x)""",
    "scatter of rows": """
      u = f32[7,6] gather(x, rows), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
        index_vector_dim=1, slice_sizes={1,6}
      ROOT r = f32[8,6] scatter(x, rows, u), update_window_dims={1}, inserted_window_dims={0},
        scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum SHARDED""",
    "scatter of many rows": """
      v = s32[8] slice(s), slice={[0:8]}
      u = f32[8,6] negate(x)
      ROOT r = f32[5,6] scatter(y, v, u), update_window_dims={1}, inserted_window_dims={0},
        scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum SHARDED""",
    "select and scatter": """
      i = f32[] constant(1)
      v = f32[4,3] slice(x), slice={[0:4], [0:3]}
      ROOT r = f32[8,6] select-and-scatter(x, v, i), window={size=2x1 stride=2x2}, select=at_least,
        scatter=sum SHARDED""",
    "reshape": "a = f32[2,4,6] reshape(x) SHARDED3\n ROOT r = f32[8,2,3] reshape(a)",
}

SHARDINGS = {
    4: (
        "{devices=[4,1]<=[4]}", "{devices=[1,4]<=[4]}", "{devices=[2,2]<=[4]}",
        "{devices=[2,2]<=[2,2]T(1,0)}",
        "{devices=[2,1,2]<=[4] last_tile_dim_replicate}",
        "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}",
        "{devices=[4,1]3,1,0,2}", "{replicated}",
    ),
    6: (
        "{devices=[3,2]<=[6]}", "{devices=[6,1]<=[6]}", "{devices=[2,3]<=[3,2]T(1,0)}",
        "{devices=[2,1,3]<=[6] last_tile_dim_replicate}", "{replicated}",
        "{devices=[1,3,2]<=[6] last_tile_dim_replicate}",
    ),
    8: (
        "{devices=[4,2]<=[8]}", "{devices=[2,4]<=[2,2,2]T(2,0,1)}", "{devices=[8,1]<=[8]}", "{replicated}",
        "{devices=[2,2,2]<=[8] last_tile_dim_replicate}", "{devices=[1,8]7,6,5,4,3,2,1,0}",
    ),
}  # fmt: skip


def module_of(name: str, devices: int, random: np.random.Generator) -> HloModule:
    """Return a program with random shardings of its parameters and of the operation."""
    known = SHARDINGS[devices]

    def one() -> str:
        return known[random.integers(len(known))]

    body = PROGRAMS[name].replace("SHARDED3", ", sharding=" + one().replace("devices=[", "devices=[1,"))
    flat = "{replicated}" if random.integers(2) else f"{{devices=[{devices}]<=[{devices}]}}"
    body = body.replace("SHARDED1", f", sharding={flat}").replace("SHARDED", f", sharding={one()}")
    return HloModule.from_text(f"""HloModule m
{REDUCERS}
ENTRY e {{
  x = f32[8,6] parameter(0), sharding={one()}
  y = f32[5,6] parameter(1), sharding={one()}
  k = f32[8,6,5] parameter(2)
  n = s32[] parameter(3)
  o = s32[] constant(0)
  s = s32[14] parameter(4), sharding={flat}
  t = s32[14,1] reshape(s)
  rows = s32[7,1] slice(t), slice={{[0:7], [0:1]}}
  w = s32[28] concatenate(s, s), dimensions={{0}}
  rows2 = s32[14,2] reshape(w)
  {body}
}}""")


def arguments(random: np.random.Generator) -> Sequence[Any]:
    """Return normal floats and indices, of which some are out of bounds."""
    floats = [random.standard_normal(shape).astype(np.float32) for shape in ((8, 6), (5, 6), (8, 6, 5))]
    return [*floats, np.int32(random.integers(-2, 9)), random.integers(-2, 10, 14).astype(np.int32)]


@pytest.mark.parametrize("devices", SHARDINGS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_tiles_give_what_the_whole_arrays_give(name: str, devices: int) -> None:
    for seed in range(4):
        random = np.random.default_rng([seed, devices, len(name)])
        module = module_of(name, devices, random)
        given = arguments(random)
        _, found = run_partitioned(module, devices, given)
        agreement.computed(found, module, given)
