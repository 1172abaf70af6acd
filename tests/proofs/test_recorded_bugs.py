"""Bugs that users of XLA recorded in 2025 and 2026: what a pass made of a program, against the program.

A file has the link, what went wrong, the verdict, and two modules: the program, and what became of it.
`docs/guides/recorded_bugs.md` lists them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hloom import HloModule
from hloom.proofs import prove

FOLDER = Path(__file__).parent / "recorded_bugs"
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "recorded_bugs.md"
BUGS = sorted(FOLDER.glob("*.hlo"))


@pytest.mark.parametrize("path", BUGS, ids=lambda path: path.stem)
def test_verdict(path: Path) -> None:
    header, before, after = path.read_text().split("HloModule ")
    link, _, verdict = (line.removeprefix("// ") for line in header.strip().split("\n"))
    modules = [HloModule.from_text(f"HloModule {text}") for text in (before, after)]
    assert f"VERDICT: {prove(*modules).relation.value}" == verdict
    row = next(line for line in PAGE.read_text().split("\n") if f"`{path.stem}`" in line)
    assert link in row
    assert verdict.removeprefix("VERDICT: ") in row
