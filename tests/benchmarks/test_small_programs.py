"""Programs of a few lines of jax.numpy: every group is traced, and one program is measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("jax")

from benchmarks.machine import Machine
from benchmarks.small_programs import __main__ as command
from benchmarks.small_programs.program import GROUPS, all_programs
from tests.jax_platform.process import run_program

MACHINE = Machine("a processor", 2, 0.0, {"jaxlib": "1.0"}, 1e11, 1e10)


def test_every_program_is_traced() -> None:
    """Tracing finds what a version of JAX no longer has; no program is compiled."""
    program = """
import jax
from benchmarks.small_programs.program import Model, all_programs
for name in all_programs():
    function, arguments = Model(name).build()
    assert jax.tree.leaves(jax.eval_shape(function, *arguments)), name
print(len(all_programs()))
"""
    assert int(run_program(program, "stock")) == len(all_programs())
    assert {p.group for p in all_programs().values()} == set(GROUPS)


def test_one_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file keeps what it had; the page gets a line for each program of it."""
    file, page = tmp_path / "rows.json", tmp_path / "page.md"
    file.write_text('[{"name": "sort", "run": 0.002, "stock_run": 0.003}]')
    page.write_text("Before\n<!-- small programs -->\n<!-- end of small programs -->\nAfter\n")
    monkeypatch.setattr(command, "PAGE", page)
    monkeypatch.setattr(command, "this_machine", lambda: MACHINE)
    assert command.main(["many_inverses", "--seconds", "0.01", "--json", str(file), "--page"]) == 0
    (line,) = [text for text in capsys.readouterr().out.splitlines() if text.startswith("many_inverses")]
    assert "yes" in line
    rows = {row["name"]: row for row in json.loads(file.read_text())}
    assert set(rows) == {"sort", "many_inverses"}
    assert all(rows["many_inverses"][key] > 0 for key in ("run", "stock_run", "first", "stock_first"))
    text = page.read_text()
    assert "a processor, 2 threads, jaxlib 1.0; milliseconds, medians.\n" in text
    assert "| scans | sort | 3.00 | 2.00 | 1.50x |\n" in text
    assert "| matrices | many_inverses | " in text


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["no_such_program"])
    assert "neither a program nor a group: no_such_program" in capsys.readouterr().err
