"""The picture of a program: computations as boxes, instructions as nodes, values and calls as curves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.tools.pictures.graph_scene import (
    ADVANCE,
    BOX_PADDING,
    BOX_TITLE,
    DETAIL_SIZE,
    FAMILIES,
    LINE,
    PADDING,
    TITLE_SIZE,
    Box,
    Node,
    Scene,
)
from hloom.tools.pictures.marks import Curve, Mark, MarkGroup, Point, Rectangle, TextMark
from hloom.tools.pictures.picture import Picture

_MARGIN: Final = 28.0
_HEADER: Final = 44.0
_LEGEND: Final = 40.0
_LEGEND_SIZE: Final = 11.0
_CAP: Final = 0.72
"""Height of a capital letter, relative to the font size."""
_THIN: Final = 1.3
_BOX_FILLS: Final = ("#fbfbfd", "#f5f6fb", "#eff1f9")
"""Fill colors of a computation, darker with its call depth."""
_INK, _GREY, _DETAIL = "#22252e", "#5b6072", "#565b6b"
_VALUE, _ORDER, _CALL = "#9aa0b0", "#d0565b", "#c2517c"
"""Colors of the curves of values, control dependencies and calls."""


def scene_picture(scene: Scene) -> Picture:
    """Return the picture of a scene, with title, legend and margins."""
    legend = sum(_legend_width(family) for family in scene.families)
    width = max(scene.width, legend, 240.0) + 2 * _MARGIN
    picture = Picture(width, scene.height + _HEADER + _LEGEND + 2 * _MARGIN, scene.title)
    picture.marks.append(TextMark(_MARGIN, _MARGIN + 16, scene.title, 18 * _CAP, _INK, bold=True))
    picture.marks += [mark for box in scene.boxes for mark in _frame(box)]
    picture.marks += [_call(*call) for call in scene.calls]
    picture.marks += [mark for box in scene.boxes for mark in _contents(box)]
    picture.marks += _legend(scene, picture.height - _MARGIN - 14)
    return picture


# -- boxes and nodes


def _corner(box: Box) -> Point:
    """Return the upper left corner of a box in the picture."""
    return _MARGIN + box.x, _MARGIN + _HEADER + box.y


def _origin(box: Box) -> Point:
    """Return the upper left corner of a box's content in the picture."""
    x, y = _corner(box)
    slack = (box.width - 2 * BOX_PADDING - box.layout.width) / 2
    return x + BOX_PADDING + slack, y + BOX_TITLE + BOX_PADDING


def _frame(box: Box) -> Iterator[Mark]:
    x, y = _corner(box)
    fill = _BOX_FILLS[min(box.column, len(_BOX_FILLS) - 1)]
    yield Rectangle(x, y, box.width, box.height, fill, "#c9cdda", 1.2, 12)
    yield TextMark(x + BOX_PADDING, y + 24, box.title, TITLE_SIZE * _CAP, _GREY, bold=True)


def _contents(box: Box) -> Iterator[Mark]:
    x0, y0 = _origin(box)
    for (source, target), points in box.layout.paths.items():
        assert isinstance(source, HloInstruction) and isinstance(target, HloInstruction)
        look = (_VALUE, "") if source in target.operands else (_ORDER, "4 3")
        curve = _curve([(x + x0, y + y0) for x, y in points], *look)
        yield MarkGroup((curve,), {"class": "edge", "data-from": source.name, "data-to": target.name})
    for node in box.nodes.values():
        marks = tuple(_node(node, x0 + node.x, y0 + node.y))
        yield MarkGroup(marks, {"class": "node", "data-name": node.instruction.name}, node.tooltip)


def _node(node: Node, x: float, y: float) -> Iterator[Mark]:
    fill, line = FAMILIES[node.family]
    x0, y0 = x - node.width / 2, y - node.height / 2
    thickness = 2.6 if node.is_root else 1.2
    yield Rectangle(x0, y0, node.width, node.height, fill, line, thickness, 7)
    yield TextMark(x, y0 + PADDING + 9, node.title, TITLE_SIZE * _CAP, _INK, "middle", bold=True)
    for number, detail in enumerate(node.details):
        baseline = y0 + PADDING + 9 + LINE * (number + 1)
        yield TextMark(x, baseline, detail, DETAIL_SIZE * _CAP, _DETAIL, "middle")


# -- edges


def _curve(points: list[Point], color: str, dashes: str) -> Curve:
    """Return a smooth curve through points of increasing y, vertical at each of them."""
    pieces: list[tuple[Point, ...]] = []
    for (x, y), (u, v) in pairwise(points):
        bend = (v - y) * 0.5
        pieces.append(((u, v),) if abs(u - x) < 0.5 else ((x, y + bend), (u, v - bend), (u, v)))
    return Curve(points[0], tuple(pieces), color, _THIN, dashes)


def _call(box: Box, node: Node, called: Box, role: str) -> Mark:
    x0, y0 = _origin(box)
    x, y = x0 + node.x + node.width / 2, y0 + node.y
    u, v = _corner(called)[0], _corner(called)[1] + 20
    bend = max(40.0, (u - x) * 0.5)
    curve = Curve((x, y), (((x + bend, y), (u - bend, v), (u, v)),), _CALL, _THIN, "2 4")
    return MarkGroup((curve,), {"class": "call"}, role)


# -- the legend


def _legend_width(family: str) -> float:
    return 34 + ADVANCE * _LEGEND_SIZE * len(family)


def _legend(scene: Scene, y: float) -> Iterator[Mark]:
    x = _MARGIN
    for family in scene.families:
        fill, line = FAMILIES[family]
        yield Rectangle(x, y, 14, 14, fill, line, 1, 4)
        yield TextMark(x + 20, y + 11, family, _LEGEND_SIZE * _CAP, _DETAIL)
        x += _legend_width(family)
