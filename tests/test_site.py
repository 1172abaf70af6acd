"""The site of the documentation is built without warnings, and loads nothing from other servers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOADED = re.compile(r'<(?:script|img|iframe)[^>]* src="?https?:[^" >]+|<link rel="?stylesheet[^>]*https?:')


def test_the_site_is_complete_and_offline(tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings")
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 150
    texts = {page.name: page.read_text() for page in pages}
    assert not {name: LOADED.findall(text) for name, text in texts.items() if LOADED.search(text)}
    assert (tmp_path / "site" / "search" / "search_index.js").exists()
    api = (tmp_path / "site" / "api.html").read_text()
    for name in ("hloom.HloModule", "hloom.compile", "hloom.Shape", "hloom.from_jax", "hloom.ops.DotGeneral"):
        assert f'id="{name}"' in api
