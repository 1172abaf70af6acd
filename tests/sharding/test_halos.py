"""Halos: the pieces of ranges that devices give each other, in few permutations and few elements."""

from __future__ import annotations

import numpy as np
import pytest

import hloom
from hloom.ir.module import HloModule
from hloom.sharding.reading.preparation import prepared
from hloom.sharding.reporting.traffic import bytes_sent
from hloom.sharding.tiling.ranges import Halo
from tests import agreement
from tests.reducers import ADD
from tests.sharding.runs import run_partitioned

TILES = "{devices=[4]<=[4]}"


def test_segments_of_many_distances_share_a_permutation() -> None:
    """Tiles of 3: range 0 takes one element of tile 1, range 2 one of tile 1, range 3 two of tile 2."""
    halo = Halo(12, (1, 3, 5, 7), 3, (3, 3, 3, 3))
    local, *sent = [
        {p: (n.source, n.low, n.high) for p, n in exchange.segments.items()} for exchange in halo.rounds()
    ]
    assert local == {0: (0, 1, 3), 1: (1, 3, 6), 2: (2, 6, 8), 3: (3, 9, 10)}
    assert sent == [{3: (2, 7, 9), 2: (1, 5, 6)}, {0: (1, 3, 4)}]
    assert halo.sent() == 2 + 1


def test_elements_beyond_the_result_are_not_sent() -> None:
    """The tiles of a result of two elements have one each; the last two have none."""
    assert Halo(8, (0, 1, 2, 3), 1, (1, 1, 0, 0)).sent() == 1


@pytest.mark.parametrize(
    ("extent", "body", "elements"),
    [
        (8, "f32[1] slice(x), slice={[0:1]}", 0),
        (8, "f32[2] slice(x), slice={[0:2]}", 1),
        (32, "f32[2] slice(x), slice={[20:22]}", 2),
        # Ranges of 7 dilated elements, of which every third is one of x, begin at three phases.
        (8, "f32[28] pad(x, zero), padding=4_2_2", 1),
        (8, "f32[28] reduce-window(x, zero), window={size=3 pad=4_4 lhs_dilate=3}, to_apply=add", 1),
    ],
)
def test_results_of_halos_are_those_of_one_device(extent: int, body: str, elements: int) -> None:
    shape, rest = body.split(" ", 1)
    module = HloModule.from_text(f"""HloModule m
{ADD}    ENTRY e {{
      x = f32[{extent}] parameter(0), sharding={TILES}
      zero = f32[] constant(7)
      ROOT r = {shape} {rest}, sharding={TILES} }}""")
    x = np.arange(extent, dtype=np.float32)
    partitioned, found = run_partitioned(module, 4, [x])
    agreement.computed(found, module, [x])
    assert bytes_sent(partitioned.module) == 4 * elements


def test_slices_take_their_part_of_other_dimensions_before_they_fetch() -> None:
    module = HloModule.from_text("""HloModule m
    ENTRY e {
      x = f32[8,100] parameter(0), sharding={devices=[4,1]<=[4]}
      ROOT r = f32[4,3] slice(x), slice={[1:5], [20:23]}, sharding={devices=[4,1]<=[4]} }""")
    x = np.arange(800, dtype=np.float32).reshape(8, 100)
    partitioned, found = run_partitioned(module, 4, [x])
    agreement.computed(found, module, [x])
    # Rows 1 to 4 are on tiles 0, 1, 1, 2: tiles 1, 2, 3 take theirs from tiles 1, 1, 2.
    assert bytes_sent(partitioned.module) == 4 * 3


def test_only_tiles_with_elements_are_gathered() -> None:
    """The first two of four tiles have an element of the slice each, which they send to all."""
    module = HloModule.from_text(f"""HloModule m
    ENTRY e {{
      x = f32[4] parameter(0), sharding={TILES}
      s = f32[2] slice(x), slice={{[0:2]}}, sharding={TILES}
      ROOT r = f32[2] copy(s), sharding={{replicated}} }}""")
    x = np.asarray([-0.0, 1, 2, 3], np.float32)
    partitioned, (found,) = run_partitioned(module, 4, [x])
    agreement.same(found, x[:2])
    assert bytes_sent(partitioned.module) == 4 * 2


