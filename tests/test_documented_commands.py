"""The guides run as they are written: each in an empty folder, files and commands in the order of the page.

A block with a title is a file; lines of ``sh`` blocks are commands. ``# exit status N`` states an expected
failure.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
SOURCE = DOCS.parent / "src"
PAGES = sorted(page for page in DOCS.rglob("*.md") if re.search(r"^```sh$", page.read_text(), re.M))
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.M | re.S)
STATUS = re.compile(r"\s*# exit status (\d+)$")


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a shell that finds this checkout's `hloom` and this interpreter as `python`."""
    programs = folder / ".bin"
    programs.mkdir()
    for name, module in (("python", ""), ("hloom", "-m hloom.tools.cli ")):
        path = programs / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module}"$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(SOURCE)}


def test_the_guides_are_run() -> None:
    assert {"jax.md", "compiler-authors.md", "tpu.md", "gallery.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_run(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    if "hloom.from_jax" in text:
        pytest.importorskip("jax")
    variables = environment(tmp_path)
    for language, title, body in BLOCK.findall(text):
        if title:
            (tmp_path / title).write_text(body)
        if language != "sh":
            continue
        for line in body.splitlines():
            expected = STATUS.search(line)
            command = STATUS.sub("", line)
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=tmp_path,
                env=variables,
                capture_output=True,
                text=True,
                timeout=600,
            )
            status = int(expected[1]) if expected else 0
            assert done.returncode == status, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
