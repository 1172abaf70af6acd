"""Regions of tiles along some axes: values keep their cuts along the others."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.sharding.partitioning.partitioner import partitioned_program
from hloom.sharding.reporting.traffic import bytes_sent
from tests import agreement
from tests.reducers import with_reducers
from tests.sharding.runs import run_partitioned

X = np.arange(64, dtype=np.float32).reshape(8, 8)


def region(before: str, inside: str, behind: str, after: str = "ROOT z = f32[8,8] copy(r)") -> HloModule:
    """Return a program that squares an array in a region along the axis y; ``after`` it come other lines."""

    def cut(axes: str) -> str:
        return axes.replace('"', '\\"')

    return HloModule.from_text(f"""
      HloModule m, frontend_attributes={{xla.sdy.meshes={{mesh = #sdy.mesh<["x"=2, "y"=2]>}}}}
      ENTRY e {{
        x = f32[8,8] parameter(0), frontend_attributes={{
          xla.sdy.sharding="#sdy.sharding<@mesh, {cut(before)}>"}}
        t = {inside} custom-call(x), custom_call_target="xla.sdy.GlobalToLocalShape",
          custom_call_has_side_effect=true, frontend_attributes={{
            xla.sdy.in_shardings="#sdy.sharding_per_value<[<@mesh, {cut(behind)}>]>",
            xla.sdy.manual_axes="#sdy<manual_axes{{\\"y\\"}}>"}}
        s = {inside} multiply(t, t)
        r = f32[8,8] custom-call(s), custom_call_target="xla.sdy.LocalToGlobalShape",
          custom_call_has_side_effect=true, frontend_attributes={{
            xla.sdy.out_shardings="#sdy.sharding_per_value<[<@mesh, {cut(behind)}>]>",
            xla.sdy.manual_axes="#sdy<manual_axes{{\\"y\\"}}>"}}
        {after}
      }}""")


@pytest.mark.parametrize(
    ("before", "inside", "behind", "tiles"),
    [
        ('[{"x"}, {}]', "f32[8,8]", "[{?}, {?}]", (2, 1)),
        ('[{"x"}, {}]', "f32[8,4]", '[{?}, {"y"}]', (2, 2)),
        ('[{"x"}, {"y"}]', "f32[8,4]", '[{?}, {"y"}]', (2, 2)),
        ('[{}, {"x"}]', "f32[8,8]", "[{?}, {?}]", (1, 2)),
        ('[{"y", "x"}, {}]', "f32[4,8]", '[{"y"}, {?}]', (4, 1)),
    ],
)
def test_cuts_along_other_axes_stay(before: str, inside: str, behind: str, tiles: tuple[int, int]) -> None:
    partitioned, (found,) = run_partitioned(region(before, inside, behind), 4, [X])
    agreement.equal(found, X * X)
    assert partitioned.results[0].tiles == tiles
    assert bytes_sent(partitioned.module) == 0


def test_a_dimension_that_a_manual_axis_cuts_is_whole_along_others() -> None:
    partitioned, (found,) = run_partitioned(region('[{"x"}, {}]', "f32[4,8]", '[{"y"}, {?}]'), 4, [X])
    agreement.equal(found, X * X)
    assert partitioned.results[0].tiles == (2, 1)


def test_regions_are_left_axis_by_axis() -> None:
    """Each call makes one dimension whole; tiles stay where they are."""
    module = HloModule.from_text("""HloModule m
      ENTRY e {
        p = s32[4,4,4] parameter(0), sharding={devices=[2,2,2]<=[8]}
        a = s32[2,2,2] custom-call(p), custom_call_target="SPMDFullToShardShape", sharding={manual}
        b = s32[4,2,2] custom-call(a), custom_call_target="SPMDShardToFullShape",
          sharding={devices=[2,1,1,4]<=[8] last_tile_dims={manual}}
        c = s32[4,4,2] custom-call(b), custom_call_target="SPMDShardToFullShape",
          sharding={devices=[2,2,1,2]<=[8] last_tile_dims={manual}}
        ROOT d = s32[4,4,4] custom-call(c), custom_call_target="SPMDShardToFullShape",
          sharding={devices=[2,2,2]<=[8]} }""")
    p = np.arange(64, dtype=np.int32).reshape(4, 4, 4)
    partitioned, (found,) = run_partitioned(module, 8, [p])
    agreement.equal(found, p)
    assert bytes_sent(partitioned.module) == 0


def test_a_region_is_left_to_tiles_of_more_axes_than_its_own() -> None:
    """The region cuts 8 elements into 4 tiles of 2, and passes each on to the next; outside there are 8."""
    module = HloModule.from_text("""HloModule m
      ENTRY e {
        p = s32[8] parameter(0), sharding={devices=[4,2]<=[8] last_tile_dim_replicate}
        a = s32[2] custom-call(p), custom_call_target="SPMDFullToShardShape",
          sharding={devices=[1,4,2]<=[8] last_tile_dims={manual, replicated}}
        b = s32[2] collective-permute(a), channel_id=1,
          source_target_pairs={{0,2},{2,4},{4,6},{6,0},{1,3},{3,5},{5,7},{7,1}}
        ROOT c = s32[8] custom-call(b), custom_call_target="SPMDShardToFullShape",
          sharding={devices=[8]<=[8]} }""")
    p = np.arange(8, dtype=np.int32)
    partitioned, (found,) = run_partitioned(module, 8, [p])
    agreement.equal(found, np.roll(p, 2))
    assert partitioned.results[0].tiles == (8,)


def test_the_minor_cut_of_a_dimension_becomes_the_major_one() -> None:
    """Tiles of 2 rows change places, so that those of a place of y are neighbors."""
    partitioned, (found,) = run_partitioned(region('[{"x", "y"}, {}]', "f32[4,8]", '[{"y"}, {?}]'), 4, [X])
    agreement.equal(found, X * X)
    assert partitioned.results[0].tiles == (4, 1)
    assert bytes_sent(partitioned.module) == 2 * 8 * 4


def test_sums_inside_of_a_region_are_over_its_tiles() -> None:
    """Each place of y adds its 4 rows, of which each place of x has 2."""
    module = HloModule.from_text(
        with_reducers("""
      HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=2, "y"=2]>}}
      ENTRY e {
        x = f32[8,8] parameter(0), frontend_attributes={
          xla.sdy.sharding="#sdy.sharding<@mesh, [{\\"y\\", \\"x\\"}, {}]>"}
        t = f32[4,8] custom-call(x), custom_call_target="xla.sdy.GlobalToLocalShape",
          custom_call_has_side_effect=true, frontend_attributes={
            xla.sdy.in_shardings="#sdy.sharding_per_value<[<@mesh, [{\\"y\\"}, {?}]>]>",
            xla.sdy.manual_axes="#sdy<manual_axes{\\"y\\"}>"}
        zero = f32[] constant(0)
        s = f32[8] reduce(t, zero), dimensions={0}, to_apply=add
        ROOT r = f32[16] custom-call(s), custom_call_target="xla.sdy.LocalToGlobalShape",
          custom_call_has_side_effect=true, frontend_attributes={
            xla.sdy.out_shardings="#sdy.sharding_per_value<[<@mesh, [{\\"y\\"}]>]>",
            xla.sdy.manual_axes="#sdy<manual_axes{\\"y\\"}>"}
      }""")
    )
    _, (found,) = run_partitioned(module, 4, [X])
    agreement.equal(found, np.concatenate([X[:4].sum(0), X[4:].sum(0)]))


def constraint(of: str, shape: str, axes: str) -> str:
    escaped = axes.replace('"', '\\"')
    return (
        f'{shape} custom-call({of}), custom_call_target="Sharding", frontend_attributes={{'
        f'xla.sdy.sharding="#sdy.sharding_per_value<[<@mesh, {escaped}>]>"}}'
    )


@pytest.mark.parametrize(
    ("behind", "root", "tiles"),
    [
        ("", constraint("r", "f32[8,8]", "[{?}, {?}]"), (2, 2)),
        ("", constraint("r", "f32[8,8]", '[{"x"}, {?}]'), (2, 2)),
        ("q = f32[8,8] negate(r)", constraint("q", "f32[8,8]", "[{?}, {?}]"), (2, 2)),
        ("q = f32[8,8] transpose(r), dimensions={1,0}", constraint("q", "f32[8,8]", "[{?}, {?}]"), (2, 2)),
        ("q = f32[8,8] reverse(r), dimensions={0}", constraint("q", "f32[8,8]", "[{?}, {?}]"), (2, 2)),
        ("q = " + constraint("r", "f32[8,8]", "[{?}, {?}]"), "f32[8,8] negate(q)", (2, 2)),
        ("", constraint("r", "f32[8,8]", "[{}, {?}]"), (1, 2)),
        ("", constraint("r", "f32[8,8]", "[{?}, {}]"), (2, 1)),
    ],
)
def test_open_dimensions_behind_a_region_keep_their_cuts(
    behind: str, root: str, tiles: tuple[int, int]
) -> None:
    module = region('[{"x"}, {"y"}]', "f32[8,4]", '[{?}, {"y", ?}]', f"{behind}\nROOT z = {root}")
    partitioned, (found,) = run_partitioned(module, 4, [X])
    moved = {"transpose": (X * X).T, "reverse": (X * X)[::-1]}
    agreement.equal(np.abs(found), next((moved[word] for word in moved if word in behind), X * X))
    assert partitioned.results[0].tiles == tiles
    opcodes = {i.opcode for i in partitioned.module.entry.instructions}
    assert ("all-gather" in opcodes) == (tiles != (2, 2))


def named_region(before: str, inside: str, dimensions: str, manual: str, local: str = "") -> HloModule:
    """Return a program that squares an array in a region, whose borders state shardings over a mesh."""
    mesh = "mesh['x'=2,'y'=2]"
    local = local or f"sharding={{{mesh}, {manual}}}"
    return HloModule.from_text(f"""
      HloModule m
      pair {{
        v = {inside} parameter(0)
        w = {inside} multiply(v, v)
        ROOT u = ({inside}, {inside}) tuple(v, w)
      }}
      ENTRY e {{
        x = f32[8,8] parameter(0), sharding={{{mesh}, {before}}}
        c = f32[8,8] custom-call(x), custom_call_target="Sharding", sharding={{{mesh}, {dimensions}}}
        t = {inside} custom-call(c), custom_call_target="xla.sdy.GlobalToLocalShape", {local}
        s = ({inside}, {inside}) call(t), to_apply=pair,
          sharding={{{{{mesh}, {manual}}}, {{{mesh}, {manual}}}}}
        l = {inside} get-tuple-element(s), index=1
        ROOT r = f32[8,8] custom-call(l), custom_call_target="xla.sdy.LocalToGlobalShape",
          sharding={{{mesh}, {dimensions}}}
      }}""")


@pytest.mark.parametrize(
    ("before", "inside", "dimensions", "manual", "tiles"),
    [
        ("[{'x'}, {'y'}]", "f32[4,4]", "[{'x'}, {'y'}]", "manual", (2, 2)),
        ("[{'x', 'y'}, {}]", "f32[2,8]", "[{'x', 'y'}, {}]", "manual", (4, 1)),
        ("[{'x'}, {}]", "f32[8,4]", "[{?}, {'y', ?}]", "[{?}, {?}], manual={'y'}", (2, 2)),
        ("[{}, {'x'}]", "f32[4,8]", "[{'y', ?}, {?}]", "[{?}, {?}], manual={'y'}", (2, 2)),
    ],
)
def test_regions_over_a_mesh(
    before: str, inside: str, dimensions: str, manual: str, tiles: tuple[int, int]
) -> None:
    partitioned, (result,) = run_partitioned(named_region(before, inside, dimensions, manual), 4, [X])
    agreement.equal(result, X * X)
    assert partitioned.results[0].tiles == tiles
    assert bytes_sent(partitioned.module) == 0


def test_a_border_states_how_its_values_are_sharded() -> None:
    module = named_region("[{'x'}, {}]", "f32[4,8]", "[{'x'}, {}]", "manual", local="backend_config={}")
    with pytest.raises(HloError, match="%t has no sharding over a mesh at the border %t") as caught:
        partitioned_program(module, 4)
    assert caught.value.rule == "sharding.manual-axes"
