"""Verdicts on programs of several devices: right partitionings are proved, wrong ones are refuted."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from hloom import HloError, HloModule
from hloom.proofs import Relation, Verdict
from hloom.proofs.partitioned import annotated_tilings, prove_partitioned
from hloom.proofs.tile_search import TileSearch
from hloom.sharding import partitioned_program
from hloom.tools.cli import main

REDUCERS = """
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }
add_bf16 { a = bf16[] parameter(0) b = bf16[] parameter(1) ROOT r = bf16[] add(a, b) }
"""
UNEVEN = """
a = f32[6,8] parameter(0), sharding={devices=[4,1]<=[4]}
b = f32[8,6] parameter(1), sharding={devices=[4,1]<=[4]}
d = f32[6,6] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
ROOT r = f32[6,6] exponential(d), sharding={devices=[1,4]<=[4]}"""
CONTRACTED = """
a = f32[6,8] parameter(0), sharding={devices=[1,4]<=[4]}
b = f32[8,6] parameter(1), sharding={devices=[4,1]<=[4]}
ROOT d = f32[6,6] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated}"""
LARGEST = """
a = f32[7,3] parameter(0), sharding={devices=[4,1]<=[4]}
low = f32[] constant(-inf)
ROOT m = f32[3] reduce(a, low), dimensions={0}, to_apply=max, sharding={replicated}"""
EVEN_LARGEST = LARGEST.replace("[7,3]", "[8,3]")
SLICED = """
a = f32[8] parameter(0), sharding={devices=[4]<=[4]}
s = s32[] parameter(1)
ROOT d = f32[2] dynamic-slice(a, s), dynamic_slice_sizes={2}, sharding={replicated}"""

EXCHANGED = """
a = f32[24,24] parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
b = f32[24,32] parameter(1), sharding={devices=[2,2]<=[4]}
ROOT d = f32[24,32] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0},
  sharding={devices=[2,2]1,0,3,2}"""
"""The product of XLA's test Dot2DPartitionedNoncontractingAndContracting3: XLA moves no columns."""
UPDATED = """
a = f32[32] parameter(0), sharding={devices=[4]<=[4]}
u = f32[8] parameter(1), sharding={replicated}
s = s32[] parameter(2)
ROOT d = f32[32] dynamic-update-slice(a, u, s), sharding={devices=[4]<=[4]}"""


def program(body: str) -> HloModule:
    """Return a program for four devices."""
    return HloModule.from_text(f"HloModule m, num_partitions=4\n{REDUCERS}\nENTRY e {{{body}\n}}")


def verdict(whole: str, local: str) -> Verdict:
    """Return the verdict on the program of a device, for the annotated tiles."""
    module = program(whole)
    return prove_partitioned(module, program(local), *annotated_tilings(module, 4), samples=4)


@pytest.mark.parametrize(
    ("body", "relation"),
    [
        (UNEVEN, Relation.IDENTICAL),
        (CONTRACTED, Relation.EQUAL_OVER_REALS),
        (LARGEST, Relation.IDENTICAL),
    ],
)
def test_the_partitioner_is_proved(body: str, relation: Relation) -> None:
    module = program(body)
    partitioned = partitioned_program(module, 4)
    found = prove_partitioned(module, partitioned.module, partitioned.parameters, partitioned.results)
    assert found.relation is relation


def largest(collective: str) -> str:
    """Return a device's maximum over rows, with a collective that combines the maxima of the devices."""
    return f"""
    a = f32[2,3] parameter(0) low = f32[] constant(-inf)
    m = f32[3] reduce(a, low), dimensions={{0}}, to_apply=max
    ROOT r = f32[3] {collective}"""


