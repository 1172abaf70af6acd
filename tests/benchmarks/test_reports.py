"""Tables and pictures of benchmarks."""

from __future__ import annotations

import io
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.machine import Machine
from benchmarks.plots import FASTER, SLOWER, Scale, rate, save_plots
from benchmarks.row import Row
from benchmarks.table import AGREEMENT, COMPILE, LIMIT, MEMORY, RUN, Table, milliseconds, times
from hloom.errors import HloError
from hloom.tools.pictures.marks import Rectangle
from hloom.tools.pictures.picture import Picture
from tests import agreement

MACHINE = Machine("a processor", 2, 0.5, {"python": "3"}, flops=4e11, bandwidth=4e10)
ROWS = [
    Row("matmul", run=0.002, xla_run=0.004, compiled=0.01, xla_compiled=0.02, temp=0, xla_temp=2048,
        agree=True, worst=1e-6, flops=4e8, moved=4e6, limit=0.001),
    Row("sort", run=0.001, xla_run=0.0005, compiled=0.03, xla_compiled=0.01, temp=4096, xla_temp=0,
        agree=False, worst=0.5, flops=1e6, moved=1e6, limit=0.0005),
    Row("broken", error="something is missing"),
]  # fmt: skip
COLUMNS = [*RUN, *LIMIT, *COMPILE, *MEMORY, *AGREEMENT]


class Terminal(io.StringIO):
    """A text stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def printed(stream: io.StringIO) -> list[str]:
    table = Table(COLUMNS, stream)
    for row in ROWS:
        table.add(row)
    table.finish()
    return stream.getvalue().splitlines()


def test_plain_lines() -> None:
    head, matmul, sort, broken, means = printed(io.StringIO())
    assert head.split() == [
        "XLA", "ms", "hloom", "ms", "faster", "limit", "XLA", "s", "hloom", "s", "ratio", "XLA", "KiB",
        "hloom", "KiB", "agree",
    ]  # fmt: skip
    assert matmul.split() == [
        "matmul", "4.00", "2.00", "2.00x", "50%", "0.020", "0.010", "0.50x", "2.0", "0.0", "yes", "1e-06",
    ]  # fmt: skip
    assert sort.split()[:4] == ["sort", "0.5000", "1.00", "0.50x"]
    assert "NO 5e-01" in sort
    assert broken.startswith("broken ")
    assert broken.endswith("  something is missing")
    assert means.split() == ["geometric", "mean,", "sum", "1.00x", "50%", "1.22x", "2.0", "4.0"]
    assert matmul.index("2.00x") + 5 == head.index("faster") + 6  # columns are flush right


def test_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = "\n".join(printed(Terminal()))
    assert re.search(r"\x1b\[32m *2\.00x", text)  # green
    assert re.search(r"\x1b\[31m *0\.50x", text)  # red
    assert "geometric mean" in text
    assert "broken: something is missing" in text


def test_a_narrow_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert printed(Terminal()) == printed(io.StringIO())


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "-"), (1.5, "1500.00"), (0.0123, "12.30"), (2.5e-4, "0.2500"), (2e-7, "0.00020")],
)
def test_times_have_three_figures(seconds: float | None, words: str) -> None:
    assert milliseconds(seconds) == words


def test_ratios_in_words() -> None:
    assert [times(r) for r in (None, 0.031, 9.99, 123.4)] == ["-", "0.03x", "9.99x", "123.4x"]


def test_scales_go_by_powers_of_ten() -> None:
    scale = Scale(0.5, 30, 100, 400)
    assert scale.ticks() == [0.1, 1, 10, 100]
    agreement.near([scale(tick) for tick in scale.ticks()], [100, 200, 300, 400], 4)
    assert Scale(5, 5, 0, 1).ticks() == [1, 10]


def test_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bars to the right are green, those to the left red; both points of a program have one intensity."""
    drawn: list[Picture] = []
    save = Picture.save
    monkeypatch.setattr(Picture, "save", lambda self, path: (drawn.append(self), save(self, path)))
    save_plots(ROWS, MACHINE, tmp_path / "plot.svg")
    rectangles = [mark for mark in drawn[0].marks if isinstance(mark, Rectangle)]
    bars = {mark.fill: mark for mark in rectangles if mark.radius}
    agreement.near(bars[FASTER].x, bars[SLOWER].x + bars[SLOWER].width, 2)
    agreement.near(bars[FASTER].width, bars[SLOWER].width, 4)  # twice as fast, and half as fast
    points = [m for m in rectangles if m.width in (5, 7) and m.height == m.width and not m.radius][:4]
    assert len({round(mark.x + mark.width / 2, 6) for mark in points}) == 2
    root = ElementTree.parse(tmp_path / "plot.svg").getroot()
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"matmul", "sort", "2.00", "0.50", "400 GFLOP/s", "40 GB/s from and to memory"} <= texts
    assert "times as fast as XLA:CPU; geometric mean 1.00" in texts
    assert "broken" not in texts


def test_pictures_as_png(tmp_path: Path) -> None:
    save_plots(ROWS, MACHINE, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_pictures_of_nothing(tmp_path: Path) -> None:
    save_plots([], MACHINE, tmp_path / "plot.svg")
    assert "times as fast as XLA:CPU" in (tmp_path / "plot.svg").read_text()


def test_pictures_in_no_known_form(tmp_path: Path) -> None:
    with pytest.raises(HloError, match=r"picture\.format-known"):
        save_plots(ROWS, MACHINE, tmp_path / "plot.gif")


@pytest.mark.parametrize(
    ("value", "text"), [(1e12, "1000 G"), (1e9, "1 G"), (1e8, "100 M"), (1e5, "100 k"), (10, "10")]
)
def test_rates_have_units(value: float, text: str) -> None:
    assert rate(value) == text
