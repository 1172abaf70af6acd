"""Pictures as PNG, painted with Pillow and its embedded font."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from hloom.errors import HloError
from hloom.tools.pictures.marks import ADVANCE, Line, Mark, Rectangle, TextMark, simple

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont

_CAP_HEIGHT: Final = 0.7
"""Height of a capital in Pillow's font, relative to the font size."""
_SLACK: Final = 1.1
"""Limit of the width of a text, relative to that in a monospaced font."""
_OVERSAMPLING: Final = 4
"""Factor of oversampling for round corners and slanted lines."""
_ANCHORS: Final = {"start": "ls", "middle": "ms", "end": "rs"}


def rasterize(marks: Iterable[Mark], width: float, height: float, scale: float) -> bytes:
    """Paint marks in order on white; return a PNG file of 8-bit RGB.

    Raises HloError with the rule ``picture.pillow-installed`` if Pillow is missing.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        message = "PNG pictures need Pillow: pip install 'hloom[png]', or draw an .svg file"
        raise HloError(message, rule="picture.pillow-installed") from None
    size = round(width * scale), round(height * scale)
    image = Image.new("RGB", size, "#ffffff")
    draw = ImageDraw.Draw(image)
    for mark in simple(marks):
        if isinstance(mark, TextMark):
            _paint_text(draw, mark, scale)
        elif isinstance(mark, Line):
            _paint_line(image, mark, scale)
        elif mark.radius:
            _paint_round_rectangle(image, mark, scale)
        else:
            _paint_rectangle(draw, mark, scale)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _paint_text(draw: ImageDraw.ImageDraw, mark: TextMark, scale: float) -> None:
    """Paint text on its baseline, smaller if it would be too wide."""
    size = mark.size * scale / _CAP_HEIGHT
    room, length = _SLACK * len(mark.text) * ADVANCE * mark.size * scale, _font(size).getlength(mark.text)
    if length > room:
        size *= room / length
    bold = round(size / 24) if mark.bold else 0
    baseline = mark.x * scale, round(mark.y * scale)
    draw.text(baseline, mark.text, mark.color, _font(size), anchor=_ANCHORS[mark.anchor], stroke_width=bold)


@lru_cache(maxsize=64)
def _font(size: float) -> ImageFont.FreeTypeFont:
    from PIL import ImageFont

    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont), "Pillow has been built without FreeType"
    return font


def _paint_rectangle(draw: ImageDraw.ImageDraw, mark: Rectangle, scale: float) -> None:
    """Paint a rectangle with its edges between pixels and its border centered on them."""
    x0, y0 = round(mark.x * scale), round(mark.y * scale)
    x1, y1 = round((mark.x + mark.width) * scale), round((mark.y + mark.height) * scale)
    if mark.fill and x1 > x0 and y1 > y0:
        draw.rectangle((x0, y0, x1 - 1, y1 - 1), mark.fill)
    half = round(mark.stroke_width * scale / 2)
    if mark.stroke and half:
        box = x0 - half, y0 - half, x1 + half - 1, y1 + half - 1
        draw.rectangle(box, outline=mark.stroke, width=2 * half)


def _paint_round_rectangle(image: Image.Image, mark: Rectangle, scale: float) -> None:
    half = mark.stroke_width * scale / 2 if mark.stroke else 0.0
    x0, y0 = int(mark.x * scale - half) - 1, int(mark.y * scale - half) - 1
    size = int(mark.width * scale + 2 * half) + 4, int(mark.height * scale + 2 * half) + 4
    large = scale * _OVERSAMPLING
    x, y = mark.x * large - x0 * _OVERSAMPLING, mark.y * large - y0 * _OVERSAMPLING
    half *= _OVERSAMPLING

    def painted(grow: float, color: str, width: float = 0.0) -> None:
        from PIL import Image, ImageDraw

        mask = Image.new("L", (size[0] * _OVERSAMPLING, size[1] * _OVERSAMPLING))
        box = x - grow, y - grow, x + mark.width * large + grow - 1, y + mark.height * large + grow - 1
        radius = mark.radius * large + grow
        if width:
            ImageDraw.Draw(mask).rounded_rectangle(box, radius, outline=255, width=round(width))
        else:
            ImageDraw.Draw(mask).rounded_rectangle(box, radius, fill=255)
        image.paste(color, (x0, y0), mask.reduce(_OVERSAMPLING))

    if mark.fill:
        painted(0.0, mark.fill)
    if mark.stroke:
        painted(half, mark.stroke, 2 * half)


def _paint_line(image: Image.Image, mark: Line, scale: float) -> None:
    from PIL import Image, ImageDraw

    pen = mark.width * scale
    x0, y0 = (int(min(ends) * scale - pen) - 1 for ends in ((mark.x1, mark.x2), (mark.y1, mark.y2)))
    x3, y3 = (int(max(ends) * scale + pen) + 2 for ends in ((mark.x1, mark.x2), (mark.y1, mark.y2)))
    mask = Image.new("L", ((x3 - x0) * _OVERSAMPLING, (y3 - y0) * _OVERSAMPLING))
    length = math.hypot(mark.x2 - mark.x1, mark.y2 - mark.y1) or 1.0
    dx, dy = (d / length * pen / 2 for d in (mark.x2 - mark.x1, mark.y2 - mark.y1))
    (x1, x2), (y1, y2) = (mark.x1 * scale, mark.x2 * scale), (mark.y1 * scale, mark.y2 * scale)
    corners = (x1 - dy, y1 + dx), (x2 - dy, y2 + dx), (x2 + dy, y2 - dx), (x1 + dy, y1 - dx)
    # Pillow's coordinates are of pixel centres, those of a picture are of edges.
    places = [((x - x0) * _OVERSAMPLING - 0.5, (y - y0) * _OVERSAMPLING - 0.5) for x, y in corners]
    ImageDraw.Draw(mask).polygon(places, fill=255)
    image.paste(mark.color, (x0, y0), mask.reduce(_OVERSAMPLING))
