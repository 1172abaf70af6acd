"""Marks of pictures: rectangles, lines, curves and text. Coordinates and sizes are in picture units."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final, TypeAlias

from hloom.records import dataclass

ADVANCE: Final = 0.8
"""Advance of a letter of the widest monospaced fonts, relative to the height of a capital."""
_PIECES: Final = 10
"""Number of straight lines that approximate a curve."""
LETTER: Final = 4 / 7
"""Width of a letter, relative to the height of a capital."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle; colors are ``#rrggbb``, or empty for none."""

    x: float
    y: float
    width: float
    height: float
    fill: str = ""
    stroke: str = ""
    stroke_width: float = 1.0
    radius: float = 0.0


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line."""

    x1: float
    y1: float
    x2: float
    y2: float
    color: str = "#202124"
    width: float = 1.0


@dataclass(frozen=True, slots=True)
class TextMark:
    """A line of text: `y` is the baseline, `size` the height of capitals, `anchor` the point at `x`."""

    x: float
    y: float
    text: str
    size: float
    color: str = "#202124"
    anchor: str = "start"
    bold: bool = False


Point: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Curve:
    """A path with an arrowhead at its end: straight pieces (end), and Bézier curves (control, control, end).

    Attributes:
        start, pieces: the first point, and what follows.
        color, width: of the line.
        dashes: SVG's ``stroke-dasharray``; empty for a solid line.
    """

    start: Point
    pieces: tuple[tuple[Point, ...], ...]
    color: str
    width: float
    dashes: str = ""

    def lines(self) -> Iterator[Line]:
        """Yield the path in straight lines, without dashes."""
        path = [self.start]
        for piece in self.pieces:
            path += piece if len(piece) == 1 else list(_bezier(path[-1], *piece))[1:]
        (x, y), (u, v) = path[-2:]
        length = math.hypot(u - x, v - y) or 1.0
        dx, dy = (u - x) / length, (v - y) / length
        barbs = [(u - 6 * dx + side * dy, v - 6 * dy - side * dx) for side in (3.5, -3.5)]
        for a, b in (*pairwise(path), *((barb, (u, v)) for barb in barbs)):
            yield Line(*a, *b, self.color, self.width)


def _bezier(a: Point, b: Point, c: Point, d: Point) -> Iterator[Point]:
    for piece in range(_PIECES + 1):
        t = piece / _PIECES
        weights = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
        x, y = (sum(w * p[k] for w, p in zip(weights, (a, b, c, d), strict=True)) for k in (0, 1))
        yield x, y


@dataclass(frozen=True, slots=True)
class MarkGroup:
    """Marks that belong together, with attributes for scripts of a page, and a tooltip."""

    marks: tuple[Mark, ...]
    attributes: Mapping[str, str]
    tooltip: str = ""


SimpleMark: TypeAlias = Rectangle | Line | TextMark
Mark: TypeAlias = SimpleMark | Curve | MarkGroup


def simple(marks: Iterable[Mark]) -> Iterator[SimpleMark]:
    """Yield the marks of groups one by one, and curves as lines."""
    for mark in marks:
        if isinstance(mark, MarkGroup):
            yield from simple(mark.marks)
        elif isinstance(mark, Curve):
            yield from mark.lines()
        else:
            yield mark


def text_width(text: str, size: float) -> float:
    """Return the width of a line of text."""
    return max(0.0, (len(text) - 1) * ADVANCE + LETTER) * size if text else 0.0
