"""Values travel through as few files as `docs/architecture.md` states."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROW = re.compile(r"^\| `(\w+)` \| .* \| (\d+) \| (\d+) \|$", re.MULTILINE)
STATED = ROW.findall((TESTS.parent / "docs" / "architecture.md").read_text())


def test_every_journey_is_stated() -> None:
    assert [name for name, *_ in STATED] == ["native", "jax", "sharded"]


@pytest.mark.parametrize(("name", "stops", "returns"), STATED)
def test_a_journey_has_no_more_stops_than_stated(name: str, stops: str, returns: str) -> None:
    done = subprocess.run(
        [sys.executable, TESTS / "journeys.py", name], capture_output=True, text=True, check=True
    )
    found = re.search(r"(\d+) stops, (\d+) returns\n\Z", done.stdout)
    assert found is not None
    assert int(found[1]) <= int(stops), done.stdout
    assert int(found[2]) <= int(returns), done.stdout
