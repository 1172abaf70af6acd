"""docs/debugging.md: its files, commands and Python run in the order of the page."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from hloom.tools.cli import main

PAGE = (Path(__file__).parents[1] / "docs" / "debugging.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.S)
FILE = re.compile(r"(?://|#) ([\w.]+)\n")


def files_of(folder: Path) -> None:
    """Write the files that the page shows, each named in its first line."""
    for _, block in BLOCKS:
        name = FILE.match(block)
        if name is not None:
            (folder / name[1]).write_text(block)


def run_line(line: str) -> str:
    """Run one command in the current folder, and return its output."""
    command, _, comment = line.partition("#")
    wanted = int(comment.split()[-1]) if comment else 0
    words = shlex.split(command)
    if words[0] == "hloom":
        result = CliRunner().invoke(main, words[1:])
        assert result.exit_code == wanted, f"{line}\n{result.output}"
        return result.output
    variable, _, flags = words[0].partition("=")
    environment = {**os.environ, variable: flags, "JAX_PLATFORMS": "cpu"}
    environment.pop("HLOOM_AS_CPU", None)
    assert words[1] == "python", line
    program = [sys.executable, *words[2:]]
    return subprocess.run(program, env=environment, check=True, capture_output=True, text=True).stdout


def test_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files_of(tmp_path)
    output, commands = "", 0
    for kind, block in BLOCKS:
        if kind == "sh":
            lines = block.strip().splitlines()
            if find_spec("jaxlib") is None and any("dumps" in line for line in lines):
                continue
            output = "".join(map(run_line, lines))
            commands += len(lines)
        elif kind == "text":
            assert all(line in output for line in block.strip().splitlines()), output
    assert commands > 12


def test_python_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files_of(tmp_path)
    blocks = [block for kind, block in BLOCKS if kind == "python" and not FILE.match(block)]
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "docs/debugging.md", "exec"), {})
