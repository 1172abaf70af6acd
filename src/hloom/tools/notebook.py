"""Notebooks: the `_repr_html_` of modules, shapes and layouts."""

from __future__ import annotations

from html import escape
from typing import Final

from hloom.ir.module import HloModule
from hloom.shape.element_type import F32, U4
from hloom.shape.layout import Layout, Tile
from hloom.shape.shape import Shape

_DRAWN: Final = 300
"""Number of instructions up to which a module is drawn."""
_LINES: Final = 60
_EXAMPLE_SIZE: Final = 2


def module_html(module: HloModule) -> str:
    """Return a small program as its picture, a large one as the beginning of its text."""
    from hloom.tools.graph_scene import scene_of
    from hloom.tools.graph_svg import to_svg

    count = sum(len(computation) for computation in module.computations)
    if count <= _DRAWN:
        return f'<div style="max-height: 640px; overflow: auto">{to_svg(scene_of(module))}</div>'
    lines = module.to_text().split("\n")
    rest = f"\n… {len(lines) - _LINES} more lines; hloom view shows the whole program" * (len(lines) > _LINES)
    return (
        f"<b>{escape(module.name)}</b>: {count} instructions in {len(module.computations)} computations"
        f"{_pre(chr(10).join(lines[:_LINES]) + rest)}"
    )


def shape_html(shape: Shape) -> str:
    """Return the explanation of a shape, and the picture of an array's layout."""
    from hloom.tools.layout import explain_layout
    from hloom.tools.layout_picture import layout_picture

    text = _pre(explain_layout(str(shape)))
    if not shape.is_array or shape.is_unbounded or shape.element_count == 0:
        return text
    return text + layout_picture(shape).to_svg()


def layout_html(layout: Layout) -> str:
    """Return a layout explained by an array that it fits: two tiles in each tiled dimension, one not full."""
    rank = layout.rank
    sizes = [_EXAMPLE_SIZE] * rank
    tile = layout.tiles[0].dimensions if layout.tiles else ()
    for dimension, size in zip(layout.minor_to_major, reversed(tile), strict=False):
        if size != Tile.COMBINE:
            sizes[dimension] = size + 1
    if layout.padded_dimensions:
        sizes = list(layout.padded_dimensions)
    bits = layout.element_size_in_bits
    element_type = U4 if 0 < bits <= 4 else F32
    example = Shape.array(element_type, sizes, layout)
    return f"<div>for example</div>{shape_html(example)}"


def _pre(text: str) -> str:
    return f'<pre style="overflow: auto; margin: 4px 0 10px">{escape(text)}</pre>'
