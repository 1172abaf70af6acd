"""Coverage map: the tests that run each line, recorded by coverage.py, a few files to a process, and stored.

A plugin gives every test function a separate context and a separate cache of compiled programs, so that code
which an earlier test has run too runs again. Coverage follows no other processes: lines that run only there
or only while modules are imported belong to no test. The map of each process is stored, so that an
interrupted recording continues where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .mutants import Mutant

FILES_PER_PROCESS = 6
PARAMETERS = 4
"""Limit of the sets of parameters that are recorded of a test function; hundreds run the same lines."""


@dataclass(frozen=True)
class CoverageMap:
    """The tests that run each line.

    Attributes:
        tests: names of tests as pytest takes them; CPU seconds of each.
        lines: for every file and line the numbers of the tests that run it.
        digests: of the files, to detect changed line numbers.
    """

    tests: list[tuple[str, float]]
    lines: dict[str, dict[int, list[int]]]
    digests: dict[str, str]

    def tests_of(self, mutant: Mutant) -> list[int]:
        """Return the tests that run the line of a mutant or else the first line of its statement."""
        lines = self.lines.get(mutant.path, {})
        return lines.get(mutant.line) or lines.get(mutant.statement) or []


def digest(file: Path) -> str:
    """Return the digest of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def function_of(nodeid: str) -> str:
    """Return the name of a test without its parameters."""
    return nodeid if ".hlo" in nodeid else nodeid.split("[")[0]


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its terminated children."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


class Recorder:
    """A plugin that records coverage with a context for every test function, and their CPU times."""

    def __init__(self, target: Path) -> None:
        from coverage import Coverage

        self.target = target
        self.coverage = Coverage(data_file=None, source=[str(Path("src/hloom").resolve())], messages=False)
        self.seconds: dict[str, float] = defaultdict(float)
        self.running = ""
        self.items_of_each: dict[str, float] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep some sets of parameters of every test function, evenly spaced."""
        functions: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            functions[function_of(item.nodeid)].append(item)
        kept: set[pytest.Item] = set()
        for name, of in functions.items():
            count = min(PARAMETERS, len(of))
            kept |= {of[i * (len(of) - 1) // max(1, count - 1)] for i in range(count)}
            self.items_of_each[name] = len(of) / count
        items[:] = [item for item in items if item in kept]

    def pytest_sessionstart(self) -> None:
        """Start measuring."""
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Measure one test in the context of its function."""
        name = function_of(item.nodeid)
        if name != self.running:
            self.running = name
            os.environ["HLOOM_CACHE_DIR"] = tempfile.mkdtemp()
        self.coverage.switch_context(name)
        begin = cpu_seconds()
        try:
            return (yield)
        finally:
            self.seconds[name] += cpu_seconds() - begin
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
        seconds = [(name, round(self.seconds[name] * self.items_of_each[name], 3)) for name in tests]
        text = json.dumps({"tests": seconds, "lines": lines, "digests": digests})
        partial = self.target.with_suffix(".partial")
        partial.write_text(text)
        partial.rename(self.target)


def load(file: Path) -> CoverageMap:
    """Load the map from a file."""
    stored = json.loads(file.read_text())
    lines = {path: {int(n): tests for n, tests in of.items()} for path, of in stored["lines"].items()}
    return CoverageMap([tuple(t) for t in stored["tests"]], lines, stored["digests"])


def united(maps: Sequence[CoverageMap]) -> CoverageMap:
    """Return the union of maps of different tests."""
    tests: list[tuple[str, float]] = []
    lines: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    digests: dict[str, str] = {}
    for one in maps:
        for path, of in one.lines.items():
            assert digests.setdefault(path, one.digests[path]) == one.digests[path], f"{path} has changed"
            for line, numbers in of.items():
                lines[path][line] += [len(tests) + n for n in numbers]
        tests += one.tests
    return CoverageMap(tests, lines, digests)


def batches(root: Path) -> list[list[str]]:
    """Return the test files for each process; the .hlo files are one batch."""
    files = sorted(str(file.relative_to(root)) for file in (root / "tests").rglob("test_*.py"))
    groups = [files[i : i + FILES_PER_PROCESS] for i in range(0, len(files), FILES_PER_PROCESS)]
    return [["tests/hlo"], *groups]


def make(root: Path, file: Path, tests: list[str], workers: int) -> CoverageMap:
    """Run tests (all, if none are named) of a tree in separate processes and store the map."""
    parts = file.parent / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    sources = hashlib.sha256(
        b"".join(
            bytes.fromhex(digest(f)) for room in ("src", "tests") for f in sorted((root / room).rglob("*.py"))
        )
    ).hexdigest()

    def part(names: list[str]) -> CoverageMap:
        key = hashlib.sha256("\n".join([sources, *names]).encode()).hexdigest()[:16]
        target = parts / f"{key}.json"
        if not target.exists():
            print(f"coverage of {' '.join(names)}", flush=True)
            begin = time.perf_counter()
            record(root, target, names)
            print(f"{time.perf_counter() - begin:6.0f} s  {names[0]} ...", flush=True)
        return load(target)

    with ThreadPoolExecutor(workers) as pool:
        made = united(list(pool.map(part, [tests] if tests else batches(root))))
    file.write_text(json.dumps({"tests": made.tests, "lines": made.lines, "digests": made.digests}))
    return made


def record(root: Path, target: Path, names: list[str]) -> None:
    """Run tests under coverage in a process. Failing tests are allowed: their lines are recorded."""
    command = [sys.executable, "-m", "tests.mutation.coverage_map", str(target), *names]
    with tempfile.TemporaryDirectory(prefix="hloom-coverage-") as scratch:
        environment = os.environ | {"PYTHONPATH": str(root / "src"), "CI": "1", "TMPDIR": scratch}
        with target.with_suffix(".log").open("w") as log:
            subprocess.run(
                command, cwd=root, env=environment, check=True, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip


if __name__ == "__main__":
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[2:]]
    pytest.main(arguments, plugins=[Recorder(Path(sys.argv[1]))])
