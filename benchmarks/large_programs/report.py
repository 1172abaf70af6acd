"""The table and the picture of how compile times grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks.plots import FAINT, FASTER, GRID, INK, SLOWER, XLA, Scale, number
from hloom.tools.pictures.marks import Line, TextMark
from hloom.tools.pictures.picture import Picture

BEGIN: Final = "<!-- large programs: written by python -m benchmarks.large_programs --plot -->"
END: Final = "<!-- end of large programs -->"
_COLUMNS, _PANEL_WIDTH, _PANEL_HEIGHT, _LETTER = 4, 215.0, 150.0, 7.0
GROWTH_BAR: Final = 2.2
"""Largest factor by which the time may grow if the size doubles."""


@dataclass(frozen=True)
class Measured:
    """A program that was compiled.

    Attributes:
        kind, size: of the program.
        hloom, xla: what the child process printed; None if it took too long or was not run, a text that says
            why it failed.
    """

    kind: str
    size: int
    hloom: dict[str, Any] | str | None
    xla: dict[str, Any] | str | None = None


def seconds(side: dict[str, Any] | str | None) -> float | None:
    """Return the CPU seconds of compiling."""
    return side["cpu"]["compile"] if isinstance(side, dict) else None


def growth(rows: Sequence[Measured]) -> float | None:
    """Return the factor by which compiling one kind grows if the size doubles, at the two largest sizes."""
    known = [(row.size, taken) for row in rows if (taken := seconds(row.hloom)) is not None]
    if len(known) < 2:
        return None
    (small, before), (large, after) = known[-2:]
    return 2 * (after / before) * (small / large)


def table(rows: Sequence[Measured]) -> str:
    """Return the measurements as a table in Markdown: a line for each kind."""
    sizes = sorted({row.size for row in rows})
    compares = any(row.xla is not None for row in rows)
    header = ["kind", *(f"{size:,}" for size in sizes), "twice the size", "MiB", *["XLA:CPU"] * compares]
    lines = [" | ".join(header), "|".join(["---"] * len(header))]
    for kind in dict.fromkeys(row.kind for row in rows):
        own = sorted((row for row in rows if row.kind == kind), key=lambda row: row.size)
        by_size = {row.size: row for row in own}
        factor = growth(own)
        peaks = [row.hloom["peak"] for row in own if isinstance(row.hloom, dict)]
        theirs = [f"{_cell(row.xla)} ({row.size:,})" for row in own if row.xla is not None]
        cells = [kind, *(_cell(by_size[size].hloom) if size in by_size else "" for size in sizes)]
        cells += [f"{factor:.2f} ×" if factor is not None else "", f"{max(peaks, default=0) >> 20}"]
        lines.append(" | ".join([*cells, *(theirs[-1:] or [""]) * compares]))
    return "\n".join(f"| {line} |" if "---" not in line else f"|{line}|" for line in lines)


def _cell(side: dict[str, Any] | str | None) -> str:
    taken = seconds(side)
    return f"{taken:.2f}" if taken is not None else side if isinstance(side, str) else ""


def save_plot(rows: Sequence[Measured], path: Path) -> None:
    """Draw seconds over instructions, a panel for each kind, both axes logarithmic."""
    kinds = list(dict.fromkeys(row.kind for row in rows))
    height = 40 + (_PANEL_HEIGHT + 40) * -(-len(kinds) // _COLUMNS)
    picture = Picture(_COLUMNS * _PANEL_WIDTH + 30, height, "Compile times of large programs")
    words = "CPU seconds of compiling, by instructions; dashed: in proportion to the size"
    picture.marks.append(TextMark(12, 20, words, 10, INK, bold=True))
    sizes = [row.size for row in rows]
    times = [t for row in rows for side in (row.hloom, row.xla) if (t := seconds(side)) is not None]
    for place, kind in enumerate(kinds):
        left = 44 + _PANEL_WIDTH * (place % _COLUMNS)
        top = 46 + (_PANEL_HEIGHT + 40) * (place // _COLUMNS)
        x = Scale(min(sizes), max(sizes), left, left + _PANEL_WIDTH - 50)
        y = Scale(min(times), max(times), top + _PANEL_HEIGHT, top + 8)
        _draw_panel(picture, [row for row in rows if row.kind == kind], x, y)
    picture.save(path)


def _draw_panel(picture: Picture, rows: Sequence[Measured], x: Scale, y: Scale) -> None:
    """Draw the times of one kind: hloom's, and XLA's where it was measured."""
    factor = growth(sorted(rows, key=lambda row: row.size))
    color = SLOWER if factor is not None and factor > GROWTH_BAR else FASTER
    title = rows[0].kind + (f", {factor:.2f} x" if factor is not None else "")
    picture.marks.append(TextMark(x.start, y.end - 4, title, _LETTER + 0.5, INK, bold=True))
    for tick in x.ticks():
        picture.marks.append(Line(x(tick), y.start, x(tick), y.end, GRID))
        picture.marks.append(TextMark(x(tick), y.start + 12, number(tick), _LETTER, FAINT, "middle"))
    for tick in y.ticks():
        picture.marks.append(Line(x.start, y(tick), x.end, y(tick), GRID))
        picture.marks.append(TextMark(x.start - 4, y(tick) + 3, number(tick), _LETTER, FAINT, "end"))
    for name, ink in (("xla", XLA), ("hloom", color)):
        points = sorted((row.size, t) for row in rows if (t := seconds(getattr(row, name))) is not None)
        places = [(x(size), y(taken)) for size, taken in points]
        for start, end in pairwise(places):
            picture.marks.append(Line(*start, *end, ink, 2))
        if points and len(points) == 1:
            picture.marks.append(Line(places[0][0] - 3, places[0][1], places[0][0] + 3, places[0][1], ink, 2))


def written_into(page: str, content: str) -> str:
    """Return a page with the part between the two comments replaced; it is appended if there is none."""
    part = f"{BEGIN}\n\n{content}\n\n{END}\n"
    before, found, rest = page.partition(BEGIN)
    if not found:
        return f"{page.rstrip()}\n\n{part}"
    return before + part + rest.partition(END)[2].lstrip("\n")
