"""`hloom layout`: the explanation, the drawing in the terminal, and pictures read back pixel by pixel."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFont

from hloom.errors import HloError, ParseError, ShapeError
from hloom.shape.index import linear_index, multi_index
from hloom.shape.shape import Shape
from hloom.tools.pictures.layout_grid import GAP, layout_grid, memory_order, other_dimensions
from hloom.tools.pictures.layout_picture import OUTLINE_COLORS, TILE_COLORS, layout_picture
from hloom.tools.pictures.marks import ADVANCE, Line, Rectangle, TextMark
from hloom.tools.pictures.picture import Picture
from hloom.tools.reports.layout import draw_layout, explain_layout, slice_at, terminal_drawing
from tests.shape.shapes import array_shapes

S = Shape.parse
FIGURE_1, FIGURE_2 = S("F32[3,5]{1,0:(2,2)}"), S("bf16[4,8]{1,0:T(2,4)(2,1)}")
LARGE = S("bf16[8,1,1280,16384]{3,2,0,1:T(8,128)(2,1)S(1)}")


# The explanation.


def test_every_component_is_explained() -> None:
    assert explain_layout("bf16[8,1,1280,16384]{3,2,0,1:T(8,128)(2,1)S(1)}").splitlines() == [
        "bf16[8,1,1280,16384]{3,2,0,1:T(8,128)(2,1)S(1)}",
        "  bf16              floating-point numbers of 16 bits, 7 of them mantissa",
        "  [8,1,1280,16384]  4 dimensions, p = 8, z = 1, y = 1280, x = 16384;"
        " 167,772,160 elements; true rank 3",
        "  {3,2,0,1}         in memory x varies fastest, then y, then p, then z",
        "  T(8,128)          tiles of 8 along y by 128 along x",
        "  (2,1)             tiled once more: 2 along y in the tile by 1 along x in the tile;"
        " 2 elements of 16 bits make a word of 32",
        "  S(1)              on-device vector memory (VMEM)",
        "  size              335,544,320 bytes (320 MiB): 167,772,160 elements of 16 bits",
        "  padding           none",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("F32[3,5]{1,0:(2,2)}", "tiles of 2 along y by 2 along x, 6 tiles"),
        ("F32[3,5]{1,0:(2,2)}", "9 of 24 elements, 37.5 % wasted"),
        ("f32[3,5]", "in memory x varies fastest, then y (the default order)"),
        ("F32[2,7,8,11,10]{4,3,2,1,0:(*,*,2,*,3)}", "2 along d0·d1·d2 by 3 along d3·d4, 2,072 tiles"),
        ("f32[2]", "S(0)     the device's main memory (HBM)"),
        ("f32[2]{0:S(5)}", "host memory"),
        ("f32[2]{0:S(7)}", "a memory space of the device's own"),
        ("s4[3]{0:E(4)}", "each element takes 4 bits of memory"),
        ("u8[3]{0:L(16)}", "padded at the end to a multiple of 16 elements"),
        ("f32[3]{0:#(u32)*(u64)}", "pointers of sparse storage are u64"),
        ("f32[3]{0:SC(0:1,2)}", "split along x before index 1 and 2"),
        ("f32[3]{0:M(64)}", "64 bytes in front hold the real sizes of dynamic dimensions"),
        ("f32[<=3,?]", "y at most 3, x of any size"),
        ("f32[]", "a scalar: no dimensions, 1 element"),
        ("pred[2]", "truth values, a byte each"),
        ("u1[2]", "unsigned integers of 1 bit"),
        ("c64[2]", "complex numbers of two f32"),
        ("token[]", "orders side effects"),
        ("opaque[]", "only custom calls"),
        ("b(f32[2])", "a buffer that holds the array"),
        ("(f32[2], (s32[]))", "a tuple of 2 elements, 12 bytes in all"),
        ("(f32[2], (s32[]))", "s32[] at index {1,0}"),
    ],
)
def test_components_in_words(text: str, words: str) -> None:
    assert words in explain_layout(text)


def test_what_is_no_shape_is_refused() -> None:
    with pytest.raises(ParseError) as error:
        explain_layout("f32[2")
    assert error.value.column == 6


def test_the_words_come_fast_and_without_heavy_packages() -> None:
    code = (
        "import sys; from hloom.tools.reports.layout import explain_layout; explain_layout('f32[2]');"
        "heavy = {'scipy', 'llvmlite', 'jax', 'google', 'click', 'rich'};"
        "print(*{module.split('.')[0] for module in sys.modules} & heavy)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not loaded.strip()


# The drawing.


def test_the_grid_of_figure_1() -> None:
    grid = layout_grid(FIGURE_1, 14, 16)
    assert grid.whole and (grid.rows.name, grid.columns.name) == ("y", "x")
    assert grid.positions.tolist() == [
        [0, 1, 4, 5, 8, 9],
        [2, 3, 6, 7, 10, 11],
        [12, 13, 16, 17, 20, 21],
        [14, 15, 18, 19, 22, 23],
    ]
    assert [[int(p) for p in row] for row in grid.padding] == [[0, 0, 0, 0, 0, 1]] * 3 + [[1] * 6]
    assert grid.colors.tolist() == [[0, 0, 1, 1, 2, 2]] * 2 + [[3, 3, 4, 4, 5, 5]] * 2


def test_the_inner_tiles_of_figure_2() -> None:
    (inner,) = layout_grid(FIGURE_2, 14, 16).inner
    assert inner.tolist() == [list(range(8))] * 2 + [list(range(8, 16))] * 2


def test_large_arrays_show_their_corner_the_first_border_and_their_end() -> None:
    grid = layout_grid(LARGE, 14, 16)
    assert not grid.whole
    assert grid.columns.shown == (
        *range(8), GAP, 126, 127, 128, 129, GAP, 16380, 16381, 16382, 16383,
    )  # fmt: skip
    assert grid.rows.shown == (*range(10), GAP, 1276, 1277, 1278, 1279)


@given(array_shapes())
def test_the_grid_shows_true_positions(shape: Shape) -> None:
    if not shape.element_count:
        return
    grid = layout_grid(shape, 4, 5)
    for row, y in enumerate(grid.rows.indices):
        for column, x in enumerate(grid.columns.indices):
            index = [0] * shape.rank
            for axis, place in ((grid.rows, y), (grid.columns, x)):
                parts = axis.split(place)
                for dimension, part in zip(axis.dimensions, parts[len(parts) - len(axis.dimensions) :]):
                    index[dimension] = part
            position = int(grid.positions[row, column])
            if grid.padding[row, column]:
                assert multi_index(shape, position) is None
            else:
                assert linear_index(shape, index) == position


def test_memory_shows_the_index_at_each_position() -> None:
    found = memory_order(FIGURE_1, 100)
    assert [index for index, _ in found] == [multi_index(FIGURE_1, position) for position in range(24)]
    assert [color for _, color in found[:12]] == [0, 0, 0, 0, 1, 1, 1, 1, 2, -1, 2, -1]


# The terminal.


def test_the_terminal_without_colour_has_lines_between_tiles() -> None:
    assert terminal_drawing(FIGURE_1, color=False).splitlines() == [
        "position in memory of each element; x →, y ↓",
        "        0     1     2     3     4     5",
        "0       0     1│    4     5│    8   (9)",
        "1       2     3│    6     7│   10  (11)",
        "   ────────────┼───────────┼───────────",
        "2      12    13│   16    17│   20  (21)",
        "3    (14)  (15)│ (18)  (19)│ (22)  (23)",
    ]


def test_the_terminal_with_colour_has_the_same_numbers() -> None:
    for shape in (FIGURE_1, FIGURE_2, LARGE, S("f32[2,3]{0,1}"), S("f32[]{:T(4)}")):
        colored = terminal_drawing(shape, color=True, columns=120)
        plain = terminal_drawing(shape, color=False, columns=120)
        assert "\x1b[" in colored and "\x1b" not in plain
        numbers = re.findall(r"\d+", re.sub(r"\x1b\[[0-9;]*m", "", colored))
        assert numbers == re.findall(r"\d+", plain)


def test_tiles_have_colours_of_their_own_and_arrays_without_tiles_one() -> None:
    def colours(shape: Shape) -> set[str]:
        return set(re.findall(r"48;5;(\d+)m", terminal_drawing(shape, color=True, columns=120)))

    assert len(colours(S("f32[4,6]{1,0}"))) == 1
    assert len(colours(S("f32[4,6]{1,0:T(2,3)}"))) == 4


def test_the_terminal_keeps_to_its_width() -> None:
    for columns in (80, 120, 200):
        drawing = terminal_drawing(LARGE, color=False, columns=columns)
        assert max(map(len, drawing.splitlines()[1:])) <= max(columns, 110)


def test_there_is_nothing_to_draw_without_elements() -> None:
    for text in ("token[]", "(f32[2])", "f32[0]", "f32[?]"):
        assert terminal_drawing(S(text), color=True) == ""


# Pictures.


def decoded(png: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the pixels of a PNG file of 8-bit RGB."""
    image = Image.open(io.BytesIO(png))
    assert (image.format, image.mode) == ("PNG", "RGB")
    return np.asarray(image)


