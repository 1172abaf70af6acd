"""XLA's pages "Shapes and layout" and "Tiled layout", example by example."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

import hloom
from hloom import HloError, HloModule, Layout, Literal, Shape, Tile
from hloom.shape.element_type import BF16, F32
from hloom.shape.index import linear_indices, physical_form, to_physical
from hloom.tools.reports.layout import explain_layout

LETTERS = np.array([list(b"abc"), list(b"def")], np.uint8)


def in_memory(layout: str) -> str:
    shape = Shape.parse(f"u8[2,3]{layout}")
    return " ".join(chr(byte) if byte else "0" for byte in Literal(LETTERS, shape).to_bytes())


# -- shapes


def test_parts_of_an_instruction() -> None:
    module = HloModule.from_text(
        "add.936 = bf16[8,1,1280,16384]{3,2,0,1:T(8,128)(2,1)} add("
        "bf16[8,1,1280,16384]{3,2,0,1:T(8,128)(2,1)} exponential.183, "
        "bf16[8,1,1280,16384]{3,2,0,1:T(8,128)(2,1)} broadcast.3115)"
    )
    add = module.entry.root
    assert (add.name, add.opcode) == ("add.936", "add")
    assert [operand.name for operand in add.operands] == ["exponential.183", "broadcast.3115"]
    shape = add.shape
    assert (shape.element_type, shape.dimensions) == (BF16, (8, 1, 1280, 16384))
    assert shape.layout is not None
    assert shape.layout.minor_to_major == (3, 2, 0, 1)
    assert shape.layout is not None
    assert [tile.dimensions for tile in shape.layout.tiles] == [(8, 128), (2, 1)]


def test_parts_of_a_fusion() -> None:
    module = HloModule.from_text(
        "HloModule m\n\nall-reduce-scatter.3 { ROOT p = bf16[32,32,8192] parameter(0) }\n\nENTRY e {\n"
        "  %fusion.32 = bf16[32,32,8192]{2,1,0:T(8,128)(2,1)S(1)} parameter(0)\n"
        "  %fusion.3 = bf16[32,32,4096]{2,1,0:T(8,128)(2,1)S(1)}\n"
        "            fusion(bf16[32,32,8192]{2,1,0:T(8,128)(2,1)S(1)} %fusion.32),\n"
        "            kind=kCustom, calls=%all-reduce-scatter.3\n}\n"
    )
    fusion = module.entry.root
    assert fusion.shape.layout is not None
    assert fusion.shape.layout.memory_space == 1
    assert "kind=kCustom, calls=%all-reduce-scatter.3" in module.to_text()


def test_the_pages_lines_are_programs_by_themselves() -> None:
    add = HloModule.from_text(
        "add.936 = bf16[8,1,1280,16384]{3,2,0,1:T(8,128)(2,1)}\n"
        "          add(exponential.183, broadcast.3115)"
    ).entry.root
    assert [operand.name for operand in add.operands] == ["exponential.183", "broadcast.3115"]
    fusion = HloModule.from_text(
        "%fusion.3 = bf16[32,32,4096]{2,1,0:T(8,128)(2,1)S(1)}\n"
        "            fusion(bf16[32,32,8192]{2,1,0:T(8,128)(2,1)S(1)} %fusion.32),\n"
        "            kind=kCustom, calls=%all-reduce-scatter.3"
    ).entry.root
    assert [called.name for called in fusion.called_computations] == ["all-reduce-scatter.3"]


def test_a_layout_is_optional_and_then_from_major_to_minor_without_tiles() -> None:
    for rank in range(5):
        text = f"f32[{','.join(map(str, range(2, 2 + rank)))}]"
        assert Shape.parse(text).layout == Layout(tuple(range(rank))[::-1])


def test_sizes_of_zero_are_valid() -> None:
    shape = Shape.parse("f32[3,0,2]")
    assert (shape.element_count, shape.byte_size, shape.true_rank) == (0, 0, 2)


def test_padded_dimensions_have_one_size_for_each_dimension() -> None:
    with pytest.raises(HloError) as caught:
        Layout((0, 1), padded_dimensions=(3,))
    assert caught.value.rule == "layout.padded-dimensions-rank"


@pytest.mark.parametrize("alignment", [1, 4, 7, 16])
def test_tail_padding_rounds_up_after_tiling(alignment: int) -> None:
    shape = Shape.parse(f"u8[3,5]{{1,0:T(2,2)L({alignment})}}")
    assert shape.byte_size == -(-24 // alignment) * alignment


@pytest.mark.parametrize("layout", ["{1,0}", "{0,1}", "{1,0:T(2,2)}", "{0,1:T(2,4)(2,1)}", "{1,0:L(32)}"])
def test_linear_and_multidimensional_indices_are_inverse(layout: str) -> None:
    shape = Shape.parse(f"f32[4,8]{layout}")
    for index in np.ndindex(4, 8):
        assert hloom.multi_index(shape, hloom.linear_index(shape, index)) == index
    with_padding = [hloom.multi_index(shape, place) for place in range(shape.byte_size // 4)]
    assert sorted(index for index in with_padding if index is not None) == list(np.ndindex(4, 8))


def test_memory_space_0_is_left_out() -> None:
    assert str(Shape.parse("f32[2]{0:S(0)}")) == "f32[2]{0}"
    assert str(Shape.parse("f32[2]{0:S(5)}")) == "f32[2]{0:S(5)}"


def test_dimension_numbers_and_ranks() -> None:
    shape = Shape(F32, (7, 8, 9))  # [A x B x C]
    assert [shape.dimension(number) for number in (0, 1, 2, -1, -2, -3)] == [7, 8, 9, 9, 8, 7]
    assert [shape.axis(number) for number in (-1, -3)] == [2, 0]
    assert (shape.rank, shape.true_rank) == (3, 3)
    assert (Shape(F32, (1, 5, 1)).true_rank, Shape(F32, (0, 5)).true_rank) == (1, 1)


@pytest.mark.parametrize(("rank", "letters"), [(2, "y x"), (3, "z y x"), (4, "p z y x")])
def test_letters_of_dimensions(rank: int, letters: str) -> None:
    words = explain_layout(str(Shape(F32, range(2, 2 + rank))))
    named = ", ".join(
        f"{letter} = {size}" for letter, size in zip(letters.split(), range(2, 6), strict=False)
    )
    assert f"{rank} dimensions, {named};" in words


def test_orders_of_dimensions_in_memory() -> None:
    assert in_memory("{0,1}") == "a d b e c f"
    assert in_memory("{1,0}") == "a b c d e f"
    assert in_memory("") == "a b c d e f"  # the default is from major to minor
    assert Shape(F32, (2, 3, 4)).layout == Layout((2, 1, 0))


def test_the_older_pages_padded_dimensions() -> None:
    layout = Layout((0, 1), padded_dimensions=(3, 5))
    data = Literal(LETTERS, Shape.parse("u8[2,3]").with_layout(layout)).to_bytes()
    assert " ".join(chr(byte) if byte else "0" for byte in data) == "a d 0 b e 0 c f 0 0 0 0 0 0 0"
    wide = np.zeros((3, 5), np.uint8)
    wide[:2, :3] = LETTERS
    assert Literal(wide, Shape.parse("u8[3,5]{0,1}")).to_bytes() == data


def test_tail_padding_goes_to_the_end() -> None:
    assert in_memory("{1,0:L(4)}") == "a b c d e f 0 0"
    assert Shape.parse("f32[2,3]{1,0:L(4)}").byte_size == 32


@pytest.mark.parametrize(
    ("space", "words"),
    [("S(0)", "(HBM)"), ("S(1)", "(VMEM)"), ("S(2)", "of the device's own"), ("S(5)", "host")],
)
def test_memory_spaces(space: str, words: str) -> None:
    lines = explain_layout(f"f32[2]{{0:{space}}}").splitlines()
    assert any(line.strip().startswith(space) and words in line for line in lines)


# -- tiles


def row_major(index: Sequence[int], bounds: Sequence[int]) -> int:
    """The page's linear_index(e, d)."""
    number = 0
    for e, d in zip(index, bounds, strict=True):
        number = number * d + e
    return number


