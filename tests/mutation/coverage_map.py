"""Coverage map: the tests that run each line, made by one run of all tests and stored.

The run is one process (coverage.py follows no others), with a plugin that gives every test function a
separate context. Lines that only run while modules are imported belong to no test.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class CoverageMap:
    """The tests that run each line.

    Attributes:
        tests: names of tests as pytest takes them; seconds of each.
        lines: for every file and line the numbers of the tests that run it.
        digests: of the files, to detect changed line numbers.
    """

    tests: list[tuple[str, float]]
    lines: dict[str, dict[int, list[int]]]
    digests: dict[str, str]


def digest(file: Path) -> str:
    """Return the digest of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def function_of(nodeid: str) -> str:
    """Return the name of a test without its parameters."""
    return nodeid if ".hlo" in nodeid else nodeid.split("[")[0]


class Recorder:
    """A plugin: coverage with a context for every test function, and their times."""

    def __init__(self, target: Path) -> None:
        from coverage import Coverage

        self.target = target
        self.coverage = Coverage(data_file=None, source=[str(Path("src/hloom").resolve())], messages=False)
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_sessionstart(self) -> None:
        """Start measuring."""
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Measure one test in its own context."""
        name = function_of(item.nodeid)
        self.coverage.switch_context(name)
        begin = time.perf_counter()
        try:
            return (yield)
        finally:
            self.seconds[name] += time.perf_counter() - begin
            self.coverage.switch_context("")

    def pytest_sessionfinish(self) -> None:
        """Write the map."""
        self.coverage.stop()
        data = self.coverage.get_data()
        tests = sorted(self.seconds)
        number = {name: n for n, name in enumerate(tests)}
        root = Path.cwd()
        lines: dict[str, dict[int, list[int]]] = {}
        for file in sorted(data.measured_files()):
            found = {
                line: sorted(number[c] for c in contexts if c in number)
                for line, contexts in data.contexts_by_lineno(file).items()
            }
            lines[str(Path(file).relative_to(root))] = {line: tests for line, tests in found.items() if tests}
        digests = {path: digest(root / path) for path in lines}
        seconds = [(name, round(self.seconds[name], 3)) for name in tests]
        self.target.write_text(json.dumps({"tests": seconds, "lines": lines, "digests": digests}))


def load(file: Path) -> CoverageMap:
    """Load the map from a file."""
    stored = json.loads(file.read_text())
    lines = {path: {int(n): tests for n, tests in of.items()} for path, of in stored["lines"].items()}
    return CoverageMap([tuple(t) for t in stored["tests"]], lines, stored["digests"])


def make(root: Path, file: Path, tests: list[str]) -> CoverageMap:
    """Run tests (all, if none are named) of a tree in a separate process and store the map."""
    file.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.mutation.coverage_map", str(file), *tests]
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "CI": "1"}
    subprocess.run(command, cwd=root, env=environment, check=True, stdin=subprocess.DEVNULL)
    return load(file)


if __name__ == "__main__":
    # Failing tests are allowed: their lines are recorded.
    pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[2:]], plugins=[Recorder(Path(sys.argv[1]))])