def test_png_without_pillow_is_refused_and_svg_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(HloError, match=r"hloom\[png\]") as caught:
        Picture(10, 10).to_png(1)
    assert caught.value.rule == "picture.pillow-installed"
    assert Picture(10, 10).to_svg()


def missing(text: str) -> set[str]:
    """Return the characters for which Pillow's font has no glyph."""
    font = ImageFont.load_default(20)
    nothing = bytes(cast("Any", font.getmask("\uffff")))
    return {c for c in text if bytes(cast("Any", font.getmask(c))) == nothing}


def test_letters_without_a_glyph_are_noticed() -> None:
    assert missing("a→b") == {"→"}


def test_text_stays_within_the_width_that_is_reserved_for_it() -> None:
    for text in ("0", "1234567", "WWWWWW", "padding"):
        picture = Picture(100, 20)
        picture.marks.append(TextMark(50, 15, text, 7, "#000000", "middle"))
        dark = np.argwhere(decoded(picture.to_png(2)).max(axis=2) < 128)[:, 1] / 2
        width = 1.1 * len(text) * ADVANCE * 7
        assert 50 - width / 2 - 1 <= dark.min() and dark.max() <= 50 + width / 2 + 1


def test_rectangles_and_letters_land_where_they_should() -> None:
    picture = Picture(40, 20)
    picture.marks += [Rectangle(10, 5, 20, 10, "#ff0000"), Rectangle(2.5, 2.5, 4, 4, "", "#0000ff", 1, 1)]
    picture.marks.append(TextMark(35, 15, "1", 7, "#000000", "middle"))
    pixels = decoded(picture.to_png(2))
    assert pixels.shape == (40, 80, 3)
    assert (pixels[10:30, 20:60] == (255, 0, 0)).all()
    assert (pixels[34:, 20:60] == 255).all()
    assert pixels[5, 9].tolist() == [0, 0, 255] and pixels[9, 9].tolist() == [255, 255, 255]
    dark = np.argwhere(pixels[:, 62:].max(axis=2) < 128)
    assert 15 <= dark[:, 0].min() <= 18 and 29 <= dark[:, 0].max() <= 31


