"""The picture of a layout: an array with the positions of its elements in memory, and memory with indices.

As in figures 1 and 2 of XLA's page "Tiled layout", outermost tiles are colored, inner tiles outlined, and
padding is white.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from hloom.errors import ShapeError
from hloom.records import dataclass
from hloom.shape.index import physical_form
from hloom.shape.shape import Shape
from hloom.tools.pictures.layout_grid import (
    GAP,
    PADDING,
    GridAxis,
    LayoutGrid,
    axis_names,
    layout_grid,
    memory_order,
    other_dimensions,
    slice_words,
    slices,
)
from hloom.tools.pictures.marks import Rectangle, TextMark, text_width
from hloom.tools.pictures.picture import Picture

TILE_COLORS = (
    "#a8c7fa",
    "#fdd6a2",
    "#b4e3c6",
    "#f5bfd2",
    "#d6c6f2",
    "#fdeea3",
    "#b0e1ea",
    "#dcd2c4",
)
OUTLINE_COLORS = ("#d93025", "#174ea6", "#0d652d", "#7b1fa2")
_INK, _GREY, _FAINT, _LINE = "#202124", "#5f6368", "#9aa0a6", "#ffffff"
_PADDING_LINE = "#dadce0"

_MOST_ROWS, _MOST_COLUMNS = 14, 16
_MARGIN, _CELL_HEIGHT, _GAP, _TEXT = 26.0, 30.0, 20.0, 9.0
_LABEL = 7.5
_MEMORY_CELLS, _MEMORY_LINE = 64, 16
_MOST_SLICES = 4
_BYTE_LINE = "#3c4043"


def layout_picture(shape: Shape, at: Mapping[int, int] | None = None) -> Picture:
    """Draw an array's layout: its first two-dimensional slices, or the slice at indices `at`.

    Raises ShapeError for a shape without elements.
    """
    if not shape.is_array or shape.element_count == 0:
        raise ShapeError(f"{shape} has no elements to draw", rule="picture.has-elements")
    grid = layout_grid(shape, _MOST_ROWS, _MOST_COLUMNS)
    picture = Picture(0, 0, str(shape))
    picture.marks.append(TextMark(_MARGIN, _MARGIN + 12, str(shape), 12, bold=True))
    bottom = _MARGIN + 12
    fixed = {d: at.get(d, 0) for d in other_dimensions(grid)} if at else {}
    drawn = [fixed] if at else list(itertools.islice(slices(grid), _MOST_SLICES))
    for indices in drawn:
        shown = layout_grid(shape, _MOST_ROWS, _MOST_COLUMNS, indices)
        panel = _ArrayPanel(picture, shown, bottom + 30, slice_words(shape, indices))
        panel.draw()
        bottom = panel.bottom
    left_out = math.prod(shape.dimensions[d] for d in other_dimensions(grid)) - len(drawn)
    if left_out and not at:
        text = f"… {left_out:,} more slices; --at {_example(grid)} draws one"
        picture.marks.append(TextMark(_MARGIN, bottom + 18, text, _LABEL, _GREY))
        bottom += 18
    bottom = _draw_memory(picture, shape, bottom + 30) if shape.rank <= 4 else bottom
    bottom = _draw_legend(picture, grid, bottom + 24)
    picture.height = bottom + _MARGIN - 6
    ends = [
        mark.x + text_width(mark.text, mark.size)
        for mark in picture.marks
        if isinstance(mark, TextMark) and mark.anchor == "start"
    ]
    picture.width = _whole(max(picture.width, *ends)) + _MARGIN
    return picture


def _example(grid: LayoutGrid) -> str:
    """Return the last slice as an argument for ``--at``."""
    names = axis_names(grid.shape.rank)
    return ",".join(f"{names[d]}={grid.shape.dimensions[d] - 1}" for d in other_dimensions(grid))


def _fill(color: int, untiled: int) -> str:
    """Return the fill of a color number; without tiles, a blue that darkens up to position `untiled`."""
    if color == PADDING:
        return "#ffffff"
    if untiled < 0:
        return TILE_COLORS[color % len(TILE_COLORS)]
    part = color / untiled if untiled else 0.0
    light, dark = (226, 238, 254), (142, 182, 247)
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(light, dark, strict=True))


def _untiled_end(shape: Shape) -> int:
    """Return the last position of an array without tiles; -1 if it has tiles."""
    form = physical_form(shape)
    return -1 if form.tilings else form.element_count - 1


@dataclass(slots=True)
class _ArrayPanel:
    """The drawing of a slice; `top` is the y coordinate of its headings, `where` names the slice."""

    picture: Picture
    grid: LayoutGrid
    top: float
    where: str
    x0: float = 0.0
    cell: float = 0.0
    bottom: float = 0.0

    def draw(self) -> None:
        """Add headings, cells, outlines and gaps; set `bottom` and widen the picture."""
        grid = self.grid
        widest = max((len(str(position)) for position in grid.positions.reshape(-1).tolist()), default=1)
        widest = max(widest, *(len(grid.columns.label(index)) for index in grid.columns.indices))
        self.cell = _cell_width("0" * widest, len(grid.inner))
        labels = [grid.rows.label(index) for index in grid.rows.indices]
        name = grid.rows.name
        self.x0 = _whole(_MARGIN + text_width(max(labels, key=len), _LABEL) + 10 + (16 if name else 0))
        self.heading()
        columns, rows = (
            self.places(grid.columns, self.x0, self.cell),
            self.places(grid.rows, self.top + 30, _CELL_HEIGHT),
        )
        self.labels(columns, rows)
        self.cells(columns, rows)
        for number, tiles in enumerate(grid.inner):
            self.outlines(tiles.tolist(), columns, rows, number)
        self.gaps(columns, rows)
        self.bottom = rows[-1][1] + (_CELL_HEIGHT if rows[-1][0] != GAP else _GAP)
        end = columns[-1][1] + (self.cell if columns[-1][0] != GAP else _GAP)
        self.picture.width = max(self.picture.width, end)

    def places(self, axis: GridAxis, start: float, size: float) -> list[tuple[int, float]]:
        """Return each index to draw, or `GAP`, with its coordinate."""
        coordinates: list[tuple[int, float]] = []
        for index in axis.shown:
            coordinates.append((index, start))
            start += _GAP if index == GAP else size
        return coordinates

    def heading(self) -> None:
        rows, columns = self.grid.rows, self.grid.columns
        others = f" where {self.where}" if self.where else ""
        text = f"array: the position in memory of each element{others}"
        self.picture.marks.append(TextMark(_MARGIN, self.top, text, _LABEL, _GREY))
        self.top += 20 if columns.name else -14
        x = self.x0
        for axis, way in ((columns, "across"), (rows, "down")):
            if axis.name:
                text = f"{axis.name} {way}: {_axis_words(axis)}"
                self.picture.marks.append(TextMark(x, self.top, text, _LABEL, _GREY))
                x += text_width(text, _LABEL) + 28

    def labels(self, columns: list[tuple[int, float]], rows: list[tuple[int, float]]) -> None:
        for index, x in columns:
            if index != GAP and self.grid.columns.name:
                color = _GREY if index < self.grid.columns.bound else _PADDING_LINE
                self.picture.marks.append(
                    TextMark(
                        x + self.cell / 2,
                        self.top + 22,
                        self.grid.columns.label(index),
                        _LABEL,
                        color,
                        "middle",
                    )
                )
        for index, y in rows:
            if index != GAP and self.grid.rows.name:
                color = _GREY if index < self.grid.rows.bound else _PADDING_LINE
                middle = y + _CELL_HEIGHT / 2 + _LABEL / 2
                text = self.grid.rows.label(index)
                self.picture.marks.append(TextMark(self.x0 - 10, middle, text, _LABEL, color, "end"))

    def cells(self, columns: list[tuple[int, float]], rows: list[tuple[int, float]]) -> None:
        grid, untiled = self.grid, _untiled_end(self.grid.shape)
        solid = [[x for index, x in columns if index != GAP], [y for index, y in rows if index != GAP]]
        for padding in (False, True):
            for row, y in enumerate(solid[1]):
                for column, x in enumerate(solid[0]):
                    if bool(grid.padding[row, column]) is padding:
                        color = PADDING if padding else int(grid.colors[row, column])
                        text = str(grid.positions[row, column])
                        _draw_cell(self.picture, x, y, self.cell, _fill(color, untiled), text, padding)

    def outlines(
        self,
        tiles: list[list[int]],
        columns: list[tuple[int, float]],
        rows: list[tuple[int, float]],
        number: int,
    ) -> None:
        """Frame the cells of each inner tile, separately on both sides of a gap."""
        for block in _blocks(tiles, [index for index, _ in rows], [index for index, _ in columns]):
            ys = [y for index, y in rows if index in block[0]]
            xs = [x for index, x in columns if index in block[1]]
            width, height = xs[-1] - xs[0] + self.cell, ys[-1] - ys[0] + _CELL_HEIGHT
            color = OUTLINE_COLORS[number % len(OUTLINE_COLORS)]
            self.picture.marks.append(_outline(xs[0], ys[0], width, height, 2.5 + 2.5 * number, color))

    def gaps(self, columns: list[tuple[int, float]], rows: list[tuple[int, float]]) -> None:
        """Draw three dots in each row and column in place of omitted indices."""
        for _, x in (column for column in columns if column[0] == GAP):
            for _, y in (row for row in rows if row[0] != GAP):
                for step in (-5.0, 0.0, 5.0):
                    self.dot(x + _GAP / 2 + step, y + _CELL_HEIGHT / 2)
        for _, y in (row for row in rows if row[0] == GAP):
            for _, x in (column for column in columns if column[0] != GAP):
                for step in (-5.0, 0.0, 5.0):
                    self.dot(x + self.cell / 2, y + _GAP / 2 + step)

    def dot(self, x: float, y: float) -> None:
        self.picture.marks.append(Rectangle(x - 1, y - 1, 2, 2, _FAINT, radius=1))


def _axis_words(axis: GridAxis) -> str:
    if len(axis.dimensions) == 1:
        return f"dimension {axis.dimensions[0]}, size {axis.bound}"
    sizes = " by ".join(map(str, axis.sizes))
    return f"dimensions {' and '.join(map(str, axis.dimensions))} joined, size {sizes}"


def _blocks(tiles: list[list[int]], rows: list[int], columns: list[int]) -> list[tuple[list[int], list[int]]]:
    """Return the rows and columns of each rectangle of equal numbers in a grid, split at gaps.

    Equal numbers that do not fill a rectangle become a rectangle for each cell.
    """
    row_runs, column_runs = _runs(rows), _runs(columns)
    cells: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for row, (index, row_run) in enumerate(row_runs):
        for column, (other, column_run) in enumerate(column_runs):
            cells.setdefault((tiles[row][column], row_run, column_run), []).append((index, other))
    blocks: list[tuple[list[int], list[int]]] = []
    for members in cells.values():
        ys, xs = sorted({y for y, _ in members}), sorted({x for _, x in members})
        adjacent = ys[-1] - ys[0] < len(ys) and xs[-1] - xs[0] < len(xs)
        if adjacent and len(ys) * len(xs) == len(members):
            blocks.append((ys, xs))
        else:
            blocks += [([y], [x]) for y, x in members]
    return blocks


def _runs(indices: list[int]) -> list[tuple[int, int]]:
    """Return each index with the number of gaps before it."""
    runs: list[tuple[int, int]] = []
    run = 0
    for index in indices:
        if index == GAP:
            run += 1
        else:
            runs.append((index, run))
    return runs


def _cell_width(text: str, frames: int) -> float:
    """Return the width of cells for a text inside a number of frames."""
    return max(34.0, _whole(text_width(text, _TEXT) + 10 + 5 * frames))


def _whole(length: float) -> float:
    """Round a length up to whole units, so that edges fall between pixels."""
    return float(math.ceil(length))


def _draw_cell(
    picture: Picture, x: float, y: float, width: float, fill: str, text: str, padding: bool
) -> None:
    line = _PADDING_LINE if padding else _LINE
    picture.marks.append(Rectangle(x, y, width, _CELL_HEIGHT, fill, line, 1))
    if not text:
        return
    color = "#c4c7cc" if padding else _INK
    baseline = y + _CELL_HEIGHT / 2 + _TEXT / 2
    picture.marks.append(TextMark(x + width / 2, baseline, text, _TEXT, color, "middle"))


def _outline(x: float, y: float, width: float, height: float, inset: float, color: str) -> Rectangle:
    """Return the frame of an inner tile."""
    return Rectangle(x + inset, y + inset, width - 2 * inset, height - 2 * inset, "", color, 1.5, 4)


def _draw_memory(picture: Picture, shape: Shape, top: float) -> float:
    """Draw the first positions in memory with the indices of their elements; return the bottom edge."""
    form = physical_form(shape)
    line = _memory_line(shape)
    lines = max(1, min(_MEMORY_CELLS // line, -(-form.element_count // line)))
    cells = memory_order(shape, line * lines)
    texts = ["" if index is None else ",".join(map(str, index)) for index, _ in cells]
    width = _cell_width(max(texts, key=len), 1)
    x0 = _whole(_MARGIN + text_width(str(line * (lines - 1)), _LABEL) + 10)
    names = ",".join(axis_names(shape.rank))
    heading = "memory, from position 0 on" + (f": the index {names} of each element" if names else "")
    picture.marks.append(TextMark(_MARGIN, top + _LABEL, heading, _LABEL, _GREY))
    untiled = _untiled_end(shape)
    start = top + 24
    for padding in (False, True):
        for number, ((index, color), text) in enumerate(zip(cells, texts, strict=True)):
            if (index is None) is padding:
                x, y = x0 + width * (number % line), start + (_CELL_HEIGHT + 6) * (number // line)
                _draw_cell(picture, x, y, width, _fill(color, untiled), text, padding)
    for number in range(lines):
        y = start + (_CELL_HEIGHT + 6) * number
        label = TextMark(x0 - 10, y + _CELL_HEIGHT / 2 + _LABEL / 2, str(line * number), _LABEL, _GREY, "end")
        picture.marks.append(label)
        count = len(cells[line * number :][:line])
        _outline_memory(picture, shape, (x0, y, width), line * number, count)
        _outline_bytes(picture, shape, (x0, y, width), line * number, count)
    bottom = start + (_CELL_HEIGHT + 6) * lines - 6
    if len(cells) < form.element_count:
        text = f"… {form.element_count - len(cells):,} more"
        picture.marks.append(TextMark(x0, bottom + 16, text, _LABEL, _GREY))
        bottom += 16
    picture.width = max(picture.width, x0 + width * min(line, len(cells)))
    return bottom


def _memory_line(shape: Shape) -> int:
    """Return the number of positions in a line: a multiple of a tile, and a divisor of all if possible."""
    form = physical_form(shape)
    if form.element_count <= _MEMORY_LINE:
        return form.element_count
    unit = 1
    for tiling in form.tilings:
        size = math.prod(tiling.tile)
        if size <= _MEMORY_LINE:
            unit = max(unit, size)
    lengths = [unit * count for count in range(_MEMORY_LINE // unit, 0, -1)]
    divisors = [
        length for length in lengths if form.element_count % length == 0 and length * 2 > _MEMORY_LINE
    ]
    return (divisors or lengths)[0]


def _outline_memory(
    picture: Picture, shape: Shape, line: tuple[float, float, float], first: int, count: int
) -> None:
    """Frame the positions of each innermost tile in a line of `count` positions."""
    tilings = physical_form(shape).tilings
    # Only tiles of the last tiling are contiguous in memory.
    size = math.prod(tilings[-1].tile) if len(tilings) > 1 else 0
    if not size or first % size:
        return
    x0, y, width = line
    color = OUTLINE_COLORS[(len(tilings) - 2) % len(OUTLINE_COLORS)]
    for start in range(0, count - size + 1, size):
        frame = _outline(x0 + width * start, y, width * size, _CELL_HEIGHT, 2.5, color)
        picture.marks.append(frame)


def _outline_bytes(
    picture: Picture, shape: Shape, line: tuple[float, float, float], first: int, count: int
) -> None:
    """Frame the elements of each byte, if they are narrower than a byte."""
    bits = shape.element_bits
    if bits >= 8 or 8 % bits:
        return
    x0, y, width = line
    per_byte = 8 // bits
    start = first
    while start < first + count:
        end = min(first + count, start - start % per_byte + per_byte)
        x = x0 + width * (start - first)
        picture.marks.append(
            Rectangle(x, y - 2, width * (end - start), _CELL_HEIGHT + 4, "", _BYTE_LINE, 1.5, 4)
        )
        start = end


def _draw_legend(picture: Picture, grid: LayoutGrid, top: float) -> float:
    """Draw a line that explains colors and outlines; return its bottom edge."""
    layout = grid.shape.layout
    tiles = layout.tiles if layout is not None else ()
    entries: list[tuple[Rectangle, str]] = []
    fills = {mark.fill for mark in picture.marks if isinstance(mark, Rectangle)}
    strokes = {mark.stroke for mark in picture.marks if isinstance(mark, Rectangle)}
    if tiles:
        entries.append((Rectangle(0, 0, 14, 10, TILE_COLORS[0]), f"a tile {tiles[0]}"))
    for number, tile in enumerate(tiles[1:]):
        color = OUTLINE_COLORS[number % len(OUTLINE_COLORS)]
        text = f"a tile {tile} in it"
        if color in strokes:
            entries.append((Rectangle(1, 1, 12, 8, "", color, 1.5, 3), text))
    if _BYTE_LINE in strokes:
        words = f"a byte of {8 // grid.shape.element_bits} elements"
        entries.append((Rectangle(1, 0, 12, 10, "", _BYTE_LINE, 1.5, 3), words))
    if _PADDING_LINE in strokes:
        entries.append((Rectangle(0, 0, 14, 10, "#ffffff", _PADDING_LINE), "padding"))
    if not tiles and len(fills - {"#ffffff", _FAINT}) > 1:
        entries.append((Rectangle(0, 0, 14, 10, _fill(1, 1)), "the darker, the later in memory"))
    x = _MARGIN
    for mark, text in entries:
        sample = Rectangle(
            x + mark.x,
            top + mark.y,
            mark.width,
            mark.height,
            mark.fill,
            mark.stroke,
            mark.stroke_width,
            mark.radius,
        )
        picture.marks += [sample, TextMark(x + 21, top + 8.5, text, _LABEL, _GREY)]
        x += 21 + text_width(text, _LABEL) + 26
    picture.width = max(picture.width, x - 26)
    return top + 10
