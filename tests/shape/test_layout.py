"""Layouts: XLA's text of every component, and what is refused."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from hloom.errors import ShapeError
from hloom.shape.element_type import S32, U32, U64
from hloom.shape.layout import Layout, SplitConfig, Tile
from hloom.shape.shape import Shape


def test_every_component_prints_in_xlas_order() -> None:
    layout = Layout(
        minor_to_major=(1, 0),
        tiles=(Tile((8, 128)), Tile((2, 1))),
        tail_padding_alignment_in_elements=4,
        index_primitive_type=U32,
        pointer_primitive_type=U64,
        element_size_in_bits=16,
        memory_space=3,
        split_configs=(SplitConfig(0, (512, 700)), SplitConfig(1, (2,))),
        dynamic_shape_metadata_prefix_bytes=8,
    )
    assert str(layout) == "{1,0:T(8,128)(2,1)L(4)#(u32)*(u64)E(16)S(3)SC(0:512,700)(1:2)M(8)}"


def test_what_says_nothing_is_not_printed() -> None:
    assert str(Layout((0,))) == "{0}"
    assert str(Layout(())) == "{}"
    assert str(Layout((), tiles=(Tile((128,)),))) == "{:T(128)}"
    assert str(Layout((0,), tiles=(Tile((Tile.COMBINE, 2)),))) == "{0:T(*,2)}"
    assert str(Layout((0,), physical_shape=Shape.parse("f32[4]"))) == "{0:P(f32[4]{0})}"


def test_the_default_is_major_to_minor() -> None:
    assert Layout.default(3).minor_to_major == (2, 1, 0)
    assert Layout.default(3).major_to_minor == (0, 1, 2)
    assert Layout((1, 0)).is_default
    assert not Layout((0, 1)).is_default
    assert not Layout((1, 0), memory_space=1).is_default


def test_layouts_are_values() -> None:
    one, other = Layout((1, 0), (Tile((2, 2)),)), Layout((1, 0), (Tile((2, 2)),))
    assert one == other and hash(one) == hash(other) and pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.memory_space = 1  # pyright: ignore[reportAttributeAccessIssue]


def test_tiles_count_their_elements() -> None:
    assert Tile((8, 128)).element_count == 1024
    assert Tile((Tile.COMBINE, Tile.COMBINE, 2, Tile.COMBINE, 3)).element_count == 6


@pytest.mark.parametrize("sizes", [(0,), (2, 0), (-2,), (2, -5, 2)])
def test_tile_sizes_are_positive(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"layout\.tile-size-positive"):
        Tile(sizes)


def test_a_tile_has_dimensions_and_its_last_one_does_not_combine() -> None:
    with pytest.raises(ShapeError, match=r"layout\.tile-rank"):
        Tile(())
    with pytest.raises(ShapeError, match=r"layout\.tile-combine-not-last"):
        Tile((2, Tile.COMBINE))


@pytest.mark.parametrize("order", [(0, 0), (1,), (1, 2), (0, -1), (2, 0)])
def test_minor_to_major_is_a_permutation(order: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"layout\.minor-to-major-permutation"):
        Layout(order)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"tail_padding_alignment_in_elements": 0}, "layout.tail-padding-positive"),
        ({"element_size_in_bits": -4}, "layout.element-size-non-negative"),
        ({"dynamic_shape_metadata_prefix_bytes": -1}, "layout.metadata-prefix-non-negative"),
        ({"padded_dimensions": (4,)}, "layout.padded-dimensions-rank"),
        ({"split_configs": (SplitConfig(2, (1,)),)}, "layout.split-dimension-in-range"),
        ({"index_primitive_type": S32}, "layout.index-type-unsigned"),
        ({"pointer_primitive_type": S32}, "layout.index-type-unsigned"),
    ],
)
def test_malformed_components_are_refused(changes: dict[str, object], rule: str) -> None:
    with pytest.raises(ShapeError) as error:
        dataclasses.replace(Layout((1, 0)), **changes)
    assert error.value.rule == rule


def test_tiles_may_be_given_by_their_sizes() -> None:
    assert Layout((1, 0), tiles=((2, 4), (2, 1))) == Shape.parse("f32[4,8]{1,0:T(2,4)(2,1)}").layout  # type: ignore[arg-type]