def test_lines_run_from_point_to_point() -> None:
    picture = Picture(20, 20)
    picture.marks += [Line(2, 4, 18, 4, "#ff0000", 2), Line(0, 20, 20, 0, "#0000ff"), Line(-9, 9, 5, -5)]
    pixels = decoded(picture.to_png(2))
    assert (pixels[6:10, 6:26] == (255, 0, 0)).all()
    assert (pixels[6:10, :2].min(axis=2) > 100).all()
    assert all(pixels[39 - n, n].tolist() == [0, 0, 255] for n in range(1, 30))
    assert '<line x1="2" y1="4" x2="18" y2="4" stroke="#ff0000" stroke-width="2"/>' in picture.to_svg()


def test_marks_over_the_edge_are_cut_off() -> None:
    picture = Picture(10, 10)
    picture.marks += [Rectangle(-5, -5, 8, 8, "#00ff00", "#0000ff", 2, 2), TextMark(-3, 30, "8", 9)]
    assert decoded(picture.to_png(1))[0, 0].tolist() == [0, 255, 0]


def test_figure_1_is_coloured_as_its_tiles_are(tmp_path: Path) -> None:
    picture = layout_picture(FIGURE_1)
    fills = {mark.text: mark for mark in picture.marks if isinstance(mark, TextMark)}
    assert {str(position) for position in range(24)} <= set(fills)
    draw_layout(FIGURE_1, tmp_path / "figure.png")
    pixels = decoded((tmp_path / "figure.png").read_bytes())
    cells = [mark for mark in picture.marks if isinstance(mark, Rectangle) and mark.height == 30]
    array, memory = cells[:24], cells[24:]
    assert [cell.fill for cell in array].count("#ffffff") == 9
    assert [cell.fill for cell in memory].count("#ffffff") == 9
    for cell in cells:
        corner = pixels[round(2 * cell.y) + 6, round(2 * cell.x) + 6]
        assert "#" + "".join(f"{value:02x}" for value in corner) == cell.fill
    assert {cell.fill for cell in array} == {*TILE_COLORS[:6], "#ffffff"}


