"""The guides run as they are written; `new_user.py` runs them with an installed wheel."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from tests.documented import PAGES, ROOT, run_page


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a shell that finds this checkout's `hloom` and this interpreter as `python`."""
    folder.mkdir()
    for name, module in (("python", ""), ("hloom", "-m hloom.tools.cli ")):
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module}"$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_run(page: Path, tmp_path: Path) -> None:
    if "hloom.from_jax" in page.read_text():
        pytest.importorskip("jax")
    (tmp_path / "work").mkdir()
    for command, complaint in run_page(page, tmp_path / "work", environment(tmp_path / "programs")):
        assert not complaint, f"{command}\n{complaint}"
