"""Passes that run are judged: right ones are proved, a wrong one is named, without inputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hloom.ir.module import HloModule
from hloom.operations.arithmetic import Subtract
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.tools.cli import main

PROGRAM = """
HloModule m
ENTRY e {
  x = f32[8,4] parameter(0)
  y = f32[8,4] parameter(1)
  t = f32[4,8] transpose(x), dimensions={1,0}
  u = f32[8,4] transpose(t), dimensions={1,0}
  ROOT r = f32[8,4] subtract(u, y)
}"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Return the path of a program."""
    path = tmp_path / "program.hlo"
    path.write_text(PROGRAM)
    return str(path)


@pytest.fixture
def _wrong_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let dead code elimination exchange the operands of differences."""

    def run(self: DeadCodeElimination, module: HloModule) -> bool:
        differences = [i for i in module.instructions() if isinstance(i.operation, Subtract)]
        for i in differences:
            first, second = i.operands
            i.replace_operand(0, second)
            i.replace_operand(1, first)
        return bool(differences)

    monkeypatch.setattr(DeadCodeElimination, "run", run)


def run(*words: str) -> tuple[int, str]:
    """Return the exit status and the output of a command."""
    done = CliRunner().invoke(main, words)
    return done.exit_code, done.stdout


def test_the_passes_of_the_pipeline_are_proved(file: str) -> None:
    status, output = run("opt", file, "--prove")
    assert status == 0
    assert "algsimp" in output
    assert all("identical" in line for line in output.splitlines())
    assert run("bisect", file, "--prove") == (0, f"agrees  m: {len(output.splitlines())} passes are proved\n")


@pytest.mark.usefixtures("_wrong_pass")
def test_a_wrong_pass_is_refuted(file: str) -> None:
    status, output = run("opt", file, "--prove", "--passes=dce")
    assert status == 1
    assert output.startswith("dce")
    assert "refuted" in output


@pytest.mark.usefixtures("_wrong_pass")
def test_a_search_by_proofs_names_the_wrong_pass(file: str) -> None:
    status, output = run("bisect", file, "--prove")
    assert status == 1
    assert output.startswith("dce of m:\nrefuted")
    status, output = run("bisect", file, "--prove", "--json")
    assert (status, json.loads(output)["m"]["pass"]) == (1, "dce")
