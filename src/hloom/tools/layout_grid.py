"""The grid of a layout drawing: two dimensions of the array as positions in memory.

Columns are the most minor physical dimension, rows the next one; the indices of all others are 0. Long
dimensions are cut to their beginning, the first border between tiles, and their end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hloom.shape.index import PhysicalForm, Tiling, multi_index, physical_form, ravel, tile_index
from hloom.shape.shape import Shape

Grid = np.ndarray[Any, np.dtype[np.int64]]

GAP = -1
PADDING = -1


def axis_names(rank: int) -> tuple[str, ...]:
    """Return the letters of the dimensions as in XLA's pages; numbers from five dimensions on."""
    if rank <= 4:
        return tuple("pzyx"[4 - rank :])
    return tuple(f"d{number}" for number in range(rank))


@dataclass(frozen=True, slots=True)
class Axis:
    """One direction of the grid: `extent` indices with padding, of which `bound` are of the array.

    `dimension` is the array's dimension number, None for one that only a tile adds; `tile` is the size
    of the outermost tile or 0; `shown` are the indices to draw, with `GAP` for omitted ones.
    """

    name: str
    dimension: int | None
    bound: int
    extent: int
    tile: int
    shown: tuple[int, ...]

    @property
    def indices(self) -> list[int]:
        """Return the indices to draw, without gaps."""
        return [index for index in self.shown if index != GAP]


@dataclass(frozen=True, slots=True)
class LayoutGrid:
    """Two dimensions of a laid-out array; the arrays are rows × columns of the indices shown.

    `positions` are positions in memory, `padding` says where there is no element, `colors` number the
    outermost tiles so that neighbours differ (or rise with the position if there are none), and `inner` has,
    for each further tiling, the numbers of its tiles.
    """

    shape: Shape
    rows: Axis
    columns: Axis
    positions: Grid
    padding: np.ndarray[Any, np.dtype[np.bool_]]
    colors: Grid
    inner: tuple[Grid, ...]

    @property
    def whole(self) -> bool:
        """Return whether every element of the array is in the grid."""
        others = math.prod(self.shape.dimensions) == self.rows.bound * self.columns.bound
        return others and GAP not in self.rows.shown and GAP not in self.columns.shown


def layout_grid(shape: Shape, most_rows: int, most_columns: int) -> LayoutGrid:
    """Return the grid of an array, limited to `rows` and `columns`."""
    form = physical_form(shape)
    added = max(form.tilings[0].added if form.tilings else 0, 2 - len(form.bounds))
    rows = _axis(shape, form, added, 2, most_rows)
    columns = _axis(shape, form, added, 1, most_columns)
    index: list[Any] = [0] * (added + len(form.bounds))
    index[-2:] = [np.array(rows.indices, np.int64)[:, None], np.array(columns.indices, np.int64)[None, :]]
    stages = _stages(form, index)
    size = (len(rows.indices), len(columns.indices))
    return LayoutGrid(
        shape,
        rows,
        columns,
        _spread(ravel(stages[-1], form.dimensions), size),
        np.broadcast_to((index[-2] >= rows.bound) | (index[-1] >= columns.bound), size),
        _spread(_color(form, stages), size),
        tuple(_spread(number, size) for number in _inner_tiles(form, stages)),
    )


def memory_order(shape: Shape, count: int) -> list[tuple[tuple[int, ...] | None, int]]:
    """For the first `count` positions in memory return the index, None for padding, and the tile's color."""
    form = physical_form(shape)
    found: list[tuple[tuple[int, ...] | None, int]] = []
    for position in range(min(count, form.element_count)):
        index = multi_index(shape, position)
        color = PADDING
        if index is not None:
            ordered: list[Any] = [index[dimension] for dimension in form.major_to_minor]
            color = int(_color(form, _stages(form, [0] * max(0, 2 - len(ordered)) + ordered)))
        found.append((index, color))
    return found


def _axis(shape: Shape, form: PhysicalForm, added: int, from_end: int, most: int) -> Axis:
    place = len(form.bounds) - from_end
    if place < 0:
        name, dimension, bound, extent = "", None, 1, 1
    else:
        dimension = form.major_to_minor[place]
        name = axis_names(shape.rank)[dimension]
        bound, extent = form.bounds[place], form.padded[place]
    tile = _tile_size(form.tilings[0], added + len(form.bounds) - from_end) if form.tilings else 0
    if tile and extent:
        extent = -(-extent // tile) * tile
    return Axis(name, dimension, bound, extent, tile, _shown(bound, extent, tile, most))


def _tile_size(tiling: Tiling, place: int) -> int:
    """Return the tile's size along one dimension, 0 if it does not tile it or joins dimensions."""
    start = tiling.untouched + max(0, 2 - len(tiling.bounds))
    for group, size in zip(tiling.groups, tiling.tile, strict=True):
        if start == place and len(group) == 1:
            return size
        start += len(group)
    return 0


def _shown(bound: int, extent: int, tile: int, most: int) -> tuple[int, ...]:
    """Return the indices to draw: all, or the first, those at the border of the first tile, and the last."""
    if extent <= most:
        return tuple(range(extent))
    end = min(extent, bound + 1)
    wanted = set(range(end - 4, end)) | set(range(most - 8))
    if 0 < tile < bound:
        wanted |= set(range(tile - 2, tile + 2))
    else:
        wanted |= set(range(most - 4))
    inside = sorted(index for index in wanted if 0 <= index < extent)
    shown: list[int] = []
    for index in inside:
        if index and index - 1 not in wanted:
            shown.append(GAP)
        shown.append(index)
    return (*shown, GAP) if shown[-1] < extent - 1 else tuple(shown)


def _stages(form: PhysicalForm, index: list[Any]) -> list[list[Any]]:
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
    """Return a color number of the outermost tile; adjacent tiles have different ones."""
    if not form.tilings:
        return ravel(stages[-1], form.dimensions)
    first = form.tilings[0]
    outer = [0, 0, *stages[1][: first.untouched + len(first.tile)]]
    return outer[-1] + 3 * outer[-2]


def _inner_tiles(form: PhysicalForm, stages: list[list[Any]]) -> list[Any]:
    """Return the number of the tile of an element, for each tiling after the first."""
    found: list[Any] = []
    for tiling, stage in zip(form.tilings[1:], stages[2:], strict=True):
        outer = tiling.untouched + len(tiling.counts)
        found.append(ravel(stage[:outer], tiling.result[:outer]))
    return found


def _spread(values: Any, size: tuple[int, int]) -> Grid:
    return np.broadcast_to(np.asarray(values, np.int64), size)
