"""Paints a picture into pixels and writes them as PNG: shapes and letters by their distance to each pixel."""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hloom.tools.picture import Line, Rectangle, Text, text_width
from hloom.tools.stroke_font import ADVANCE, CAP_HEIGHT, strokes

if TYPE_CHECKING:
    from hloom.tools.picture import Picture

Canvas = np.ndarray[Any, np.dtype[np.uint8]]
Coverage = np.ndarray[Any, np.dtype[np.floating[Any]]]


def rasterize(picture: Picture, scale: float) -> bytes:
    """The picture as a PNG file of 8-bit RGB, anti-aliased."""
    canvas = np.full((round(picture.height * scale), round(picture.width * scale), 3), 255, np.uint8)
    for mark in picture.marks:
        if isinstance(mark, Text):
            _paint_text(canvas, mark, scale)
        elif isinstance(mark, Line):
            _paint_line(canvas, mark, scale)
        else:
            _paint_rectangle(canvas, mark, scale)
    return encode_png(canvas)


def encode_png(pixels: Canvas) -> bytes:
    """A PNG file of an array of height × width × 3 bytes."""
    height, width, _ = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    # Filter 2, the difference to the row above, makes the many equal rows compress well.
    lines = np.empty((height, 1 + 3 * width), np.uint8)
    lines[:, 0] = 2
    flat = pixels.reshape(height, -1)
    lines[0, 1:] = flat[0]
    lines[1:, 1:] = flat[1:] - flat[:-1]
    data = zlib.compress(lines.tobytes(), 6)
    chunks = (_chunk(b"IHDR", header), _chunk(b"IDAT", data), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@lru_cache(maxsize=64)
def _color(color: str) -> Coverage:
    return np.array([int(color[place : place + 2], 16) for place in (1, 3, 5)], np.float32)


def _blend(canvas: Canvas, top: int, left: int, coverage: Coverage, color: str) -> None:
    """Lay a colour over the canvas as far as the coverage, 0 to 1 for each pixel, says; edges are cut off."""
    height, width = coverage.shape
    y, x = max(0, top), max(0, left)
    bottom, right = min(canvas.shape[0], top + height), min(canvas.shape[1], left + width)
    if y >= bottom or x >= right:
        return
    part = coverage[y - top : bottom - top, x - left : right - left, None]
    area = canvas[y:bottom, x:right]
    area[...] = area + (_color(color) - area) * part + 0.5


def _paint_rectangle(canvas: Canvas, mark: Rectangle, scale: float) -> None:
    width, height = mark.width * scale, mark.height * scale
    pen = mark.stroke_width * scale if mark.stroke else 0.0
    left, top = mark.x * scale, mark.y * scale
    if not mark.radius and all(float(edge).is_integer() for edge in (left, top, width, height)):
        _paint_box(canvas, (int(top), int(left), int(height), int(width)), mark, pen)
        return
    x, y = int(np.floor(left - pen)) - 1, int(np.floor(top - pen)) - 1
    size = (int(height + 2 * pen) + 4, int(width + 2 * pen) + 4)
    distance = _rectangle_distance(size, (left - x, top - y), (width, height), mark.radius * scale)
    if mark.fill:
        _blend(canvas, y, x, np.clip(0.5 - distance, 0, 1), mark.fill)
    if mark.stroke:
        _blend(canvas, y, x, np.clip(pen / 2 + 0.5 - np.abs(distance), 0, 1), mark.stroke)


def _paint_box(canvas: Canvas, box: tuple[int, int, int, int], mark: Rectangle, pen: float) -> None:
    """A rectangle whose edges fall between pixels; its border of whole pixels lies on both sides of them."""
    top, left, height, width = box
    if mark.fill:
        canvas[top : top + height, left : left + width] = _color(mark.fill)
    half, color = round(pen / 2), _color(mark.stroke) if mark.stroke else None
    if color is not None and half:
        rows = slice(max(0, top - half), top + height + half)
        columns = slice(max(0, left - half), left + width + half)
        for row in (top, top + height):
            canvas[max(0, row - half) : row + half, columns] = color
        for column in (left, left + width):
            canvas[rows, max(0, column - half) : column + half] = color


@lru_cache(maxsize=512)
def _rectangle_distance(
    size: tuple[int, int], corner: tuple[float, float], sides: tuple[float, float], radius: float
) -> Coverage:
    """For each pixel of a field the signed distance to the edge of a rounded rectangle, inside negative."""
    rows, columns = np.ogrid[: size[0], : size[1]]
    dx = np.abs(columns + 0.5 - corner[0] - sides[0] / 2) - (sides[0] / 2 - radius)
    dy = np.abs(rows + 0.5 - corner[1] - sides[1] / 2) - (sides[1] / 2 - radius)
    outside = np.hypot(np.maximum(dx, 0), np.maximum(dy, 0))
    return (outside + np.minimum(np.maximum(dx, dy), 0) - radius).astype(np.float32)


def _paint_line(canvas: Canvas, mark: Line, scale: float) -> None:
    points = np.array([(mark.x1, mark.y1), (mark.x2, mark.y2)], np.float32) * scale
    pen = mark.width * scale
    left, top = (int(np.floor(edge - pen)) - 1 for edge in points.min(axis=0))
    right, bottom = (int(np.ceil(edge + pen)) + 1 for edge in points.max(axis=0))
    rows, columns = np.ogrid[: bottom - top, : right - left]
    distance = _polyline_distance(rows + 0.5, columns + 0.5, points - np.array([left, top], np.float32))
    _blend(canvas, top, left, np.clip(pen / 2 + 0.5 - distance, 0, 1), mark.color)


def _paint_text(canvas: Canvas, mark: Text, scale: float) -> None:
    shift = {"start": 0.0, "middle": 0.5, "end": 1.0}[mark.anchor] * text_width(mark.text, mark.size)
    unit = mark.size * scale / CAP_HEIGHT
    x, baseline = (mark.x - shift) * scale, round(mark.y * scale)
    pen = unit * (1.25 if mark.bold else 0.95)
    for character in mark.text:
        column = int(np.floor(x))
        # Half a pixel is as finely as letters are placed: it keeps the number of their images small.
        coverage = _glyph(character, unit, pen, round((x - column) * 2) / 2)
        _blend(canvas, baseline - int(8.5 * unit) - 2, column - 2, coverage, mark.color)
        x += ADVANCE * unit


@lru_cache(maxsize=2048)
def _glyph(character: str, unit: float, pen: float, offset: float) -> Coverage:
    """The coverage of one character, `unit` pixels to a grid step; the baseline is 8.5 units down."""
    height, width = int(11.5 * unit) + 5, int(5 * unit) + 6
    baseline = int(8.5 * unit) + 2
    rows, columns = np.ogrid[:height, :width]
    distances = [np.full((height, width), 1e9, np.float32)]
    for stroke in strokes(character):
        points = np.array(stroke, np.float32) * (unit, -unit) + (2 + offset, baseline)
        distances.append(_polyline_distance(rows + 0.5, columns + 0.5, points))
    return np.clip(pen / 2 + 0.5 - np.minimum.reduce(distances), 0, 1).astype(np.float32)


def _polyline_distance(rows: Any, columns: Any, points: Coverage) -> Coverage:
    """For each pixel the distance to the nearest of the segments between the points (x, y)."""
    x, y = points[:-1, 0, None, None], points[:-1, 1, None, None]
    dx, dy = points[1:, 0, None, None] - x, points[1:, 1, None, None] - y
    along = ((columns - x) * dx + (rows - y) * dy) / np.maximum(dx * dx + dy * dy, 1e-9)
    np.clip(along, 0, 1, out=along)
    squares = (columns - x - along * dx) ** 2 + (rows - y - along * dy) ** 2
    return np.sqrt(squares.min(axis=0))
