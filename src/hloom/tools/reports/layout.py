"""`hloom layout`: explain a shape and its layout in words, and draw the layout."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path

from hloom.errors import HloError, plural
from hloom.shape.element_type import ElementKind, ElementType
from hloom.shape.index import physical_byte_size, physical_element_count, physical_form, waste
from hloom.shape.layout import Layout, PaddingValue, Tile, padding_text
from hloom.shape.shape import Shape
from hloom.tools.pictures.layout_grid import (
    GAP,
    LayoutGrid,
    axis_names,
    layout_grid,
    other_dimensions,
    slice_words,
    slices,
)

MEMORY_SPACES = {
    0: "the device's main memory (HBM)",
    1: "on-device vector memory (VMEM)",
    5: "host memory",
}

Line = tuple[str, str]


def explain_layout(shape_text: str) -> str:
    """Explain each component of a shape's text, its size in bytes, and its padding.

    Raises HloError, with the column of the error, for an invalid shape.
    """
    shape = Shape.parse(shape_text)
    parts = [
        _table(str(leaf), _lines(leaf), " at index {" + ",".join(map(str, index)) + "}" if index else "")
        for index, leaf in shape.leaves()
    ]
    if shape.is_tuple:
        total = "" if shape.is_unbounded else f", {_bytes(shape.byte_size)} in all"
        count = len(shape.tuple_shapes)
        parts.insert(0, f"a tuple of {count} {'element' if count == 1 else 'elements'}{total}")
    return "\n\n".join(parts)


def slice_at(shape: Shape, text: str) -> dict[int, int]:
    """Parse indices such as ``z=1,p=0``; return them by dimension number.

    Raises HloError with the rule ``layout.at`` for other text, and for indices out of range.
    """
    names = axis_names(shape.rank)
    indices: dict[int, int] = {}
    for part in text.split(",") if text else []:
        name, _, number = part.strip().partition("=")
        if name not in names or not number.isdecimal():
            message = f"--at takes indices such as {names[0] if names else 'z'}=1, got {part!r}; "
            message += f"the dimensions of {shape} are {', '.join(names) or 'none'}"
            raise HloError(message, rule="layout.at")
        dimension = names.index(name)
        if int(number) >= shape.dimensions[dimension]:
            message = f"--at {part.strip()}: the size of dimension {name} is {shape.dimensions[dimension]}"
            raise HloError(message, rule="layout.at")
        indices[dimension] = int(number)
    return indices


def draw_layout(shape: Shape, out_path: str | Path, at: Mapping[int, int] | None = None) -> None:
    """Draw an array's layout to an SVG or PNG file, by the path's suffix.

    Each cell shows the position of its element in memory. Tiles are colored, inner tiles outlined, padding is
    white; large arrays are drawn in part. Raises HloError for shapes without elements and other suffixes.
    """
    from hloom.tools.pictures.layout_picture import layout_picture

    if Path(out_path).suffix.lower() not in (".svg", ".png"):
        raise HloError(
            f"pictures are .svg or .png files, got {Path(out_path).name!r}", rule="picture.format-known"
        )
    layout_picture(shape, at).save(out_path)


def _table(title: str, lines: list[Line], suffix: str) -> str:
    width = max((len(part) for part, _ in lines), default=0)
    return "\n".join([title + suffix, *(f"  {part:<{width}}  {words}" for part, words in lines)])


def _lines(shape: Shape) -> list[Line]:
    """Explain each component of a shape that is not a tuple."""
    if shape.is_token:
        return [("token", "orders side effects; it has no value and no memory")]
    if shape.is_opaque:
        return [("opaque", "a value that only custom calls look into")]
    if shape.is_buffer:
        return [("b(…)", "a buffer that holds the array"), *_lines(shape.tuple_shapes[0])]
    lines = [(shape.element_type.name, _type_words(shape.element_type))]
    lines.append((f"[{_dimensions_text(shape)}]", _dimensions_words(shape)))
    layout = shape.layout or Layout.default(shape.rank)
    if shape.rank:
        lines.append((f"{{{','.join(map(str, layout.minor_to_major))}}}", _order_words(shape, layout)))
    lines += _tile_lines(shape, layout)
    lines += _component_lines(shape, layout)
    return lines + ([] if shape.is_unbounded else _size_lines(shape))


def _type_words(element_type: ElementType) -> str:
    kind, bits = element_type.kind, element_type.bits
    if kind is ElementKind.PREDICATE:
        return "truth values, a byte each"
    if kind is ElementKind.COMPLEX:
        return f"complex numbers of two {element_type.component}, {bits} bits together"
    if kind is ElementKind.FLOATING:
        mantissa = element_type.mantissa_bits
        return f"floating-point numbers of {bits} bits, {mantissa} of them mantissa"
    return f"{element_type.kind.value}s of {bits} bit{'s' if bits > 1 else ''}"


def _dimensions_text(shape: Shape) -> str:
    return shape.to_string(layout=False).split("[", 1)[1][:-1]


def _dimensions_words(shape: Shape) -> str:
    if not shape.rank:
        return "a scalar: no dimensions, 1 element"
    sizes: list[str] = []
    for name, size, dynamic in zip(
        axis_names(shape.rank), shape.dimensions, shape.dynamic_dimensions, strict=True
    ):
        if size == Shape.UNBOUNDED:
            sizes.append(f"{name} of any size")
        else:
            sizes.append(f"{name} {'at most' if dynamic else '='} {size}")
    count = "" if shape.is_unbounded else f"; {plural(shape.element_count, 'element')}"
    noun = "dimension" if shape.rank == 1 else "dimensions"
    return f"{shape.rank} {noun}, {', '.join(sizes)}{count}; true rank {shape.true_rank}"


def _order_words(shape: Shape, layout: Layout) -> str:
    names = [axis_names(shape.rank)[dimension] for dimension in layout.minor_to_major]
    if len(names) == 1:
        return f"in memory along {names[0]}"
    default = (
        "the default order" if layout.minor_to_major == Layout.default(shape.rank).minor_to_major else ""
    )
    slower = "".join(f", then {name}" for name in names[1:])
    return f"in memory {names[0]} varies fastest{slower}{default and f' ({default})'}"


def _tile_lines(shape: Shape, layout: Layout) -> list[Line]:
    """Explain each tiling by the names of the dimensions that it tiles."""
    if shape.is_unbounded:
        return [
            (f"T{tile}" if not number else str(tile), "a tile") for number, tile in enumerate(layout.tiles)
        ]
    names = [axis_names(shape.rank)[dimension] for dimension in layout.major_to_minor]
    lines: list[Line] = []
    for number, (tile, tiling) in enumerate(zip(layout.tiles, physical_form(shape).tilings, strict=True)):
        full = ["an added dimension"] * tiling.added + names
        joined: list[str] = []
        start = tiling.untouched
        for group in tiling.groups:
            joined.append("·".join(full[start : start + len(group)]))
            start += len(group)
        words = " by ".join(f"{size} along {name}" for size, name in zip(tiling.tile, joined, strict=True))
        count = 1
        for tiles in tiling.counts:
            count *= tiles
        lead = "tiles of " if number == 0 else "tiled once more: "
        also = f", {plural(count, 'tile')}" if number == 0 and not tiling.untouched else ""
        lines.append(
            (("T" if number == 0 else "") + str(tile), lead + words + also + _word_note(shape, tile))
        )
        places = [f"tiles along {name}" for name in joined] + [f"{name} in the tile" for name in joined]
        names = [*full[: tiling.untouched], *places]
    return lines


def _word_note(shape: Shape, tile: Tile) -> str:
    """Return a note if a tile packs several narrow elements into a 32-bit word."""
    count = tile.element_count
    if count > 1 and count * shape.element_bits == 32 and tile.dimensions[-1] == 1:
        return f"; {count} elements of {shape.element_bits} bits make a word of 32"
    return ""


def _component_lines(shape: Shape, layout: Layout) -> list[Line]:
    """Explain the components after the tiles, in the order of the text; S(0) also where it is omitted."""
    lines: list[Line] = []
    alignment = layout.tail_padding_alignment_in_elements
    if alignment != 1:
        lines.append((f"L({alignment})", f"padded at the end to a multiple of {alignment} elements"))
    for sign, element_type, what in (
        ("#", layout.index_primitive_type, "indices"),
        ("*", layout.pointer_primitive_type, "pointers"),
    ):
        if element_type is not None:
            lines.append((f"{sign}({element_type})", f"{what} of sparse storage are {element_type}"))
    if layout.element_size_in_bits:
        bits = layout.element_size_in_bits
        lines.append((f"E({bits})", f"each element takes {plural(bits, 'bit')} of memory"))
    space = MEMORY_SPACES.get(layout.memory_space, "a memory space of the device's own")
    lines.append((f"S({layout.memory_space})", space))
    names = axis_names(shape.rank)
    for split in layout.split_configs:
        where = " and ".join(map(str, split.split_indices))
        lines.append((f"SC{split}", f"split along {names[split.dimension]} before index {where}"))
    prefix = layout.dynamic_shape_metadata_prefix_bytes
    if prefix:
        lines.append((f"M({prefix})", f"{prefix} bytes in front hold the real sizes of dynamic dimensions"))
    if layout.padded_dimensions:
        sizes = " × ".join(map(str, layout.padded_dimensions))
        filled = "" if layout.padding_value is PaddingValue.INVALID else f" with {layout.padding_value.name}"
        lines.append((padding_text(layout), f"padded{filled.lower()} to {sizes}"))
    return lines


def _size_lines(shape: Shape) -> list[Line]:
    total = physical_element_count(shape)
    padding = total - shape.element_count
    spent = f"{plural(total, 'element')} of {plural(shape.element_bits, 'bit')}"
    words = f"{padding:,} of {total:,} elements, {100 * waste(shape):.3g} % wasted" if padding else "none"
    return [("size", f"{_bytes(physical_byte_size(shape))}: {spent}"), ("padding", words)]


def _bytes(count: int) -> str:
    """Return a number of bytes as text, from 1 KiB also in binary units."""
    text = plural(count, "byte")
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{text} ({count / (1 << power):.4g} {unit})"
    return text


# The drawing in the terminal.

# Pale backgrounds of the 256 terminal colours, and a second shade of each for every other inner tile.
_SHADES = ((153, 117), (223, 216), (157, 120), (218, 211), (189, 147), (229, 227), (159, 123), (187, 180))
_RESET = "\x1b[0m"
_MOST_TERMINAL_ROWS = 14
_MOST_SLICES = 4


def terminal_drawing(
    shape: Shape, *, color: bool, columns: int = 80, at: Mapping[int, int] | None = None
) -> str:
    """Draw an array's layout for a terminal of `columns` characters; empty without elements.

    Each cell shows the position of its element in memory, in parentheses for padding. With color, tiles have
    background colors and inner tiles two shades of them; otherwise lines separate tiles.
    """
    if not shape.is_array or shape.is_unbounded or shape.element_count == 0:
        return ""
    first = _fitting_grid(shape, columns, {})
    fixed = {d: at.get(d, 0) for d in other_dimensions(first)} if at else {}
    slice_indices = [fixed] if at else list(itertools.islice(slices(first), _MOST_SLICES))
    drawn = [_slice_drawing(_fitting_grid(shape, columns, where), where, color) for where in slice_indices]
    left_out = math.prod(shape.dimensions[d] for d in other_dimensions(first)) - len(slice_indices)
    if left_out and not at:
        drawn.append(f"… {left_out:,} more slices; --at chooses one")
    return "\n\n".join(drawn)


def _slice_drawing(grid: LayoutGrid, where: Mapping[int, int], color: bool) -> str:
    """Draw one slice of an array."""
    width = _cell_width(grid)
    label = max([len(grid.rows.label(index)) for index in grid.rows.indices] if grid.rows.name else [0])
    lines = [_heading(grid, where)]
    if grid.columns.name:
        labels = [grid.columns.label(index) for index in grid.columns.indices]
        lines.append(" " * (label + 2) + _row(labels, grid, width))
    row = 0
    for number, index in enumerate(grid.rows.shown):
        if index == GAP:
            lines.append(" " * (label + 2) + "⋮".rjust(width))
            continue
        if number and not color and _starts_tile(grid.rows.tile, index):
            lines.append(_rule(grid, width, label))
        name = grid.rows.label(index) if grid.rows.name else ""
        lines.append(f"{name:>{label}}  " + _cells(grid, row, width, color))
        row += 1
    return "\n".join(line.rstrip() for line in lines)


def _fitting_grid(shape: Shape, columns: int, at: Mapping[int, int]) -> LayoutGrid:
    """Return the widest grid of the array that fits into a number of characters."""
    for most in (32, 24, 20, 16, 14, 12, 10):
        grid = layout_grid(shape, _MOST_TERMINAL_ROWS, most, at)
        shown = len(grid.columns.shown)
        if (shown + 1) * (_cell_width(grid) + 1) + 12 <= columns:
            return grid
    return layout_grid(shape, _MOST_TERMINAL_ROWS, 9, at)


def _cell_width(grid: LayoutGrid) -> int:
    indices = [len(grid.columns.label(index)) for index in grid.columns.indices]
    texts = [len(_cell_text(grid, row, column)) for row, column in _places(grid)]
    return max(2, *indices, *texts) + 1


def _places(grid: LayoutGrid) -> list[tuple[int, int]]:
    rows, columns = grid.positions.shape
    return [(row, column) for row in range(rows) for column in range(columns)]


def _cell_text(grid: LayoutGrid, row: int, column: int) -> str:
    text = str(grid.positions[row, column])
    return f"({text})" if grid.padding[row, column] else text


def _heading(grid: LayoutGrid, where: Mapping[int, int]) -> str:
    others = f" where {slice_words(grid.shape, where)}" if where else ""
    axes = [f"{axis.name} {arrow}" for axis, arrow in ((grid.columns, "→"), (grid.rows, "↓")) if axis.name]
    return f"position in memory of each element{others}" + (f"; {', '.join(axes)}" if axes else "")


def _starts_tile(tile: int, index: int) -> bool:
    return bool(tile) and index > 0 and index % tile == 0


def _row(texts: list[str], grid: LayoutGrid, width: int, bar: str = " ") -> str:
    """Join texts to a line of columns, with `bar` where a tile starts and an ellipsis at gaps."""
    line = ""
    remaining = iter(texts)
    for index in grid.columns.shown:
        if index == GAP:
            line += " … "
        else:
            line += (bar if _starts_tile(grid.columns.tile, index) else " ") + next(remaining).rjust(width)
    return line


def _rule(grid: LayoutGrid, width: int, label: int) -> str:
    line = " " * (label + 2)
    for index in grid.columns.shown:
        if index == GAP:
            line += " … "
        else:
            line += ("┼" if _starts_tile(grid.columns.tile, index) else "─") + "─" * width
    return line


def _cells(grid: LayoutGrid, row: int, width: int, color: bool) -> str:
    """Return one row of cells."""
    count = grid.positions.shape[1]
    texts = [_cell_text(grid, row, column) for column in range(count)]
    if not color:
        return _row(texts, grid, width, "│")
    line = ""
    column = 0
    for index in grid.columns.shown:
        if index == GAP:
            line += " … "
            continue
        text = " " + texts[column].rjust(width)
        line += text if grid.padding[row, column] else _shaded(grid, row, column, text)
        column += 1
    return line


def _shaded(grid: LayoutGrid, row: int, column: int, text: str) -> str:
    """Color a cell by its outermost tile, with the second shade in every other inner tile."""
    layout = grid.shape.layout
    tiled = layout is not None and layout.tiles
    shades = _SHADES[int(grid.colors[row, column]) % len(_SHADES) if tiled else 0]
    second = int(grid.inner[0][row, column]) % 2 if grid.inner else 0
    return f"\x1b[30;48;5;{shades[second]}m{text}{_RESET}"
