"""Marks of pictures: rectangles, lines and text, in picture units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

ADVANCE: Final = 0.8
"""From one letter to the next, in the height of a capital: of monospaced fonts, which are the widest."""
LETTER: Final = 4 / 7
"""The width of one letter, in the height of a capital."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle in picture units; a colour is "#rrggbb", "" for none."""

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
    """A straight line from one point to another, `width` picture units thick."""

    x1: float
    y1: float
    x2: float
    y2: float
    color: str = "#202124"
    width: float = 1.0


@dataclass(frozen=True, slots=True)
class TextMark:
    """One line of text: `y` is the baseline, `size` the cap height, `anchor` the point at `x`."""

    x: float
    y: float
    text: str
    size: float
    color: str = "#202124"
    anchor: str = "start"
    bold: bool = False


Mark: TypeAlias = Rectangle | Line | TextMark


def text_width(text: str, size: float) -> float:
    """Return the width of a line of text in picture units."""
    return max(0.0, (len(text) - 1) * ADVANCE + LETTER) * size if text else 0.0
