"""A partitioned program gives what the whole program gives, on both backends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.sharding.partitioning.partitioner import partitioned_program
from hloom.sharding.reading.meshes import mesh_of
from hloom.sharding.tiling.tiling import Tiling
from tests import agreement
from tests.reducers import binary
from tests.sharding.runs import leaves_of, run_partitioned

ROWS = "{devices=[4,1]<=[4]}"
COLUMNS = "{devices=[1,4]<=[4]}"
BLOCKS = "{devices=[2,2]<=[4]}"
HALVES = "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"
TURNED = "{devices=[2,2]<=[2,2]T(1,0)}"
UNREDUCED = ("{unreduced}", "{devices=[2,1,2]<=[4] last_tile_dims={unreduced}}")
SHARDINGS = (ROWS, COLUMNS, BLOCKS, HALVES, TURNED, "{replicated}")

SUM = binary("add", name="sum")
LARGEST = binary("maximum", name="largest")

PROGRAMS = {
    "elementwise": "ROOT r = f32[8,8] multiply(x, y)",
    "broadcast": """
      v = f32[8] slice(z), slice={[0:8]}
      b = f32[8,8] broadcast(v), dimensions={0}
      ROOT r = f32[8,8] add(x, b)""",
    "transpose": "ROOT r = f32[8,8] transpose(x), dimensions={1,0}",
    "split": "ROOT r = f32[4,2,8] reshape(x), sharding={devices=[4,1,1]<=[4]}",
    "merged": "ROOT r = f32[64] reshape(x), sharding={devices=[4]<=[4]}",
    "dot": "ROOT r = f32[8,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "dot of both sides": "ROOT r = f32[8,8] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "batched dot": """
      a = f32[8,2,4] reshape(x)
      b = f32[8,2,4] reshape(y)
      ROOT r = f32[8,2,2] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
        rhs_contracting_dims={2}""",
    "sum of rows": "i = f32[] constant(3)\n ROOT r = f32[8] reduce(x, i), dimensions={1}, to_apply=sum",
    "sum of all": "i = f32[] constant(3)\n ROOT r = f32[] reduce(x, i), dimensions={0,1}, to_apply=sum",
    "largest": "i = f32[] constant(-9)\n ROOT r = f32[8] reduce(x, i), dimensions={0}, to_apply=largest",
    "concatenate": "ROOT r = f32[8,16] concatenate(x, y), dimensions={1}",
    "slice": "ROOT r = f32[8,3] slice(x), slice={[0:8], [2:8:2]}",
    "pad": "i = f32[] constant(7)\n ROOT r = f32[8,12] pad(x, i), padding=0_0x1_3",
    "reverse": "ROOT r = f32[8,8] reverse(x), dimensions={1}",
    "dynamic slice": """
      n = s32[] constant(2)
      o = s32[] constant(0)
      ROOT r = f32[8,4] dynamic-slice(x, o, n), dynamic_slice_sizes={8,4}""",
    "dynamic update": """
      n = s32[] constant(2)
      o = s32[] constant(0)
      u = f32[8,4] slice(y), slice={[0:8], [0:4]}
      ROOT r = f32[8,8] dynamic-update-slice(x, u, o, n)""",
    "gather of rows": """
      n = s32[6] constant({5, 0, 7, 7, 2, 1})
      ROOT r = f32[6,8] gather(x, n), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
        index_vector_dim=1, slice_sizes={1,8}""",
    "triangular solve": """
      ROOT r = f32[8,8] triangular-solve(x, y), left_side=true, lower=true, unit_diagonal=true,
        transpose_a=NO_TRANSPOSE""",
    "constraint": """
      t = f32[8,8] tanh(x)
      s = f32[8,8] custom-call(t), custom_call_target="Sharding", sharding={devices=[2,2]<=[2,2]T(1,0)}
      ROOT r = f32[8,8] dot(s, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "uneven constraint": """
      t = f32[5,8] slice(x), slice={[0:5], [0:8]}
      ROOT s = f32[5,8] custom-call(t), custom_call_target="Sharding", sharding={devices=[4,1]<=[4]}""",
    "tuple": """
      a = f32[8,8] add(x, y)
      t = (f32[8,8], f32[8,8]) tuple(a, x)
      b = f32[8,8] get-tuple-element(t), index=0
      ROOT r = (f32[8,8], f32[8,8], f32[64]) tuple(b, x, z)""",
}


