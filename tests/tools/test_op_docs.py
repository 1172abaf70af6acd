"""The committed pages of operations are those that the declarations give."""

from __future__ import annotations

from pathlib import Path

from hloom.tools.pages.op_docs import pages

DIRECTORY = Path(__file__).parents[2] / "docs" / "operations"


def test_pages_are_up_to_date() -> None:
    """``make docs`` has been run after the last change of a declaration."""
    stored = {path.name: path.read_text() for path in DIRECTORY.glob("*.md")}
    wanted = pages()
    changed = sorted(name for name in {*stored, *wanted} if stored.get(name) != wanted.get(name))
    assert not changed, f"run make docs: {changed}"
