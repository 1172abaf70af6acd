"""Record the lines that each test runs: ``python -m tests.mutation.recorder FOLDER TEST…``.

Processes that a test starts are recorded too (``child_process/``), with the threads of their native code,
unless they are killed. Every test function gets an empty cache of compiled programs, so that code which an
earlier test has run too runs again. What runs only at the first call in a process (imports,
``functools.cache``) counts for the test that calls first.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage, CoverageData
from coverage.collector import Collector

from .parameters import function_of, spread
from .parts import Part, cpu_seconds, digest, part_of

PARAMETERS_SECONDS = 3.0
"""CPU seconds of a test function after which its other sets of parameters are not recorded; hundreds of quick
ones are (each may be the only one to run some line), slow ones run the same lines."""
SOURCES = str(Path("src/hloom").resolve())
CHILD = str(Path(__file__).parent / "child_process")


def lines_of(data: CoverageData) -> dict[str, set[int]]:
    """Return the lines of each source file that ran."""
    root = str(Path.cwd()) + os.sep
    return {file.removeprefix(root): set(data.lines(file) or ()) for file in data.measured_files()}


class Recorder:
    """A plugin that records coverage with a context for every test function, and their CPU times."""

    def __init__(self, target: Path, scratch: Path) -> None:
        self.target, self.scratch = target, scratch
        self.coverage = Coverage(data_file=None, source=[SOURCES], config_file=False, messages=False)
        self.seconds: dict[str, float] = defaultdict(float)
        self.ran: dict[str, int] = defaultdict(int)
        self.all: dict[str, int] = {}
        self.children: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        self.failed: set[str] = set()
        self.running = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Shuffle the sets of parameters of every test function, and count them."""
        self.all = {name: len(own) for name, own in spread(items).items()}

    def pytest_sessionstart(self) -> None:
        """Start measuring, here and in the processes that tests start."""
        # Interruptions, which tests raise in threads, would leave coverage's lock locked.
        Collector.lock_data = Collector.unlock_data = lambda self: None  # type: ignore[method-assign]
        self.coverage.set_option("run:disable_warnings", ["no-data-collected"])
        self.coverage.start()
        os.environ |= {"MUTATION_COVERAGE": str(self.scratch), "MUTATION_SOURCES": SOURCES}
        original = subprocess.Popen.__init__

        def start(process: Any, args: Any, *more: Any, env: Any = None, **keywords: Any) -> None:
            given = dict(os.environ if env is None else env)
            given["PYTHONPATH"] = os.pathsep.join(filter(None, [CHILD, given.get("PYTHONPATH")]))
            original(process, args, *more, env=given, **keywords)

        subprocess.Popen.__init__ = start  # type: ignore[method-assign]

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
            if self.seconds[name] <= PARAMETERS_SECONDS:
                self.seconds[name] += cpu_seconds() - begin
                self.ran[name] += 1
            self.coverage.switch_context("")
            self.collect_children(name)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip further sets of parameters of a function that has run long enough."""
        if self.seconds[function_of(item.nodeid)] > PARAMETERS_SECONDS:
            pytest.skip("enough sets of parameters")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note failures: a test that fails without a mutant finds none."""
        if report.failed:
            self.failed.add(function_of(report.nodeid))

    def collect_children(self, name: str) -> None:
        """Add the lines that processes of a test have run."""
        for file in self.scratch.glob("child*"):
            data = CoverageData(str(file))
            data.read()
            for path, lines in lines_of(data).items():
                self.children[name][path] |= lines
            file.unlink(missing_ok=True)

    def pytest_sessionfinish(self) -> None:
        """Write a part of the map for each test file."""
        self.coverage.stop()
        data = self.coverage.get_data()
        contexts = self.children
        root = str(Path.cwd()) + os.sep
        for file in data.measured_files():
            path = file.removeprefix(root)
            for line, names in data.contexts_by_lineno(file).items():
                for name in filter(None, names):
                    contexts[name][path].add(line)
        parts: dict[str, Part] = {}
        for name, seconds in sorted(self.seconds.items()):
            test_file = name.split("::")[0]
            part = parts.setdefault(test_file, Part({}, {}, {}, []))
            if name in self.failed:
                part.failed.append(name)
                continue
            part.seconds[name] = round(seconds * self.all[name] / max(1, self.ran[name]), 3)
            part.lines[name] = {path: sorted(lines) for path, lines in contexts[name].items() if lines}
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