EVERY = "channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true"
WRONG = {
    "maxima of shards are added": (EVEN_LARGEST, largest(f"all-reduce(m), to_apply=add, {EVERY}")),
    "an all-reduce is lost": (EVEN_LARGEST, largest("copy(m)")),
    "groups of an all-reduce are too small": (
        EVEN_LARGEST,
        largest(f"all-reduce(m), to_apply=max, {EVERY}".replace("0,1,2,3", "0,1},{2,3")),
    ),
    "padding is reduced": (LARGEST, largest(f"all-reduce(m), to_apply=max, {EVERY}")),
    "tiles of two devices are exchanged": (
        EXCHANGED,
        f"""
        a = f32[12,24] parameter(0) b = f32[12,16] parameter(1)
        d = f32[24,16] dot(a, b), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
        s = f32[24,16] all-reduce(d), to_apply=add, {EVERY.replace("0,1,2,3", "0,2},{1,3")}
        p = u32[] partition-id() two = u32[] constant(2) q = u32[] divide(p, two)
        n = u32[] constant(12) o = u32[] multiply(q, n) z = u32[] constant(0)
        ROOT r = f32[12,16] dynamic-slice(s, o, z), dynamic_slice_sizes={{12,16}}""",
    ),
    "no shard owns an update that needs a limit": (
        UPDATED,
        """
        a = f32[8] parameter(0) u = f32[8] parameter(1) s = s32[] parameter(2) eight = s32[] constant(8)
        p = u32[] partition-id() n = s32[] convert(p) o = s32[] multiply(n, eight) t = s32[] subtract(o, s)
        i = s32[8] iota(), iota_dimension=0 first = s32[8] broadcast(t), dimensions={}
        x = s32[8] add(i, first) z = s32[] constant(0) zeros = s32[8] broadcast(z), dimensions={}
        eights = s32[8] broadcast(eight), dimensions={} above = pred[8] compare(x, zeros), direction=GE
        below = pred[8] compare(x, eights), direction=LT is_here = pred[8] and(above, below)
        v = f32[8] gather(u, x), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0},
          index_vector_dim=1, slice_sizes={1}
        ROOT r = f32[8] select(is_here, v, a)""",
    ),
    "each shard clamps a slice": (
        SLICED,
        """
        a = f32[2] parameter(0) s = s32[] parameter(1) two = s32[] constant(2)
        p = u32[] partition-id() n = s32[] convert(p) o = s32[] multiply(n, two) t = s32[] subtract(s, o)
        ROOT d = f32[2] dynamic-slice(a, t), dynamic_slice_sizes={2}""",
    ),
}


NARROW = """
    a = bf16[16,128] parameter(0), sharding={devices=[1,4]<=[4]}
    b = bf16[128,16] parameter(1), sharding={devices=[4,1]<=[4]}
    ROOT d = bf16[16,16] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0},
      sharding={replicated}"""


def test_partial_sums_that_a_device_rounds_are_no_refutation() -> None:
    local = """
    a = bf16[16,32] parameter(0) b = bf16[32,16] parameter(1)
    d = bf16[16,16] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    ROOT r = bf16[16,16] """
    assert verdict(NARROW, f"{local} all-reduce(d), to_apply=add_bf16, {EVERY}").relation is Relation.OPEN
    assert verdict(NARROW, f"{local} copy(d)").relation is Relation.REFUTED


def test_maxima_of_shards_are_proved() -> None:
    local = largest(f"all-reduce(m), to_apply=max, {EVERY}")
    assert verdict(EVEN_LARGEST, local).relation is Relation.IDENTICAL
    in_another_order = local.replace("0,1,2,3", "3,1,0,2")
    assert verdict(EVEN_LARGEST, in_another_order).relation is Relation.IDENTICAL


def test_the_order_of_an_all_gather_matters() -> None:
    whole = """
    a = f32[8] parameter(0), sharding={devices=[4]<=[4]}
    ROOT n = f32[8] negate(a), sharding={replicated}"""
    local = f"""
    a = f32[2] parameter(0) n = f32[2] negate(a)
    ROOT r = f32[8] all-gather(n), dimensions={{0}}, {EVERY}"""
    assert verdict(whole, local).relation is Relation.IDENTICAL
    assert verdict(whole, local.replace("0,1,2,3", "1,0,2,3")).relation is Relation.REFUTED


@pytest.mark.parametrize(("whole", "local"), WRONG.values(), ids=WRONG)
def test_wrong_programs_are_refuted(whole: str, local: str) -> None:
    found = verdict(whole, local)
    assert found.relation is Relation.REFUTED
    assert any("of device" in c.name for c in found.comparisons if c.wrong)


