"""The picture of a program as rectangles, lines and text, for `.png` files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.tools.pictures.graph_layout import Point
from hloom.tools.pictures.graph_scene import (
    ADVANCE,
    BOX_PADDING,
    DETAIL_SIZE,
    FAMILIES,
    LINE,
    PADDING,
    TITLE_SIZE,
    Box,
    Node,
    Scene,
)
from hloom.tools.pictures.graph_svg import HEADER, MARGIN, box_fill, origin, picture_size
from hloom.tools.pictures.marks import Line, Mark, Rectangle, TextMark
from hloom.tools.pictures.picture import Picture

_CAP: Final = 0.72
"""Height of a capital letter, relative to the font size."""
_PIECES: Final = 10
"""Number of straight lines that approximate a curve."""


def scene_picture(scene: Scene) -> Picture:
    """Return the picture of a scene, equal to that of `to_svg`."""
    width, height = picture_size(scene)
    picture = Picture(width, height, scene.title)
    picture.marks.append(TextMark(MARGIN, MARGIN + 16, scene.title, 18 * _CAP, "#22252e", bold=True))
    shift = (MARGIN, MARGIN + HEADER)
    for box in scene.boxes:
        picture.marks += _box(box, shift)
    for box, node, called, _ in scene.calls:
        picture.marks += _call(box, node, called, shift)
    for box in scene.boxes:
        picture.marks += _contents(box, shift)
    picture.marks += _legend(scene, height - MARGIN - 14)
    return picture


def _box(box: Box, shift: Point) -> Iterator[Mark]:
    x, y = box.x + shift[0], box.y + shift[1]
    yield Rectangle(x, y, box.width, box.height, box_fill(box), "#c9cdda", 1.2, 12)
    yield TextMark(x + BOX_PADDING, y + 24, box.title, TITLE_SIZE * _CAP, "#5b6072", bold=True)


def _contents(box: Box, shift: Point) -> Iterator[Mark]:
    x0, y0 = (a + b for a, b in zip(origin(box), shift, strict=True))
    for (source, target), points in box.layout.paths.items():
        assert isinstance(target, HloInstruction)
        color = "#9aa0b0" if source in target.operands else "#d0565b"
        yield from _arrow([(x + x0, y + y0) for x, y in points], color)
    for node in box.nodes.values():
        yield from _node(node, x0 + node.x, y0 + node.y)


def _node(node: Node, x: float, y: float) -> Iterator[Mark]:
    fill, line = FAMILIES[node.family]
    x0, y0 = x - node.width / 2, y - node.height / 2
    thickness = 2.6 if node.is_root else 1.2
    yield Rectangle(x0, y0, node.width, node.height, fill, line, thickness, 7)
    yield TextMark(x, y0 + PADDING + 9, node.title, TITLE_SIZE * _CAP, "#22252e", "middle", bold=True)
    for number, detail in enumerate(node.details):
        baseline = y0 + PADDING + 9 + LINE * (number + 1)
        yield TextMark(x, baseline, detail, DETAIL_SIZE * _CAP, "#565b6b", "middle")


def _call(box: Box, node: Node, called: Box, shift: Point) -> Iterator[Mark]:
    x0, y0 = origin(box)
    start = (x0 + node.x + node.width / 2 + shift[0], y0 + node.y + shift[1])
    end = (called.x + shift[0], called.y + 20 + shift[1])
    bend = max(40.0, (end[0] - start[0]) * 0.5)
    controls = (start[0] + bend, start[1]), (end[0] - bend, end[1])
    yield from _lines(list(_bezier(start, *controls, end)), "#c2517c")


def _arrow(points: Sequence[Point], color: str) -> Iterator[Mark]:
    """Yield an arrow along a smooth path through points, vertical at each of them."""
    path: list[Point] = [points[0]]
    for a, b in pairwise(points):
        bend = (b[1] - a[1]) * 0.5
        straight = abs(b[0] - a[0]) < 0.5
        path += [b] if straight else list(_bezier(a, (a[0], a[1] + bend), (b[0], b[1] - bend), b))[1:]
    yield from _lines(path, color)
    x, y = points[-1]
    yield Line(x - 3.5, y - 6, x, y, color, 1.3)
    yield Line(x + 3.5, y - 6, x, y, color, 1.3)


def _bezier(a: Point, b: Point, c: Point, d: Point) -> Iterator[Point]:
    for piece in range(_PIECES + 1):
        t = piece / _PIECES
        weights = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
        x, y = (sum(w * p[k] for w, p in zip(weights, (a, b, c, d), strict=True)) for k in (0, 1))
        yield x, y


def _lines(path: Sequence[Point], color: str) -> Iterator[Mark]:
    for (x, y), (u, v) in pairwise(path):
        yield Line(x, y, u, v, color, 1.3)


def _legend(scene: Scene, y: float) -> Iterator[Mark]:
    x = MARGIN
    for family in scene.families:
        fill, line = FAMILIES[family]
        yield Rectangle(x, y, 14, 14, fill, line, 1, 4)
        yield TextMark(x + 20, y + 11, family, 11 * _CAP, "#565b6b")
        x += 34 + ADVANCE * 11 * len(family)
