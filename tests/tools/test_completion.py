"""Completion in shells."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from hloom.passes.registry import passes
from hloom.tools.cli import main


def words(*line: str) -> set[str]:
    """Return what is offered for the last word of a line."""
    shell = BashComplete(main, {}, "hloom", "_HLOOM_COMPLETE")
    return {item.value for item in shell.get_completions(list(line[:-1]), line[-1])}


def test_words_of_arguments() -> None:
    assert words("op", "reduce") == {"reduce", "reduce-precision", "reduce-scatter", "reduce-window"}
    assert words("run", "--backend", "") >= {"cpu", "evaluator"}
    assert words("check", "--against", "x") == words("reduce", "--against", "x") == {"xla"}
    assert "cpu" in words("bisect", "--backend", "")
    assert words("opt", "--passes", "") == set(passes())
    assert words("opt", "--passes", "cse,algsim") == {"cse,algsimp"}
    assert "verify" in words("ver")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell: str) -> None:
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    script = CliRunner().invoke(main, ["completion", shell]).output
    assert "_HLOOM_COMPLETE" in script
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_help_tells_how_to_switch_it_on() -> None:
    assert 'eval "$(hloom completion bash)"' in CliRunner().invoke(main, ["completion", "--help"]).output
    assert "hloom completion --help" in CliRunner().invoke(main, ["--help"]).output