@pytest.mark.parametrize("window", ["size=7", "size=7 rhs_reversal=1", "size=7 rhs_reversal=1 pad=2_3"])
def test_parts_of_a_kernel_meet_their_range_of_the_input(window: str) -> None:
    """Each device has a part of the kernel, in either order, and adds up what it gives for all windows."""
    extent = 5 if "pad" in window else 0
    module = HloModule.from_text(f"""HloModule m
    ENTRY e {{
      x = f32[1,7,6] parameter(0), sharding={{devices=[1,4,1]<=[4]}}
      k = f32[7,6,5] parameter(1), sharding={{devices=[4,1,1]<=[4]}}
      ROOT r = f32[1,{extent + 1},5] convolution(x, k), window={{{window}}}, dim_labels=b0f_0io->b0f,
        sharding={{replicated}} }}""")
    random = np.random.default_rng(0)
    values = [random.integers(-3, 4, s).astype(np.float32) for s in ((1, 7, 6), (7, 6, 5))]
    partitioned, found = run_partitioned(module, 4, values)
    agreement.computed(found, module, values)
    assert "all-reduce" in {i.opcode for i in partitioned.module.instructions()}


def test_zeros_beyond_the_border_meet_an_infinite_kernel() -> None:
    """The first output is NaN, which one device, that leaves out products with padding, does not give."""
    module = HloModule.from_text("""HloModule m
    ENTRY e {
      x = f32[1,8,1] parameter(0), sharding={devices=[1,4,1]<=[4]}
      k = f32[3,1,1] parameter(1), sharding={replicated}
      ROOT r = f32[1,8,1] convolution(x, k), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f,
        sharding={devices=[1,4,1]<=[4]} }""")
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 8, 1)
    kernel = np.asarray([np.inf, 1, 1], np.float32).reshape(3, 1, 1)
    _, (found,) = run_partitioned(module, 4, [x, kernel])
    whole = np.asarray(hloom.compile(module, "evaluator")(x, kernel))
    agreement.same(whole.ravel(), np.asarray([3, *[np.inf] * 7], np.float32))
    agreement.same(found.ravel(), np.asarray([np.nan, *[np.inf] * 7], np.float32))


@pytest.mark.parametrize(
    ("have", "want", "elements"),
    [
        # Rows 0 to 5 are on two devices each, 3 in a tile; in tiles of 2 rows, device 1 needs row 3.
        ("{devices=[2,1,2]<=[4] last_tile_dim_replicate}", "{devices=[4,1]<=[4]}", 3),
        # Tiles of 2 rows, the fourth is empty; each of the tiles of 3 is needed twice.
        ("{devices=[4,1]<=[4]}", "{devices=[2,1,2]<=[4] last_tile_dim_replicate}", 12),
        ("{devices=[4,1]<=[4]}", "{devices=[4,1]2,0,1,3}", 6),
    ],
)
def test_new_tiles_are_made_of_ranges_of_old_ones(have: str, want: str, elements: int) -> None:
    module = HloModule.from_text(f"""HloModule m
    ENTRY e {{
      x = f32[6,3] parameter(0), sharding={have}
      ROOT r = f32[6,3] copy(x), sharding={want} }}""")
    x = np.arange(18, dtype=np.float32).reshape(6, 3)
    partitioned, (found,) = run_partitioned(module, 4, [x])
    agreement.same(found, x)
    assert bytes_sent(partitioned.module) == 4 * elements


def test_a_dimension_is_split_by_ranges() -> None:
    """Tiles have 6 of 24 elements; 2 rows are 8, so devices need 2, 4 and 6 elements of the next ones."""
    module = HloModule.from_text(f"""HloModule m
    ENTRY e {{
      x = f32[24] parameter(0), sharding={TILES}
      ROOT r = f32[6,4] reshape(x), sharding={{devices=[4,1]<=[4]}} }}""")
    x = np.arange(24, dtype=np.float32)
    partitioned, (found,) = run_partitioned(module, 4, [x])
    agreement.same(found, x.reshape(6, 4))
    assert bytes_sent(partitioned.module) == 4 * 6


def test_a_slice_of_a_pad_exchanges_one_halo() -> None:
    """Each of three devices gives the next one its element."""
    module = HloModule.from_text(f"""HloModule m
    ENTRY e {{
      x = f32[4] parameter(0), sharding={TILES}
      two = f32[] constant(2)
      p = f32[5] pad(x, two), padding=1_0, sharding={TILES}
      c = f32[5] copy(p), sharding={TILES}
      ROOT s = f32[4] slice(c), slice={{[0:4]}}, sharding={TILES} }}""")
    x = np.arange(4, dtype=np.float32)
    partitioned, (found,) = run_partitioned(module, 4, [x])
    agreement.same(found, np.r_[2, x[:3]].astype(np.float32))
    assert bytes_sent(partitioned.module) == 4