def test_tiles_of_another_size_are_refused() -> None:
    with pytest.raises(HloError) as error:
        verdict(EVEN_LARGEST, "a = f32[3,3] parameter(0) ROOT r = f32[3] constant({1,2,3})")
    assert error.value.rule == "prove.tiles"


def test_the_command(tmp_path: Path) -> None:
    texts = [
        EVEN_LARGEST,
        *WRONG["an all-reduce is lost"][1:],
        largest(f"all-reduce(m), to_apply=max, {EVERY}"),
    ]
    paths = [tmp_path / f"{n}.hlo" for n in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(program(text).to_text())
    statuses = [
        CliRunner().invoke(main, ["prove", "--partitioned", str(paths[0]), str(path)]).exit_code
        for path in paths[1:]
    ]
    assert statuses == [1, 0]


def test_zeros_of_a_constant_keep_their_signs() -> None:
    whole = """
    a = f32[2] parameter(0), sharding={replicated}
    c = f32[2] constant({0, -0})
    ROOT r = f32[2] divide(a, c), sharding={replicated}"""
    assert verdict(whole, whole).relation is Relation.IDENTICAL
    assert verdict(whole, whole.replace("-0}", "0}")).relation is Relation.EQUAL_OVER_REALS


def test_windows_of_an_empty_array_hold_initial_values() -> None:
    whole = """
    a = f32[0] parameter(0), sharding={replicated}
    low = f32[] parameter(1), sharding={replicated}
    ROOT m = f32[1] reduce-window(a, low), window={size=1 pad=0_1}, to_apply=max, sharding={replicated}"""
    local = "a = f32[0] parameter(0) low = f32[] parameter(1) ROOT m = f32[1] reshape(low)"
    assert verdict(whole, local).relation is Relation.IDENTICAL


def test_constants_of_a_program_are_tried_as_arguments() -> None:
    """A device that takes 1234 for 1233, and random arguments have neither."""
    whole = """
    a = s32[8] parameter(0), sharding={devices=[4]<=[4]}
    n = s32[] constant(1234) m = s32[8] broadcast(n), dimensions={}
    ROOT r = pred[8] compare(a, m), direction=LT, sharding={devices=[4]<=[4]}"""
    local = """
    a = s32[2] parameter(0) n = s32[] constant(1233) m = s32[2] broadcast(n), dimensions={}
    ROOT r = pred[2] compare(a, m), direction=LT"""
    found = verdict(whole, local)
    assert found.relation is Relation.REFUTED
    assert found.inputs.startswith("constants")


REGION = """
    a = f32[8,4] parameter(0), sharding={devices=[4,1]<=[4]}
    t = f32[2,4] custom-call(a), custom_call_target="SPMDFullToShardShape", sharding={manual}
    e = f32[2,4] exponential(t), sharding={manual}
    s = f32[2,4] all-reduce(e), to_apply=max, GROUPS, sharding={manual}
    d = f32[2,4] subtract(t, s), sharding={manual}
    ROOT r = f32[8,4] custom-call(d), custom_call_target="SPMDShardToFullShape",
      sharding={devices=[4,1]<=[4]}"""
REGION = REGION.replace("GROUPS", EVERY)
OF_REGION = f"""
    t = f32[2,4] parameter(0)
    e = f32[2,4] exponential(t)
    s = f32[2,4] all-reduce(e), to_apply=max, {EVERY}
    ROOT d = f32[2,4] subtract(t, s)"""


@pytest.mark.parametrize(
    ("whole", "local", "is_proof"),
    [
        (REGION, OF_REGION, True),
        (
            REGION.replace("ROOT r = f32[8,4] custom-call(d)", "ROOT r = f32[8,4] custom-call(e)"),
            OF_REGION,
            False,
        ),
        (REGION, OF_REGION.replace("0,1,2,3", "0,1},{2,3"), False),
        (
            REGION.replace(
                'SPMDShardToFullShape",\n      sharding={devices=[4,1]<=[4]',
                'SPMDShardToFullShape",\n      sharding={devices=[4,1]3,2,1,0',
            ),
            OF_REGION,
            False,
        ),
    ],
    ids=["the region's program", "another value", "other groups", "tiles in another order"],
)
def test_a_region_of_manual_partitioning(whole: str, local: str, is_proof: bool) -> None:
    assert verdict(whole, local).relation.is_proof == is_proof


SHARDY = """HloModule m, num_partitions=4,
  frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=2, "y"=2]>}}
  max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }
  ENTRY e {
    a = f32[8,4] parameter(0), sharding={devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}
    b = f32[4] parameter(1), sharding={replicated}
    t = (f32[4,4], f32[4]) custom-call(a, b), custom_call_target="xla.sdy.GlobalToLocalShape",
      custom_call_has_side_effect=true, frontend_attributes={
        xla.sdy.in_shardings="#sdy.sharding_per_value<[<@mesh, [{\\"y\\"}, {?}]>, <@mesh, [{?}]>]>",
        xla.sdy.manual_axes="#sdy<manual_axes{\\"y\\"}>"}
    u = f32[4,4] get-tuple-element(t), index=0
    v = f32[4] get-tuple-element(t), index=1
    w = f32[4,4] broadcast(v), dimensions={1}
    e = f32[4,4] add(u, w)
    s = f32[4,4] all-reduce(e), to_apply=max, replica_groups={{0,1},{2,3}}, channel_id=1,
      use_global_device_ids=true
    d = f32[4,4] subtract(u, s)
    ROOT r = f32[8,4] custom-call(d), custom_call_target="xla.sdy.LocalToGlobalShape",
      custom_call_has_side_effect=true, frontend_attributes={
        xla.sdy.out_shardings="#sdy.sharding_per_value<[<@mesh, [{\\"y\\"}, {?}]>]>",
        xla.sdy.manual_axes="#sdy<manual_axes{\\"y\\"}>"},
      sharding={devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}
  }"""
OF_SHARDY = """
    u = f32[4,4] parameter(0) v = f32[4] parameter(1)
    w = f32[4,4] broadcast(v), dimensions={1}
    e = f32[4,4] add(u, w)
    s = f32[4,4] all-reduce(e), to_apply=max, replica_groups={{0,1},{2,3}}, channel_id=1,
      use_global_device_ids=true
    ROOT d = f32[4,4] subtract(u, s)"""


@pytest.mark.parametrize(
    ("whole", "local", "is_proof"),
    [
        (SHARDY, OF_SHARDY, True),
        (SHARDY.replace("custom-call(d)", "custom-call(e)"), OF_SHARDY, False),
        (SHARDY, OF_SHARDY.replace("{0,1},{2,3}", "{0,2},{1,3}"), False),
        (SHARDY, OF_SHARDY.replace("subtract(u, s)", "subtract(e, s)"), False),
        (SHARDY.replace('"x"=2, "y"=2', '"y"=2, "x"=2'), OF_SHARDY, False),
    ],
    ids=["its program", "another value", "other groups", "another operand", "axes in another order"],
)
def test_a_manual_computation_of_shardy(whole: str, local: str, is_proof: bool) -> None:
    """Regions along an axis: collectives are those of the devices, values along the other axis equal."""
    module = HloModule.from_text(whole)
    found = prove_partitioned(module, program(local), *annotated_tilings(module, 4), samples=2)
    assert found.relation.is_proof == is_proof


@pytest.mark.parametrize("named", [False, True])
def test_hlooms_partitioner_is_proved_on_manual_computations(named: bool) -> None:
    whole = HloModule.from_text(NAMED_REGION if named else SHARDY)
    local = partitioned_program(whole, 4)
    tilings = local.parameters, local.results
    assert prove_partitioned(whole, local.module, *tilings, samples=2).relation.is_proof


NAMED_REGION = """HloModule m, num_partitions=4
  ENTRY e {
    x = f32[8,8] parameter(0), sharding={mesh['x'=2,'y'=2], [{'x'}, {'y'}]}
    s = f32[8,8] custom-call(x), custom_call_target="Sharding", sharding={mesh['x'=2,'y'=2], [{'y'}, {?}]}
    t = f32[4,8] custom-call(s), custom_call_target="xla.sdy.GlobalToLocalShape",
      custom_call_has_side_effect=true, sharding={mesh['x'=2,'y'=2], [{?}, {?}], manual={'y'}}
    u = f32[4,8] negate(t), sharding={mesh['x'=2,'y'=2], [{?}, {?}], manual={'y'}}
    ROOT r = f32[8,8] custom-call(u), custom_call_target="xla.sdy.LocalToGlobalShape",
      custom_call_has_side_effect=true, sharding={mesh['x'=2,'y'=2], [{'y'}, {?}]}
  }"""


GATHERED = f"""
    a = f32[4] parameter(0), sharding={{replicated}}
    p = u32[] partition-id()
    n = f32[] convert(p)
    f = f32[4] broadcast(n), dimensions={{}}
    s = f32[4] add(a, f)
    ROOT r = f32[16] all-gather(s), dimensions={{0}}, {EVERY}"""


def test_a_global_program_of_which_every_device_has_all_arrays() -> None:
    assert verdict(GATHERED, GATHERED).relation.is_proof
    wrong = GATHERED.replace("all-gather(s)", "all-gather(a)")
    assert not verdict(GATHERED, wrong).relation.is_proof
    divided = GATHERED.replace("f32[4] parameter(0), sharding={replicated}", "f32[4] parameter(0)")
    divided += ", sharding={devices=[4]<=[4]}"
    tile = "ROOT r = f32[4] all-reduce(s), to_apply=add, "
    local = GATHERED.replace("ROOT r = f32[16] all-gather(s), dimensions={0}, ", tile)
    assert "collectives" in verdict(divided, local).reason


FIRST_ADDS = """
    a = f32[4] parameter(0), sharding={replicated}
    b = f32[8,4] parameter(1), sharding={devices=[4,1]<=[4]}
    zero = f32[] constant(0)
    t = f32[4] reduce(b, zero), dimensions={0}, to_apply=add
    ROOT r = f32[4] add(a, t), sharding={replicated}"""


@pytest.mark.parametrize(("table", "relation"), [("0,1,2,1", "equal over the reals"), ("0,0,1,1", "refuted")])
def test_one_device_adds_what_all_have(table: str, relation: str) -> None:
    local = f"""
    a = f32[4] parameter(0) b = f32[2,4] parameter(1) zero = f32[] constant(0)
    t = f32[4] reduce(b, zero), dimensions={{0}}, to_apply=add
    p = u32[] partition-id() table = s32[4] constant({{{table}}})
    n = s32[1] dynamic-slice(table, p), dynamic_slice_sizes={{1}}
    m = s32[] reshape(n) c = pred[] convert(m) w = pred[4] broadcast(c), dimensions={{}}
    z = f32[4] broadcast(zero), dimensions={{}}
    s = f32[4] select(w, z, a) u = f32[4] add(s, t)
    ROOT r = f32[4] all-reduce(u), to_apply=add, {EVERY}"""
    assert verdict(FIRST_ADDS, local).relation.value == relation


def test_regions_in_the_program_of_a_device_are_open() -> None:
    body = """
    a = f32[4] parameter(0), sharding={replicated}
    t = f32[4] custom-call(a), custom_call_target="SPMDFullToShardShape"
    ROOT r = f32[4] custom-call(t), custom_call_target="SPMDShardToFullShape", sharding={replicated}"""
    found = verdict(body, body)
    assert found.relation is Relation.OPEN
    assert "manual" in found.reason


def test_summands_of_parameters_are_no_padding() -> None:
    """Devices after the first one hold zeros of an argument that is a sum over devices."""
    text = "HloModule m\nENTRY e {{\n a = s32[4] parameter(0){0}\n b = s32[4] parameter(1){0}\n {1} }}"
    sharding = ", sharding={mesh['x'=2], [{}], unreduced={'x'}}"
    whole = HloModule.from_text(text.format(sharding, "ROOT r = s32[4] add(a, b)"))
    wrong = HloModule.from_text(text.format(sharding, "ROOT r = s32[4] subtract(a, b)"))
    right = partitioned_program(whole, 2)
    tilings = right.parameters, right.results
    assert prove_partitioned(whole, right.module, *tilings).relation.is_proof
    assert TileSearch(whole, right.module, *tilings).search(4) is None
    other = partitioned_program(wrong, 2).module
    assert prove_partitioned(whole, other, *tilings).relation is Relation.REFUTED