def test_figure_2_has_an_outline_around_every_inner_tile() -> None:
    frames = [
        mark
        for mark in layout_picture(FIGURE_2).marks
        if isinstance(mark, Rectangle) and mark.stroke == OUTLINE_COLORS[0] and mark.height > 20
    ]
    tall = [frame for frame in frames if frame.height > frame.width]
    assert len(tall) == 16 and len(frames) == 32
    assert all(frame.height == 55 for frame in tall)


def test_outlines_surround_all_cells_of_an_inner_tile() -> None:
    marks = layout_picture(S("f32[4,8]{1,0:T(4,4)(2,2)}")).marks
    boxes = [mark for mark in marks if isinstance(mark, Rectangle) and mark.height > 20]
    frames = [box for box in boxes if box.stroke == OUTLINE_COLORS[0]]
    cells = [box for box in boxes if box.height == 30][:32]
    within = [
        sum(
            f.x <= c.x + c.width / 2 <= f.x + f.width and f.y <= c.y + c.height / 2 <= f.y + f.height
            for c in cells
        )
        for f in frames
    ]
    assert [n for n in within if n] == [4] * 8


@pytest.mark.parametrize(
    "shape",
    [FIGURE_1, FIGURE_2, LARGE, S("f32[]"), S("f32[5]"), S("s4[9,6]{1,0:T(4,4)(4,1)(2,1)E(4)}"),
     S("F32[2,7,8,11,10]{4,3,2,1,0:(*,*,2,*,3)}"), S("f32[40,50]"), S("f32[5]{0:T(2,3)}")],
    ids=str,
)  # fmt: skip
def test_pictures_are_whole(shape: Shape, tmp_path: Path) -> None:
    picture = layout_picture(shape)
    for mark in picture.marks:
        if isinstance(mark, TextMark):
            assert not missing(mark.text)
        elif isinstance(mark, Rectangle):
            assert mark.x >= 0 and mark.x + mark.width <= picture.width
            assert mark.y >= 0 and mark.y + mark.height <= picture.height
    draw_layout(shape, tmp_path / "layout.svg")
    root = ElementTree.parse(tmp_path / "layout.svg").getroot()
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == [mark.text for mark in picture.marks if isinstance(mark, TextMark)]
    draw_layout(shape, tmp_path / "layout.PNG")
    pixels = decoded((tmp_path / "layout.PNG").read_bytes())
    assert pixels.shape == (round(2 * picture.height), round(2 * picture.width), 3)
    assert (pixels[:10] == 255).all() and (pixels[-10:] == 255).all()


@settings(max_examples=25)
@given(array_shapes())
def test_any_array_can_be_drawn(shape: Shape) -> None:
    assert explain_layout(str(shape))
    if shape.element_count:
        assert layout_picture(shape).to_svg().endswith("</svg>\n")
        assert terminal_drawing(shape, color=True)


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    for text in ("token[]", "(f32[2])", "f32[0]"):
        with pytest.raises(ShapeError, match=r"picture\.has-elements"):
            draw_layout(S(text), tmp_path / "a.png")
    with pytest.raises(HloError, match=r"picture\.format-known"):
        draw_layout(FIGURE_1, tmp_path / "a.jpg")
    with pytest.raises(HloError, match=r"picture\.format-known"):
        Picture(1, 1).save(tmp_path / "a.jpg")


