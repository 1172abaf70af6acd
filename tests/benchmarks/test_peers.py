"""Programs of a few lines in other libraries: one is measured, and sides that do not run are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("jax")

from benchmarks.alternation import Measured
from benchmarks.machine import Machine
from benchmarks.small_programs.peers import __main__ as command
from benchmarks.small_programs.peers.sides import SIDES, names_of

MACHINE = Machine("a processor", 2, 0.0, {"jaxlib": "1.0"}, 1e11, 1e10)


@pytest.mark.parametrize("side", SIDES)
def test_a_peer_has_programs(side: str) -> None:
    assert len(names_of(side)) > 30
    assert ("shortest_paths" in names_of(side)) == (side not in ("onnxruntime", "openvino"))


def test_one_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, page = tmp_path / "rows.json", tmp_path / "page.md"
    page.write_text("Before\n<!-- peers -->\n<!-- end of peers -->\nAfter\n")
    monkeypatch.setattr(command, "PAGE", page)
    monkeypatch.setattr(command, "this_machine", lambda: MACHINE)
    assert (
        command.main(
            ["many_inverses", "--sides", "numpy", "--seconds", "0.01", "--json", str(file), "--page"]
        )
        == 0
    )
    (row,) = json.loads(file.read_text())
    for side in ("stock", "hloom", "numpy"):
        assert row[side]["seconds"]
        assert row[side]["agree"]
    assert "best peer / hloom" in capsys.readouterr().out
    assert "| many_inverses | " in page.read_text()


def test_sides_that_differ_or_do_not_run_do_not_count() -> None:
    ran = Measured(seconds=(0.003,), agree=True)
    sides = {
        "stock": ran,
        "hloom": Measured(seconds=(0.002,), agree=True),
        "numpy": Measured(seconds=(0.001,), agree=False, worst=0.5),
        "numba": Measured(missing="numba"),
        "torch": Measured(error="the process ended with 1"),
    }
    row = command.Row("sort", sides)
    assert row.best == "stock"
    assert row.faster == 0.003 / 0.002
    line = command.line(row)
    assert "numpy: differs by 5e-01; numba: numba is not installed; torch: the process ended with 1" in line
    assert "fastest on 1, within 5 % of the best on 1" in command.summary([row])
