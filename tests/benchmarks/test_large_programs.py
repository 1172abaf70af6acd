"""Large programs: what is generated, what is said about their compile times."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import hloom
from benchmarks.large_programs.__main__ import main
from benchmarks.large_programs.kinds import KINDS, program_text
from benchmarks.large_programs.report import BEGIN, END, Measured, growth, save_plot, table, written_into
from hloom.debug.inputs import random_arguments
from hloom.ir.module import HloModule
from tests import agreement


def took(seconds: float, peak: int = 1 << 20) -> dict[str, Any]:
    return {"cpu": {"compile": seconds}, "peak": peak}


ROWS = [
    Measured("lstm", 1000, took(0.5), took(1.0)),
    Measured("lstm", 3000, took(1.5, 3 << 20), took(9.0)),
    Measured("loops", 1000, took(1.0)),
    Measured("loops", 3000, "> 300"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_has_the_size_and_finite_results(kind: str):
    module = HloModule.from_text(program_text(kind, 300))
    module.verify()
    assert 300 <= module.instruction_count < 600
    result = hloom.compile(module, backend="evaluator")(*random_arguments(module, 0))
    leaves = result if isinstance(result, tuple) else (result,)
    assert leaves and all(np.isfinite(leaf).all() for leaf in leaves)


def test_the_seed_decides_the_program():
    assert program_text("small-dots", 200, 1) == program_text("small-dots", 200, 1)
    assert program_text("small-dots", 200, 1) != program_text("small-dots", 200, 2)


def test_growth_is_that_of_a_doubled_size():
    agreement.near(growth(ROWS[:2]), 2.0, 4)
    agreement.near(growth([Measured("a", 100, took(1.0)), Measured("a", 200, took(4.0))]), 4.0, 4)
    assert growth(ROWS[2:]) is None


def test_the_table_has_a_line_for_each_kind():
    assert table(ROWS).splitlines() == [
        "| kind | 1,000 | 3,000 | twice the size | MiB | XLA:CPU |",
        "|---|---|---|---|---|---|",
        "| lstm | 0.50 | 1.50 | 2.00 × | 3 | 9.00 (3,000) |",
        "| loops | 1.00 | > 300 |  | 1 |  |",
    ]


def test_the_plot_has_a_panel_for_each_kind(tmp_path: Path):
    save_plot(ROWS, tmp_path / "plot.svg")
    text = "".join(ElementTree.parse(tmp_path / "plot.svg").getroot().itertext())
    assert "lstm, 2.00 x" in text and "loops" in text


def test_the_page_is_rewritten_between_its_marks():
    once = written_into("# Page\n", "old")
    assert once == f"# Page\n\n{BEGIN}\n\nold\n\n{END}\n"
    assert written_into(once + "\nmore\n", "new") == once.replace("old", "new") + "more\n"


def test_the_command_prints_a_program(capsys: pytest.CaptureFixture[str]):
    assert main(["--text", "lstm", "100"]) == 0
    assert capsys.readouterr().out == program_text("lstm", 100)
