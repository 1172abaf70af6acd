"""Marks of pictures: rectangles, lines and text. Coordinates and sizes are in picture units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

ADVANCE: Final = 0.8
"""Advance of a letter of the widest monospaced fonts, relative to the height of a capital."""
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


Mark: TypeAlias = Rectangle | Line | TextMark


def text_width(text: str, size: float) -> float:
    """Return the width of a line of text."""
    return max(0.0, (len(text) - 1) * ADVANCE + LETTER) * size if text else 0.0
