"""The grid of a layout drawing: a two-dimensional slice of an array, as positions in memory.

Columns are the most minor physical dimension, rows the next one; the others have fixed indices, by default 0.
Dimensions that a tile combines (`*`) are one axis. Long axes show their beginning, the first tile boundary,
and their end.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hloom.records import dataclass
from hloom.shape.index import PhysicalForm, multi_index, physical_form, ravel, tile_index
from hloom.shape.shape import Shape

Grid = np.ndarray[tuple[int, ...], np.dtype[np.int64]]

GAP = -1
PADDING = -1


def axis_names(rank: int) -> tuple[str, ...]:
    """Return the names of dimensions: letters as in XLA's documentation, or ``d0`` … from rank 5."""
    if rank <= 4:
        return tuple("pzyx"[4 - rank :])
    return tuple(f"d{number}" for number in range(rank))


@dataclass(frozen=True, slots=True)
class GridAxis:
    """An axis of the grid.

    Attributes:
        name: names of its dimensions.
        dimensions, sizes: the array's dimensions, most major first: several if a tile combines them, none if
            only a tile adds the axis.
        bound, extent: number of indices without and with padding.
        tile: size of the outermost tile, or 0.
        shown: the indices to draw, with `GAP` for omitted ones.
    """

    name: str
    dimensions: tuple[int, ...]
    sizes: tuple[int, ...]
    bound: int
    extent: int
    tile: int
    shown: tuple[int, ...]

    @property
    def indices(self) -> list[int]:
        """The indices to draw, without gaps."""
        return [index for index in self.shown if index != GAP]

    def split(self, index: Any) -> list[Any]:
        """Return the index in each dimension; in padding, the most major one is beyond its size."""
        indices: list[Any] = []
        for size in reversed(self.sizes[1:]):
            indices.append(index % size)
            index = index // size
        return [index, *reversed(indices)]

    def label(self, index: int) -> str:
        """Return an index as text, with a comma between combined dimensions."""
        return ",".join(map(str, self.split(index)))


@dataclass(frozen=True, slots=True)
class LayoutGrid:
    """A slice of an array in memory, as arrays of the shown rows × columns.

    Attributes:
        positions: position in memory of each cell.
        padding: whether a cell holds no element.
        colors: a number for the outermost tile of each cell, different for adjacent tiles; without tiles the
            position.
        inner: for each further tiling, the number of each cell's tile.
    """

    shape: Shape
    rows: GridAxis
    columns: GridAxis
    positions: Grid
    padding: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    colors: Grid
    inner: tuple[Grid, ...]

    @property
    def whole(self) -> bool:
        """Whether the grid shows every element of the array."""
        others = math.prod(self.shape.dimensions) == self.rows.bound * self.columns.bound
        return others and GAP not in self.rows.shown and GAP not in self.columns.shown


def layout_grid(
    shape: Shape, most_rows: int, most_columns: int, at: Mapping[int, int] | None = None
) -> LayoutGrid:
    """Return the grid of an array with limited rows and columns; `at` has the indices of other dimensions."""
    form = physical_form(shape)
    added, joined = _joined(form)
    rows = _axis(shape, form, added, joined[-2], most_rows, _tile_of(form, 2))
    columns = _axis(shape, form, added, joined[-1], most_columns, _tile_of(form, 1))
    fixed = at or {}
    index: list[Any] = [0] * added + [fixed.get(dimension, 0) for dimension in form.major_to_minor]
    padding: Any = False
    for axis, places, values in (
        (rows, joined[-2], np.array(rows.indices, np.int64)[:, None]),
        (columns, joined[-1], np.array(columns.indices, np.int64)[None, :]),
    ):
        for position, part in zip(places, axis.split(values), strict=True):
            index[position] = part
            padding = padding | (part >= (form.bounds[position - added] if position >= added else 1))
    stages = _stages(form, index)
    size = (len(rows.indices), len(columns.indices))
    return LayoutGrid(
        shape,
        rows,
        columns,
        _spread(ravel(stages[-1], form.dimensions), size),
        np.broadcast_to(padding, size),
        _spread(_color(form, stages), size),
        tuple(_spread(number, size) for number in _inner_tiles(form, stages)),
    )


def other_dimensions(grid: LayoutGrid) -> list[int]:
    """Return the dimensions of more than one index that are neither rows nor columns, most major first."""
    drawn = {*grid.rows.dimensions, *grid.columns.dimensions}
    order = physical_form(grid.shape).major_to_minor
    return [d for d in order if d not in drawn and grid.shape.dimensions[d] > 1]


def slices(grid: LayoutGrid) -> Iterator[dict[int, int]]:
    """Yield the indices of the other dimensions for each slice of an array, in memory order."""
    others = other_dimensions(grid)
    for index in itertools.product(*(range(grid.shape.dimensions[d]) for d in others)):
        yield dict(zip(others, index, strict=True))