@pytest.mark.parametrize("start", [0, 1, 7, 8])
def test_a_slice_of_nothing_but_padding_takes_no_pad_of_less(start: int) -> None:
    """A pad that leaves no element of its operand has no halo to exchange; one that leaves some is merged."""
    module = HloModule.from_text(f"""HloModule m
    ENTRY e {{
      x = f32[4] parameter(0), sharding={TILES}
      two = f32[] constant(2)
      p = f32[12] pad(x, two), padding=4_4, sharding={TILES}
      ROOT s = f32[4] slice(p), slice={{[{start}:{start + 4}]}}, sharding={TILES} }}""")
    merged = prepared(module)
    assert ("slice(" in merged.to_text()) == (start in (0, 8))
    x = np.arange(4, dtype=np.float32)
    _, (found,) = run_partitioned(module, 4, [x])
    agreement.same(found, np.r_[np.full(4, 2), x, np.full(4, 2)].astype(np.float32)[start : start + 4])


@pytest.mark.parametrize(("extent", "start", "elements"), [(8, 7, 1), (8, 5, 2), (7, 2, 3), (5, 1, 1)])
def test_a_rotation_exchanges_one_halo(extent: int, start: int, elements: int) -> None:
    """Tiles of 2 elements; behind the last element comes the first one."""
    module = HloModule.from_text(f"""HloModule m
    ENTRY e {{
      x = f32[{extent}] parameter(0), sharding={TILES}
      a = f32[{extent - start}] slice(x), slice={{[{start}:{extent}]}}
      b = f32[{start}] slice(x), slice={{[0:{start}]}}
      ROOT r = f32[{extent}] concatenate(a, b), dimensions={{0}}, sharding={TILES} }}""")
    x = np.arange(extent, dtype=np.float32)
    partitioned, (found,) = run_partitioned(module, 4, [x])
    agreement.same(found, np.roll(x, -start))
    assert bytes_sent(partitioned.module) == 4 * elements
    assert "custom-call" not in partitioned.module.to_text()


def test_a_rotation_of_a_whole_dimension_sends_nothing() -> None:
    module = HloModule.from_text("""HloModule m
    ENTRY e {
      x = f32[4,5] parameter(0), sharding={devices=[4,1]<=[4]}
      ROOT r = f32[4,5] custom-call(x), custom_call_target="_SPMDInternalOp_RotateRight",
        backend_config="dimension=1,amount=2", sharding={devices=[4,1]<=[4]} }""")
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    partitioned, (found,) = run_partitioned(module, 4, [x])
    agreement.same(found, np.roll(x, 2, 1))
    agreement.same(hloom.compile(module, "cpu")(x), np.roll(x, 2, 1))
    assert bytes_sent(partitioned.module) == 0


@pytest.mark.parametrize(
    ("have", "body", "want", "elements"),
    [
        # Device 1 computes elements 2 and 1, and has 2 already; device 0 has what it computes.
        ("{devices=[2,2]<=[4] last_tile_dim_replicate}", "f32[3] reverse(x), dimensions={0}",
         "{devices=[2,2]2,3,0,1 last_tile_dim_replicate}", 1),
        # Tiles of 1 are made of tiles of 2.
        ("{devices=[2,2]<=[4] last_tile_dim_replicate}", "f32[2] slice(x), slice={[1:3]}", TILES, 1),
        # Devices 0 and 1 exchange elements, device 3 takes the last one.
        (TILES, "f32[5] pad(x, one), padding=1_1", "{devices=[2,2]<=[4] last_tile_dim_replicate}", 1),
    ],
)  # fmt: skip
def test_halos_are_fetched_from_tiles_of_another_tiling(
    have: str, body: str, want: str, elements: int
) -> None:
    module = HloModule.from_text(f"""HloModule m
    ENTRY e {{
      x = f32[3] parameter(0), sharding={have}
      one = f32[] constant(1)
      ROOT r = {body}, sharding={want} }}""")
    x = np.arange(3, dtype=np.float32)
    partitioned, found = run_partitioned(module, 4, [x])
    agreement.computed(found, module, [x])
    assert bytes_sent(partitioned.module) == 4 * elements