def module_of(body: str, sharding: str) -> HloModule:
    known = [*SHARDINGS, *UNREDUCED]
    other = SHARDINGS[(known.index(sharding) + 2) % len(SHARDINGS)]
    text = f"""HloModule m
{SUM}
{LARGEST}
ENTRY main {{
  x = f32[8,8] parameter(0), sharding={sharding}
  y = f32[8,8] parameter(1), sharding={other}
  z = f32[64] parameter(2), sharding={{devices=[4]<=[4]}}
  {body}
}}"""
    return HloModule.from_text(text)


def arguments() -> list[Any]:
    """Small integers: sums are exact in any order."""
    random = np.random.default_rng(1)
    return [random.integers(-4, 5, shape).astype(np.float32) for shape in ((8, 8), (8, 8), (64,))]


@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_partitioned_program_gives_the_same(name: str, sharding: str) -> None:
    module = module_of(PROGRAMS[name], sharding)
    wanted = leaves_of(hloom.compile(module, "evaluator")(*arguments()))
    partitioned, found = run_partitioned(module, 4, arguments())
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        if name == "triangular solve":
            scale = np.abs(other).max()
            agreement.within(one, other, 64 * np.finfo(np.float32).eps * scale)
        elif name == "constraint":
            agreement.within(one, other, 8 * 4 * 2 * np.finfo(np.float32).eps)
        else:
            agreement.equal(one, other)
    assert partitioned.parameters[2].tiles == (4,)


@pytest.mark.parametrize("name", ["dot", "sum of all", "merged", "constraint"])
def test_native_code_gives_what_the_evaluator_gives(name: str) -> None:
    module = module_of(PROGRAMS[name], BLOCKS)
    _, evaluated = run_partitioned(module, 4, arguments())
    _, compiled = run_partitioned(module, 4, arguments(), "cpu")
    for one, other in zip(compiled, evaluated, strict=True):
        agreement.within(one, other, 8 * 4 * 4 * np.finfo(np.float32).eps)


LOOP = """HloModule m
%s
condition {
  c = (s32[], f32[8,8]) parameter(0)
  n = s32[] get-tuple-element(c), index=0
  k = s32[] constant(5)
  ROOT p = pred[] compare(n, k), direction=LT
}
body {
  c = (s32[], f32[8,8]) parameter(0)
  n = s32[] get-tuple-element(c), index=0
  v = f32[8,8] get-tuple-element(c), index=1
  o = s32[] constant(1)
  m = s32[] add(n, o)
  i = f32[] constant(0)
  s = f32[8] reduce(v, i), dimensions={0}, to_apply=sum
  b = f32[8,8] broadcast(s), dimensions={1}
  w = f32[8,8] subtract(b, v)
  ROOT t = (s32[], f32[8,8]) tuple(m, w)
}
ENTRY main {
  x = f32[8,8] parameter(0), sharding={devices=[4,1]<=[4]}
  z = s32[] constant(0)
  t = (s32[], f32[8,8]) tuple(z, x)
  l = (s32[], f32[8,8]) while(t), condition=condition, body=body
  ROOT r = f32[8,8] get-tuple-element(l), index=1
}"""


def test_loops_carry_tiles() -> None:
    module = HloModule.from_text(LOOP % SUM)
    x = np.arange(64, dtype=np.float32).reshape(8, 8) % 3
    partitioned, found = run_partitioned(module, 4, [x])
    agreement.equal(found[0], hloom.compile(module, "evaluator")(x))
    assert partitioned.results[0].tiles == (4, 1)
    assert "all-reduce" in partitioned.module.to_text()
    assert "all-gather" not in partitioned.module.to_text()


def test_products_of_cut_dimensions_are_summed_over_devices() -> None:
    body = "ROOT r = f32[] dot(z, z), lhs_contracting_dims={0}, rhs_contracting_dims={0}"
    text = partitioned_program(module_of(body, ROWS), 4).module.to_text()
    assert "all-reduce" in text
    assert "all-gather" not in text


def test_tiles_that_a_device_lacks_are_refused() -> None:
    with pytest.raises(HloError, match=r"\[sharding\.device\]"):
        partitioned_program(module_of(PROGRAMS["elementwise"], ROWS), 2)


REGION = """HloModule m

%s

ENTRY e {
  x = f32[8,8] parameter(0)
  cut = f32[8,8] copy(x), sharding={devices=[2,2]<=[4]}
  tile = f32[4,%d] custom-call(cut), custom_call_target="SPMDFullToShardShape", sharding={manual}
  device = u32[] partition-id(), sharding={manual}
  number = f32[] convert(device), sharding={manual}
  spread = f32[4,4] broadcast(number), dimensions={}, sharding={manual}
  moved = f32[4,4] add(tile, spread), sharding={manual}
  ROOT r = f32[8,8] custom-call(moved), custom_call_target="SPMDShardToFullShape",
    sharding={devices=[2,2]<=[4]}
}"""