def slice_words(shape: Shape, at: Mapping[int, int]) -> str:
    """Return the indices of a slice as text, such as ``z = 1, p = 0``."""
    names = axis_names(shape.rank)
    return ", ".join(f"{names[dimension]} = {index}" for dimension, index in at.items())


def memory_order(shape: Shape, count: int) -> list[tuple[tuple[int, ...] | None, int]]:
    """Return the index (None for padding) and the tile's color of the first `count` positions in memory."""
    form = physical_form(shape)
    cells: list[tuple[tuple[int, ...] | None, int]] = []
    for position in range(min(count, form.element_count)):
        index = multi_index(shape, position)
        color = PADDING
        if index is not None:
            ordered: list[object] = [index[dimension] for dimension in form.major_to_minor]
            color = int(_color(form, _stages(form, [0] * max(0, 2 - len(ordered)) + ordered)))
        cells.append((index, color))
    return cells


def _joined(form: PhysicalForm) -> tuple[int, list[list[int]]]:
    """Return the number of dimensions added in front, and the positions of each axis' dimensions."""
    groups = form.tilings[0].groups if form.tilings else ((1,),) * len(form.bounds)
    tiled = sum(map(len, groups))
    added = max(0, tiled - len(form.bounds))
    joined = [[position] for position in range(added + len(form.bounds) - tiled)]
    for group in groups:
        start = joined[-1][-1] + 1 if joined else 0
        joined.append(list(range(start, start + len(group))))
    while len(joined) < 2:
        joined = [[0], *([position + 1 for position in positions] for positions in joined)]
        added += 1
    return added, joined


def _tile_of(form: PhysicalForm, from_end: int) -> int:
    """Return the size of the outermost tile along an axis counted from the end; 0 if it is not tiled."""
    tile = form.tilings[0].tile if form.tilings else ()
    return tile[-from_end] if from_end <= len(tile) else 0


def _axis(
    shape: Shape, form: PhysicalForm, added: int, positions: Sequence[int], most: int, tile: int
) -> GridAxis:
    physical = [position - added for position in positions if position >= added]
    dimensions = tuple(form.major_to_minor[position] for position in physical)
    sizes = tuple(form.padded[position - added] if position >= added else 1 for position in positions)
    names = axis_names(shape.rank)
    bounds = [form.bounds[position] for position in physical]
    extent = math.prod(sizes)
    bound = math.prod(bounds) if len(physical) < 2 or form.bounds == form.padded else extent
    if tile and extent:
        extent = -(-extent // tile) * tile
    name = "·".join(names[dimension] for dimension in dimensions)
    return GridAxis(name, dimensions, sizes, bound, extent, tile, _shown(bound, extent, tile, most))


def _shown(bound: int, extent: int, tile: int, most: int) -> tuple[int, ...]:
    """Return the indices to draw: all, or the first, those at the first tile boundary, and the last."""
    if extent <= most:
        return tuple(range(extent))
    end = min(extent, bound + 1)
    selected = set(range(end - 4, end)) | set(range(most - 8))
    if 0 < tile < bound:
        selected |= set(range(tile - 2, tile + 2))
    else:
        selected |= set(range(most - 4))
    inside = sorted(index for index in selected if 0 <= index < extent)
    shown: list[int] = []
    for index in inside:
        if index and index - 1 not in selected:
            shown.append(GAP)
        shown.append(index)
    return (*shown, GAP) if shown[-1] < extent - 1 else tuple(shown)


def _stages(form: PhysicalForm, index: list[object]) -> list[list[Any]]:
    """Return the index before the first tiling and after each one."""
    stages = [index]
    if not form.tilings:
        return [index, index[len(index) - len(form.bounds) :]]
    for tiling in form.tilings:
        # An index of the drawing may have a dimension in front that the array has not, or lack added ones.
        full = [0] * tiling.added + stages[-1]
        stages.append(tile_index(tiling, full[len(full) - len(tiling.bounds) :]))
    return stages


def _color(form: PhysicalForm, stages: list[list[Any]]) -> Any:
    """Return the color number of the outermost tile, which differs between adjacent tiles."""
    if not form.tilings:
        return ravel(stages[-1], form.dimensions)
    first = form.tilings[0]
    outer = [0, 0, *stages[1][: first.untouched + len(first.tile)]]
    return outer[-1] + 3 * outer[-2]


def _inner_tiles(form: PhysicalForm, stages: list[list[object]]) -> list[Any]:
    """Return the number of an element's tile for each tiling after the first."""
    numbers: list[object] = []
    for tiling, stage in zip(form.tilings[1:], stages[2:], strict=True):
        outer = tiling.untouched + len(tiling.counts)
        numbers.append(ravel(stage[:outer], tiling.result[:outer]))
    return numbers


def _spread(values: object, size: tuple[int, int]) -> Grid:
    return np.broadcast_to(np.asarray(values, np.int64), size)