def tiled(index: Sequence[int], bounds: Sequence[int], tile: Sequence[int]) -> int:
    """The page's linear_index_with_tile(e, d, t)."""
    triples = list(zip(index, bounds, tile, strict=True))
    return row_major(
        [e // t for e, _, t in triples] + [e % t for e, _, t in triples],
        [-(-d // t) for _, d, t in triples] + list(tile),
    )


def test_figure_1() -> None:
    shape = Shape.parse("F32[3,5]{1,0:(2,2)}")
    assert shape == Shape.parse("F32[3,5]{1,0:T(2,2)}")
    assert tiled((2, 3), (3, 5), (2, 2)) == row_major((1, 1, 0, 1), (2, 3, 2, 2)) == 17
    assert hloom.linear_index(shape, (2, 3)) == 17
    for index in np.ndindex(3, 5):
        assert hloom.linear_index(shape, index) == tiled(index, (3, 5), (2, 2))
    places = {tiled(index, (3, 5), (2, 2)) for index in np.ndindex(3, 5)}
    assert [p for p in range(24) if hloom.multi_index(shape, p) is None] == sorted(set(range(24)) - places)


@pytest.mark.parametrize(("bounds", "tile"), [((3, 5), (2, 2)), ((4, 6, 5), (3, 2, 4)), ((7,), (3,))])
def test_tiling_is_pad_reshape_transpose(bounds: tuple[int, ...], tile: tuple[int, ...]) -> None:
    array = np.arange(1, np.prod(bounds) + 1).reshape(bounds)
    whole = [-(-d // t) * t for d, t in zip(bounds, tile, strict=True)]
    padded = np.zeros(whole, array.dtype)
    padded[tuple(slice(d) for d in bounds)] = array
    broken = padded.reshape(list(itertools.chain(*((w // t, t) for w, t in zip(whole, tile, strict=True)))))
    order = [*range(0, 2 * len(bounds), 2), *range(1, 2 * len(bounds), 2)]
    shape = Shape(F32, bounds).with_layout(Layout(tuple(range(len(bounds)))[::-1], tiles=(Tile(tile),)))
    assert (to_physical(shape, array) == broken.transpose(order).reshape(-1)).all()


def test_figure_2() -> None:
    shape = Shape.parse("f32[4,8]{1,0:T(2,4)(2,1)}")
    rows = [
        [0, 2, 4, 6, 8, 10, 12, 14], [1, 3, 5, 7, 9, 11, 13, 15],
        [16, 18, 20, 22, 24, 26, 28, 30], [17, 19, 21, 23, 25, 27, 29, 31],
    ]  # fmt: skip
    assert linear_indices(shape).tolist() == rows


def test_combined_dimensions() -> None:
    shape = Shape.parse("F32[2,7,8,11,10]{4,3,2,1,0:(*,*,2,*,3)}")
    combined = Shape.parse("F32[112,110]{1,0:(2,3)}")
    assert (linear_indices(shape).reshape(112, 110) == linear_indices(combined)).all()
    assert shape.layout is not None
    assert [tile.dimensions for tile in shape.layout.tiles] == [(-1, -1, 2, -1, 3)]
    assert shape == Shape.parse("F32[2,7,8,11,10]{4,3,2,1,0:(∗,∗,2,∗,3)}")  # the page's sign


# -- the examples of formats


def test_sixteen_bit_format_puts_two_rows_into_32_bits() -> None:
    shape = Shape.parse("bf16[16,256]{1,0:T(8,128)(2,1)}")
    for row, column in ((0, 0), (6, 127), (10, 200)):
        place = hloom.linear_index(shape, (row, column))
        assert place % 2 == 0
        assert hloom.linear_index(shape, (row + 1, column)) == place + 1


def test_alternative_sixteen_bit_format() -> None:
    shape = Shape.parse("BF16[32,256]{1,0:T(8,128)(2,1,1,1)}")
    assert physical_form(shape).dimensions == (2, 2, 8, 128, 2, 1, 1, 1)
    assert hloom.linear_index(shape, (8, 0)) == hloom.linear_index(shape, (0, 0)) + 1
    small = Shape.parse("f32[8,8]{1,0:T(2,4)(2,1,1,1)}")
    assert tiled((3, 1, 0, 1), (4, 2, 2, 4), (2, 1, 1, 1)) == 51
    assert hloom.linear_index(small, (6, 5)) == 51
    assert hloom.multi_index(small, 51) == (6, 5)


@pytest.mark.parametrize(("tiles", "rows"), [("T(8,128)(4,1)", 4), ("T(32,128)(32,1)", 32)])
def test_formats_of_fewer_bits(tiles: str, rows: int) -> None:
    shape = Shape.parse(f"s8[32,128]{{1,0:{tiles}}}")
    assert [hloom.linear_index(shape, (row, 0)) for row in range(rows)] == list(range(rows))
    assert shape.byte_size == 32 * 128


def test_small_tiles_save_memory() -> None:
    sizes = [Shape.parse(f"f32[2,128]{{1,0:T({rows},128)}}").byte_size for rows in (8, 4, 2)]
    assert sizes == [4096, 2048, 1024]


def test_a_tile_of_fewer_dimensions_is_for_the_minor_ones() -> None:
    shape = Shape.parse("f32[3,5,4]{2,1,0:T(2,2)}")
    matrix = Shape.parse("f32[5,4]{1,0:T(2,2)}")
    size = matrix.byte_size // 4
    assert (linear_indices(shape) == [linear_indices(matrix) + size * n for n in range(3)]).all()


def test_padding_has_no_value_of_its_own() -> None:
    shape = Shape.parse("s8[3,5]{1,0:T(2,2)}")
    data = bytearray(Literal(np.arange(15, dtype=np.int8).reshape(3, 5), shape).to_bytes())
    for place in range(len(data)):
        if hloom.multi_index(shape, place) is None:
            data[place] = 0x7F
    assert Literal.from_bytes(shape, data).array.ravel().tolist() == list(range(15))