# -- slices, joined dimensions, bytes


def texts_of(shape: Shape, at: dict[int, int] | None = None) -> list[str]:
    return [mark.text for mark in layout_picture(shape, at).marks if isinstance(mark, TextMark)]


@given(array_shapes(), st.data())
def test_a_chosen_slice_shows_true_positions(shape: Shape, data: st.DataObject) -> None:
    if not shape.element_count:
        return
    others = other_dimensions(layout_grid(shape, 14, 16))
    where = {d: data.draw(st.integers(0, shape.dimensions[d] - 1)) for d in others}
    grid = layout_grid(shape, 14, 16, where)
    if grid.padding[0, 0]:
        return
    index = [where.get(dimension, 0) for dimension in range(shape.rank)]
    assert int(grid.positions[0, 0]) == linear_index(shape, index)


def test_slices_of_an_array_are_drawn_one_after_the_other() -> None:
    shape = S("f32[3,2,4]")
    found = [text for text in texts_of(shape) if text.startswith("array")]
    assert [text.rpartition("where ")[2] for text in found] == ["z = 0", "z = 1", "z = 2"]
    assert {str(position) for position in range(24)} <= set(texts_of(shape))
    (chosen,) = [text for text in texts_of(shape, {0: 2}) if text.startswith("array")]
    assert chosen.endswith("where z = 2")
    many = texts_of(S("f32[9,5,2,4]"))
    assert "… 41 more slices; --at p=8,z=4 draws one" in many
    assert terminal_drawing(shape, color=False).count("position in memory") == 3
    assert terminal_drawing(shape, color=False, at={0: 1}).count("position in memory") == 1


def test_joined_dimensions_are_one_axis() -> None:
    shape = S("f32[2,3,4]{2,1,0:T(*,4,4)}")
    grid = layout_grid(shape, 14, 16)
    assert (grid.rows.name, grid.rows.dimensions) == ("z·y", (0, 1))
    assert [grid.rows.label(row) for row in grid.rows.indices] == [
        "0,0", "0,1", "0,2", "1,0", "1,1", "1,2", "2,0", "2,1",
    ]  # fmt: skip
    assert grid.positions[:, 0].tolist() == list(range(0, 32, 4))
    assert grid.padding[:, 0].tolist() == [False] * 6 + [True] * 2
    assert "z·y down: dimensions 0 and 1 joined, size 2 by 3" in texts_of(shape)


def test_bytes_of_narrow_elements_are_boxes() -> None:
    shape = S("u4[2,4]{1,0:E(4)}")
    marks = layout_picture(shape).marks
    boxes = [mark for mark in marks if isinstance(mark, Rectangle) and mark.height == 34]
    cells = [mark for mark in marks if isinstance(mark, Rectangle) and mark.height == 30][8:]
    assert len(boxes) == 4
    assert [box.width for box in boxes] == [2 * cells[0].width] * 4
    assert "a byte of 2 elements" in texts_of(shape)
    assert not any("a byte" in text for text in texts_of(S("u8[2,4]")))


def test_the_legend_explains_only_what_is_drawn() -> None:
    assert "the darker, the later in memory" not in texts_of(S("f32[1]"))
    assert "the darker, the later in memory" in texts_of(S("f32[2]"))
    assert "padding" not in texts_of(S("f32[4,8]{1,0:T(4,4)}"))
    assert "padding" in texts_of(S("f32[3,8]{1,0:T(4,4)}"))


def test_indices_of_a_slice() -> None:
    shape = S("f32[3,2,4]")
    assert slice_at(shape, "z=2, y=1") == {0: 2, 1: 1}
    assert slice_at(shape, "") == {}
    for text in ("q=1", "z", "z=-1", "z=3"):
        with pytest.raises(HloError) as caught:
            slice_at(shape, text)
        assert caught.value.rule == "layout.at"
