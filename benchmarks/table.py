"""The table of a benchmark: in colours on a terminal, in plain columns elsewhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TextIO

from benchmarks.row import Row, summary

NOTHING = "-"
NAME_WIDTH = 28


@dataclass(frozen=True)
class Column:
    """One column of the table.

    Attributes:
        title: heading.
        text: returns the text of a row.
        mean: returns the text of the last line from the summary of all rows.
        good: returns whether the number in a row is good, for its color.
        width: number of characters.
    """

    title: str
    text: Callable[[Row], str]
    mean: Callable[[dict[str, float | None]], str] = lambda of_all: ""
    good: Callable[[Row], bool | None] = lambda row: None
    width: int = 9


def milliseconds(seconds: float | None) -> str:
    """Return a time in ms with three digits."""
    if seconds is None:
        return NOTHING
    value = 1e3 * seconds
    return f"{value:.5f}" if value < 0.01 else f"{value:.4f}" if value < 1 else f"{value:.2f}"


def times(ratio: float | None) -> str:
    """Return a ratio such as 12.3x."""
    return NOTHING if ratio is None else f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.1f}x"


def seconds(value: float | None) -> str:
    """Return a time in seconds."""
    return NOTHING if value is None else f"{value:.3f}"


def kibibytes(size: float | None) -> str:
    """Return bytes in KiB."""
    return NOTHING if size is None else f"{size / 1024:.1f}"


def percent(part: float | None) -> str:
    """Return a fraction in per cent."""
    return NOTHING if part is None else f"{100 * part:.0f}%"


def agreed(row: Row) -> str:
    """Return whether results agree, and their largest difference."""
    if row.agree is None:
        return NOTHING
    return ("yes" if row.agree else "NO") + (f" {row.worst:.0e}" if row.worst else "")


def _at_most(limit: float, value: Callable[[Row], float | None]) -> Callable[[Row], bool | None]:
    def good(row: Row) -> bool | None:
        found = value(row)
        return None if found is None else found <= limit

    return good


def _faster(value: Callable[[Row], float | None]) -> Callable[[Row], bool | None]:
    def good(row: Row) -> bool | None:
        found = value(row)
        return None if found is None else found >= 1

    return good


RUN = [
    Column("XLA ms", lambda r: milliseconds(r.xla_run)),
    Column("hloom ms", lambda r: milliseconds(r.run)),
    Column("faster", lambda r: times(r.faster), lambda s: times(s["faster"]), _faster(lambda r: r.faster), 8),
]
LIBRARY = [
    Column("NumPy ms", lambda r: milliseconds(r.library_run)),
    Column(
        "faster",
        lambda r: times(r.faster_than_library),
        lambda s: times(s["faster_than_library"]),
        _faster(lambda r: r.faster_than_library),
        8,
    ),
]
LIMIT = [Column("limit", lambda r: percent(r.of_limit), lambda s: percent(s["of_limit"]), width=6)]
COMPILE = [
    Column("XLA s", lambda r: seconds(r.xla_compiled), width=8),
    Column("hloom s", lambda r: seconds(r.compiled), width=8),
    Column(
        "ratio",
        lambda r: times(r.compile_ratio),
        lambda s: times(s["compile_ratio"]),
        _at_most(1.5, lambda r: r.compile_ratio),
        7,
    ),
]
FRESH = [
    Column("fresh s", lambda r: seconds(r.fresh), width=8),
    Column("cached s", lambda r: seconds(r.cached)),
    Column(
        "ratio",
        lambda r: times(r.cached_ratio),
        lambda s: times(s["cached_ratio"]),
        _at_most(0.1, lambda r: r.cached_ratio),
        7,
    ),
]
MEMORY = [
    Column("XLA KiB", lambda r: kibibytes(r.xla_temp), lambda s: kibibytes(s["xla_temp"])),
    Column(
        "hloom KiB",
        lambda r: kibibytes(r.temp),
        lambda s: kibibytes(s["temp"]),
        lambda r: None if r.temp is None or r.xla_temp is None else r.temp <= r.xla_temp,
        10,
    ),
]
AGREEMENT = [Column("agree", agreed, good=lambda r: r.agree, width=11)]


class Table:
    """Print rows as they arrive, and their means at the end.

    Args:
        columns: columns after that of the names.
        stream: a terminal that is wide enough gets a table in colors at the end; anything else plain lines
            immediately.
    """

    def __init__(self, columns: Sequence[Column], stream: TextIO | None = None) -> None:
        self.columns = list(columns)
        self.stream = stream or sys.stdout
        self.rows: list[Row] = []
        needed = NAME_WIDTH + sum(c.width + 3 for c in self.columns)
        self.rich = self.stream.isatty() and shutil.get_terminal_size().columns >= needed
        if not self.rich:
            self._line("", [c.title for c in self.columns])

    def add(self, row: Row) -> None:
        """Take a row."""
        self.rows.append(row)
        if self.rich:
            self.stream.write(f"\r\x1b[K{row.name}")
            self.stream.flush()
        else:
            self._line(row.name, [c.text(row) for c in self.columns], row.error)

    def finish(self) -> None:
        """Print the means, and on a terminal the whole table."""
        means = summary(self.rows)
        if self.rich:
            self._print_rich(means)
        else:
            self._line("geometric mean, sum", [c.mean(means) for c in self.columns])

    def _line(self, name: str, texts: Sequence[str], remark: str = "") -> None:
        cells = "".join(text.rjust(c.width + 1) for text, c in zip(texts, self.columns, strict=True))
        print(
            f"{name:{NAME_WIDTH}}{cells}{'  ' + remark if remark else ''}".rstrip(),
            file=self.stream,
            flush=True,
        )

    def _print_rich(self, means: dict[str, float | None]) -> None:
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        self.stream.write("\r\x1b[K")
        table = RichTable(show_footer=True, header_style="bold", footer_style="bold")
        table.add_column("", "geometric mean, sum", style="cyan", no_wrap=True)
        for column in self.columns:
            table.add_column(column.title, column.mean(means), justify="right", no_wrap=True)
        for row in self.rows:
            cells = [Text(c.text(row), style=_style(c.good(row))) for c in self.columns]
            table.add_row(row.name, *cells)
        console = Console(file=self.stream)
        console.print(table)
        for row in self.rows:
            if row.error:
                console.print(f"{row.name}: {row.error}", style="red", markup=False)


def _style(good: bool | None) -> str:
    return "" if good is None else "green" if good else "red"
