"""The tour runs and prints its results."""

from __future__ import annotations

import runpy
from pathlib import Path


def test_tour(capsys) -> None:
    """Every stop prints; the figure of the tiled-layout page is right."""
    runpy.run_path(str(Path(__file__).parents[1] / "docs" / "tour.py"))
    printed = capsys.readouterr().out
    assert "  0   2   4   6   8  10  12  14\n  1   3   5   7   9  11  13  15" in printed
    assert "[ 7. nan]" in printed
    assert "[-7. -6.]" in printed
