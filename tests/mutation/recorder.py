"""Record the lines that each test runs: ``python -m tests.mutation.recorder FOLDER TEST…``.

Processes that a test starts are recorded too (``child_process/``), unless they are killed. Every test
function gets an empty cache of compiled programs, so that code which an earlier test has run too runs again.
What runs only at the first call in a process (imports, ``functools.cache``) counts for the test that calls
first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from .child_process.line_monitor import LineMonitor
from .parameters import function_of, spread
from .parts import Part, cpu_seconds, digest, part_of

PARAMETERS_SECONDS = 3.0
"""CPU seconds of a test function after which its other sets of parameters are not recorded; hundreds of quick
ones are (each may be the only one to run some line), slow ones run the same lines."""
SOURCES = str(Path("src/hloom").resolve())
CHILD = str(Path(__file__).parent / "child_process")


class Recorder:
    """A plugin that records the lines and the CPU time of every test function."""

    def __init__(self, target: Path, scratch: Path) -> None:
        self.target, self.scratch = target, scratch
        self.monitor = LineMonitor(SOURCES)
        self.seconds: dict[str, float] = defaultdict(float)
        self.ran: dict[str, int] = defaultdict(int)
        self.all: dict[str, int] = {}
        self.lines: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        self.failed: set[str] = set()
        self.running = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Shuffle the sets of parameters of every test function, and count them."""
        self.all = {name: len(own) for name, own in spread(items).items()}

    def pytest_sessionstart(self) -> None:
        """Monitor the processes that tests start, too."""
        os.environ |= {"MUTATION_LINES": str(self.scratch), "MUTATION_SOURCES": SOURCES}
        original = subprocess.Popen.__init__

        def start(process: Any, args: Any, *more: Any, env: Any = None, **keywords: Any) -> None:
            given = dict(os.environ if env is None else env)
            given["PYTHONPATH"] = os.pathsep.join(filter(None, [CHILD, given.get("PYTHONPATH")]))
            original(process, args, *more, env=given, **keywords)

        subprocess.Popen.__init__ = start  # type: ignore[method-assign]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Measure one test; its lines are those of its function."""
        name = function_of(item.nodeid)
        if name != self.running:
            self.collect_lines()
            self.running = name
            os.environ["HLOOM_CACHE_DIR"] = tempfile.mkdtemp()
        begin = cpu_seconds()
        try:
            return (yield)
        finally:
            if self.seconds[name] <= PARAMETERS_SECONDS:
                self.seconds[name] += cpu_seconds() - begin
                self.ran[name] += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip further sets of parameters of a function that has run long enough."""
        if self.seconds[function_of(item.nodeid)] > PARAMETERS_SECONDS:
            pytest.skip("enough sets of parameters")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note failures: a test that fails without a mutant finds none."""
        if report.failed:
            self.failed.add(function_of(report.nodeid))

    def collect_lines(self) -> None:
        """Add the lines that the running function and its processes have run."""
        self.add(self.monitor.take())
        for file in self.scratch.glob("*.json"):
            self.add(json.loads(file.read_text()))
            file.unlink()

    def add(self, lines: Mapping[str, Sequence[int] | set[int]]) -> None:
        """Add lines, by file, to those of the running function."""
        for file, numbers in lines.items():
            self.lines[self.running][file.removeprefix(str(Path.cwd()) + os.sep)].update(numbers)

    def pytest_sessionfinish(self) -> None:
        """Write a part of the map for each test file."""
        self.collect_lines()
        parts: dict[str, Part] = {}
        for name, seconds in sorted(self.seconds.items()):
            test_file = name.split("::")[0]
            part = parts.setdefault(test_file, Part({}, {}, {}, []))
            if name in self.failed:
                part.failed.append(name)
                continue
            part.seconds[name] = round(seconds * self.all[name] / max(1, self.ran[name]), 3)
            part.lines[name] = {path: sorted(lines) for path, lines in self.lines[name].items()}
            for path in part.lines[name]:
                part.digests.setdefault(path, digest(Path(path)))
        for test_file, part in parts.items():
            part.store(part_of(self.target, Path.cwd(), test_file))


def main() -> None:
    """Run."""
    plugins = ["-p", "no:cacheprovider", "-p", "no:xdist"]
    arguments = ["-v", "--continue-on-collection-errors", *plugins, *sys.argv[2:]]
    with tempfile.TemporaryDirectory() as scratch:
        pytest.main(arguments, plugins=[Recorder(Path(sys.argv[1]), Path(scratch))])


if __name__ == "__main__":
    main()
