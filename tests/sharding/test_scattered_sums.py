"""Sums of which each device uses a part: reduce-scatters, where the uses show only later."""

from __future__ import annotations

import numpy as np

from hloom.ir.module import HloModule
from hloom.sharding import report
from tests import agreement
from tests.reducers import with_reducers
from tests.sharding.runs import run_partitioned

ROWS = r'frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"data\"}, {}]>"}'
PROGRAM = with_reducers("""HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["data"=4]>}}
ENTRY e {
  x = f32[4096,64] parameter(0), ROWS
  y = f32[4096,8] parameter(1), ROWS
  z = f32[16,8] parameter(2), ROWS
  n = s32[16,1] parameter(3), ROWS
  d = f32[64,8] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  zeros = f32[64,8] broadcast(zero), dimensions={}
  g = f32[64,8] scatter(zeros, n, z), update_window_dims={1}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
  s = f32[64,8] add(d, g)
  ROOT r = """).replace("ROWS", ROWS)
"""A table's gradient: a product over the batch, and a scatter of rows that is cheaper cut along columns."""


def test_a_sum_that_is_added_to_tiles_is_scattered() -> None:
    module = HloModule.from_text(PROGRAM + "f32[64,8] negate(s) }")
    found = report(module)
    assert "all-reduce" not in {row.opcode for row in found.collectives}
    assert not [one for one in found.suggestions if one.kind == "reduce-scatter"]
    (row,) = (row for row in found.collectives if row.opcode == "reduce-scatter")
    assert (row.bytes, row.why.kind, row.why.instruction) == (64 * 8 * 4 * 3 // 4, "reduction", "d")
    random = np.random.default_rng(0)
    shapes = ((4096, 64), (4096, 8), (16, 8))
    x, y, z = (random.integers(-3, 4, shape).astype(np.float32) for shape in shapes)
    n = random.integers(0, 64, (16, 1)).astype(np.int32)
    table = np.zeros((64, 8), np.float32)
    np.add.at(table, n[:, 0], z)
    _, (result,) = run_partitioned(module, 4, [x, y, z, n])
    agreement.equal(result, -(x.T @ y + table))


def test_a_sum_that_is_used_whole_as_well_is_not() -> None:
    found = report(HloModule.from_text(PROGRAM + "(f32[64,8], f32[64,8]) tuple(s, d) }"))
    assert "all-reduce" in {row.opcode for row in found.collectives}