def test_regions_of_tiles_without_shardy() -> None:
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    partitioned, found = run_partitioned(HloModule.from_text(REGION % (SUM, 4)), 4, [x])
    agreement.equal(found[0], x + np.kron(np.arange(4, dtype=np.float32).reshape(2, 2), np.ones((4, 4))))
    assert "custom-call" not in partitioned.module.to_text()


def test_a_tile_of_another_shape_is_refused() -> None:
    with pytest.raises(HloError, match=r"\[sharding\.manual-axes\]"):
        partitioned_program(HloModule.from_text(REGION.replace("f32[4,4]", "f32[4,8]") % (SUM, 8)), 4)


@pytest.mark.parametrize("sharding", UNREDUCED)
def test_summands_are_added_where_their_sum_is_needed(sharding: str) -> None:
    body = f"""
      t = f32[8,8] add(x, y)
      s = f32[8,8] custom-call(t), custom_call_target="Sharding", sharding={sharding}
      u = (f32[8,8]) tuple(s)
      v = (f32[8,8]) opt-barrier(u)
      w = f32[8,8] get-tuple-element(v), index=0
      n = f32[8,8] negate(w)
      ROOT r = (f32[8,8], f32[8,8]) tuple(n, w), sharding={{{{replicated}}, {{replicated}}}}"""
    module = module_of(body, BLOCKS)
    wanted = leaves_of(hloom.compile(module, "evaluator")(*arguments()))
    partitioned, found = run_partitioned(module, 4, arguments())
    for one, other in zip(found, wanted, strict=True):
        agreement.equal(one, other)
    opcodes = {i.opcode for i in partitioned.module.instructions()}
    assert opcodes & {"select", "dynamic-update-slice"}, "tiles become summands"
    assert opcodes & {"all-reduce", "reduce-scatter"}, "summands are added"


@pytest.mark.parametrize("sharding", [*SHARDINGS, *UNREDUCED])
def test_shardings_and_tilings_say_the_same(sharding: str) -> None:
    stated = module_of(PROGRAMS["elementwise"], sharding).entry.parameters[0].sharding
    tiling = Tiling.of(stated, 2, 4)
    assert Tiling.of(tiling.to_sharding(), 2, 4) == tiling


@pytest.mark.parametrize(
    ("named", "tiled"),
    [
        ("{mesh['x'=2,'y'=2] [{'x'},{'y'}]}", BLOCKS),
        ("{mesh['x'=2,'y'=2] [{'y'},{'x'}]}", TURNED),
        ("{mesh['x'=2,'y'=2] [{'x','y'},{}]}", ROWS),
        ("{mesh['x'=4] [{'x':(1)2},{'x':(2)2}]}", BLOCKS),
        ("{mesh['x'=2,'y'=2] [{'x'},{}], replicated={'y'}}", HALVES),
        ("{mesh['x'=2,'y'=2] [{'x'},{}], unreduced={'y'}}", UNREDUCED[1]),
        ("{mesh['x'=2,'y'=2], device_ids=(0,2,1,3) [{'x'},{'y'}]}", TURNED),
        ("{mesh['x'=2,'y'=2] replicated}", "{replicated}"),
        ("{maximal_mesh[device_id=1]}", "{replicated}"),
    ],
)
def test_shardings_over_a_mesh_are_tilings(named: str, tiled: str) -> None:
    program = "HloModule m\nENTRY e { ROOT x = f32[8,8] parameter(0), sharding=%s }"
    one, other = (HloModule.from_text(program % text).entry.root.sharding for text in (named, tiled))
    assert Tiling.of(one, 2, 4) == Tiling.of(other, 2, 4)


def test_open_dimensions_over_a_mesh_may_be_cut_further() -> None:
    module = HloModule.from_text("""HloModule m
      ENTRY e {
        x = f32[8,8] parameter(0), sharding={mesh['x'=2,'y'=2] [{'x'},{'y'}]}
        y = f32[8,8] negate(x)
        ROOT z = f32[8,8] custom-call(y), custom_call_target="Sharding",
          sharding={mesh['x'=2,'y'=2] [{'x'},{?}]} }""")
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    partitioned, (found,) = run_partitioned(module, 4, [x])
    agreement.equal(found, -x)
    assert partitioned.results[0].tiles == (2, 2)
    assert mesh_of(module) == {"x": 2, "y": 2}
    with pytest.raises(HloError, match=r"\[sharding\.device\]"):
        partitioned_program(module, 2)
