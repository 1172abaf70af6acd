"""Passes that run are judged: right ones are proved, a wrong one is named, without inputs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from hloom.ir.module import HloModule
from hloom.operations.arithmetic import Subtract
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.tools.cli import main
from tests.raised_rules import printed

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
    assert run("bisect", file, "--prove") == (0, f"agrees  m: {len(output.splitlines())} passes proved\n")


def test_errors_name_the_file(file: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.hlo"
    wrong.write_text("HloModule m\nENTRY e {\n  ROOT a = f32[4] nagate(b)\n}")
    done = CliRunner().invoke(main, ["prove", file, str(wrong)])
    assert done.exit_code == 1
    assert str(wrong) in done.stderr


def test_a_folder_without_passes_is_refused(file: str) -> None:
    done = CliRunner().invoke(main, ["prove", str(Path(file).parent)])
    assert done.exit_code == 1
    assert "[prove.passes]" in printed(done.stderr)
    assert "--xla_dump_hlo_pass_re" in done.stderr


def test_refuting_arguments_are_printed(tmp_path: Path) -> None:
    paths = [tmp_path / "a.hlo", tmp_path / "b.hlo"]
    for path, operands in zip(paths, ("x, y", "y, x"), strict=True):
        path.write_text(
            f"HloModule m\nENTRY e {{\n  x = s32[] parameter(0)\n  y = s32[] parameter(1)\n"
            f"  ROOT r = s32[] subtract({operands})\n}}"
        )
    status, output = run("prove", *map(str, paths))
    assert status == 1
    first, second = re.search(r"argument 0: (-?\d+)\n +argument 1: (-?\d+)", output).groups()  # type: ignore[union-attr]
    assert f"result is {int(second) - int(first)}, not {int(first) - int(second)}" in output


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
