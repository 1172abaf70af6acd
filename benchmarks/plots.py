"""Pictures of a benchmark: how much faster than XLA:CPU programs are, how near to the machine's limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.machine import Machine
from benchmarks.row import Row, geometric_mean
from hloom.tools.pictures.marks import Line, Rectangle, TextMark, text_width
from hloom.tools.pictures.picture import Picture

FASTER, SLOWER, INK, FAINT, GRID = "#1a7f4b", "#c5372c", "#202124", "#6b7075", "#dde1e6"
XLA = "#8a6d00"
WIDTH, MARGIN, BAR = 900.0, 28.0, 17.0
LETTER = 7.5
ROOF_HEIGHT = 430.0


def save_plots(rows: Sequence[Row], machine: Machine, path: str | Path) -> None:
    """Draw ratios and roofline into an .svg or .png file. Raises HloError for another suffix."""
    picture = Picture(WIDTH, 0, "hloom and XLA:CPU")
    bottom = draw_ratios(picture, rows, MARGIN)
    bottom = draw_roofline(picture, rows, machine, bottom + 2 * MARGIN)
    picture.height = bottom + MARGIN
    picture.save(path)


class Scale:
    """A logarithmic axis.

    Args:
        low, high: the numbers at both ends, rounded outwards to powers of ten.
        start, end: coordinates of these ends in the picture.
    """

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low = math.floor(math.log10(low) + 1e-9)
        self.high = max(self.low + 1, math.ceil(math.log10(high) - 1e-9))
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return the powers of ten on the axis."""
        return [10.0**power for power in range(self.low, self.high + 1)]


def number(value: float) -> str:
    """Return a power of ten with a decimal prefix."""
    return f"{value:g}" if 1e-3 <= value < 1e5 else f"1e{round(math.log10(value))}"


def rate(value: float) -> str:
    """Return operations per second in the largest unit without a fraction: ``100 M``, ``1 G``."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size * (1 - 1e-9):
            return f"{number(round(value / size, 3))} {unit}"
    return number(value)


# -- ratios


class Compared(Protocol):
    """A program on two sides."""

    @property
    def name(self) -> str:
        """The program's name."""
        ...

    @property
    def faster(self) -> float | None:
        """The speedup of hloom."""
        ...


def draw_ratios(picture: Picture, rows: Sequence[Compared], top: float) -> float:
    """Draw bars from 1, the fastest program first; return their end."""
    known = sorted(((r.faster, r.name) for r in rows if r.faster is not None), reverse=True)
    heading = "times as fast as XLA:CPU"
    mean = geometric_mean(faster for faster, _ in known)
    if mean is not None:
        heading += f"; geometric mean {mean:.2f}"
    picture.marks.append(TextMark(MARGIN, top + 10, heading, 10, INK, bold=True))
    if not known:
        return top + 30
    left = MARGIN + max(text_width(name, LETTER) for _, name in known) + 12
    scale = Scale(min(known[-1][0], 1.0), max(known[0][0], 10.0), left, WIDTH - MARGIN - 50)
    first = top + 44
    last = first + BAR * len(known)
    for tick in scale.ticks():
        picture.marks.append(Line(scale(tick), first - 6, scale(tick), last, GRID))
        picture.marks.append(TextMark(scale(tick), first - 11, f"{number(tick)}x", LETTER, FAINT, "middle"))
    for place, (faster, name) in enumerate(known):
        y, x = first + BAR * place, scale(faster)
        color = FASTER if faster >= 1 else SLOWER
        begin, end = sorted((scale(1.0), x))
        picture.marks.append(TextMark(left - 8, y + 11, name, LETTER, INK, "end"))
        picture.marks.append(Rectangle(begin, y + 2, max(end - begin, 1), BAR - 5, color, radius=2))
        picture.marks.append(TextMark(max(x, scale(1.0)) + 5, y + 11, f"{faster:.2f}", LETTER, color))
    picture.marks.append(Line(scale(1.0), first - 6, scale(1.0), last, INK, 1.5))
    return last


# -- roofline


def draw_roofline(picture: Picture, rows: Sequence[Row], machine: Machine, top: float) -> float:
    """Draw operations per second over operations per byte, under the machine's limits; return its end."""
    heading = "operations a second, over operations for each byte moved"
    picture.marks.append(TextMark(MARGIN, top + 10, heading, 10, INK, bold=True))
    points = [(r.flops / r.moved, r) for r in rows if r.flops and r.moved and r.run]
    if not points:
        return top + 30
    speeds = [r.flops / seconds for _, r in points for seconds in (r.run, r.xla_run) if r.flops and seconds]
    x = Scale(min(i for i, _ in points), max(i for i, _ in points), MARGIN + 52, WIDTH - MARGIN)
    bottom = top + 50 + ROOF_HEIGHT
    y = Scale(min(speeds), max(*speeds, machine.flops), bottom, top + 50)
    _draw_grid(picture, x, y)
    _draw_roof(picture, machine, x, y)
    labels = [_around(x(i), y(r.flops / r.run)) for i, r in points if r.flops and r.run]
    labels.append((x.end - 90, y(machine.flops), x.end, y(machine.flops) + LETTER + 6))
    for intensity, row in sorted(points, key=lambda point: point[1].name):
        _draw_point(picture, x(intensity), y, row, labels)
    _draw_legend(picture, bottom + 34)
    return bottom + 42


def _draw_grid(picture: Picture, x: Scale, y: Scale) -> None:
    for tick in x.ticks():
        picture.marks.append(Line(x(tick), y.start, x(tick), y.end, GRID))
        picture.marks.append(TextMark(x(tick), y.start + 15, number(tick), LETTER, FAINT, "middle"))
    for tick in y.ticks():
        picture.marks.append(Line(x.start, y(tick), x.end, y(tick), GRID))
        picture.marks.append(TextMark(x.start - 6, y(tick) + 4, rate(tick), LETTER, FAINT, "end"))


def _draw_roof(picture: Picture, machine: Machine, x: Scale, y: Scale) -> None:
    """Draw the limit by memory, which rises with operations per byte, up to the limit by arithmetic."""
    ridge = machine.flops / machine.bandwidth
    low, high = 10.0**x.low, 10.0**x.high
    floor = 10.0**y.low
    begin = max(low, floor / machine.bandwidth)
    corner = min(max(ridge, begin), high)
    start = (x(begin), y(min(begin * machine.bandwidth, machine.flops)))
    knee = (x(corner), y(min(corner * machine.bandwidth, machine.flops)))
    picture.marks.append(Line(*start, *knee, INK, 1.5))
    if corner < high:
        picture.marks.append(Line(*knee, x(high), y(machine.flops), INK, 1.5))
        words = f"{machine.flops / 1e9:.0f} GFLOP/s"
        picture.marks.append(TextMark(x(high) - 4, y(machine.flops) + LETTER + 4, words, LETTER, INK, "end"))
    words = f"{machine.bandwidth / 1e9:.0f} GB/s from and to memory"
    picture.marks.append(TextMark(start[0] + 4, start[1] + 16, words, LETTER, INK))


def _draw_point(
    picture: Picture, x: float, y: Scale, row: Row, labels: list[tuple[float, float, float, float]]
) -> None:
    """Draw the speed of hloom as a square, XLA's as a frame, a line between them, and the name if it fits."""
    assert row.flops and row.run
    ours = y(row.flops / row.run)
    if row.xla_run:
        theirs = y(row.flops / row.xla_run)
        picture.marks.append(Line(x, ours, x, theirs, GRID, 2))
        picture.marks.append(Rectangle(x - 2.5, theirs - 2.5, 5, 5, "#ffffff", XLA))
    picture.marks.append(Rectangle(x - 3.5, ours - 3.5, 7, 7, FASTER))
    size, width = 6.0, text_width(row.name, 6.0)
    places = [
        (6.0, 3.0, "start"),
        (-6.0, 3.0, "end"),
        (6.0, -7.0, "start"),
        (6.0, 13.0, "start"),
        (-6.0, -7.0, "end"),
    ]
    for dx, dy, anchor in places:
        left = x + dx - (width if anchor == "end" else 0)
        box = (left, ours + dy - size, left + width, ours + dy + 1)
        if left >= 0 and box[2] <= WIDTH and not any(_overlap(box, other) for other in labels):
            labels.append(box)
            picture.marks.append(TextMark(x + dx, ours + dy, row.name, size, INK, anchor))
            return


def _around(x: float, y: float) -> tuple[float, float, float, float]:
    return x - 4, y - 4, x + 4, y + 4


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _draw_legend(picture: Picture, y: float) -> None:
    picture.marks.append(Rectangle(MARGIN + 52, y - 7, 7, 7, FASTER))
    picture.marks.append(TextMark(MARGIN + 64, y, "hloom", LETTER, INK))
    picture.marks.append(Rectangle(MARGIN + 121, y - 6, 5, 5, "#ffffff", XLA))
    picture.marks.append(TextMark(MARGIN + 132, y, "XLA:CPU", LETTER, INK))
    words = "above the line where caches hold the data"
    picture.marks.append(TextMark(MARGIN + 210, y, words, LETTER, FAINT))
