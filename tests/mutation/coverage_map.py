"""Coverage map: the tests that run each line, joined from the parts that `recorder` has stored.

A part holds what the tests of one file run. It is recorded anew when that file changes. Where sources have
changed since, the numbers of their lines are translated.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .limits import watch
from .mutants import Mutant
from .parts import Part, digest, part_of

FILES_PER_PROCESS = 6
LONGEST_SECONDS = 600.0
"""Limit of a process in CPU seconds; the file of the test that runs then is left out."""


@dataclass(frozen=True)
class CoverageMap:
    """The tests that run each line.

    Attributes:
        tests: names of tests as pytest takes them; CPU seconds of each.
        lines: for every file and line the numbers of the tests that run it.
    """

    tests: list[tuple[str, float]]
    lines: dict[str, dict[int, list[int]]]

    def tests_of(self, mutant: Mutant) -> list[int]:
        """Return the tests that run the line of a mutant or else the first line of its statement."""
        lines = self.lines.get(mutant.path, {})
        return lines.get(mutant.line) or lines.get(mutant.statement) or []

    def tests_nearby(self, mutant: Mutant) -> list[int]:
        """Return the tests that run other lines of the file. The line may have run before they began: while
        modules were imported, or in an earlier call of a function that keeps its result."""
        own = set(self.tests_of(mutant))
        return sorted({n for tests in self.lines.get(mutant.path, {}).values() for n in tests} - own)


def test_files(root: Path) -> list[str]:
    """Return the files of tests."""
    folder = root / "tests"
    found = [*folder.rglob("test_*.py"), *(folder / "hlo").rglob("*.hlo")]
    return sorted(str(file.relative_to(root)) for file in found)


def batches(files: Iterable[str]) -> list[list[str]]:
    """Return the test files for each process; the .hlo files are one batch."""
    programs = [file for file in files if file.endswith(".hlo")]
    others = [file for file in files if not file.endswith(".hlo")]
    groups = [others[i : i + FILES_PER_PROCESS] for i in range(0, len(others), FILES_PER_PROCESS)]
    return [batch for batch in [programs, *groups] if batch]


def record(tree: Path, kept: Path, workers: int, fresh: bool) -> None:
    """Record the tests of a copy of the tree whose parts are missing, in separate processes.

    Tests are allowed to fail. A file whose tests are all skipped, or hang, has an empty part.
    """
    parts, sources = kept / "parts", kept / "sources"
    for folder in (parts, sources):
        folder.mkdir(parents=True, exist_ok=True)
    for file in (tree / "src").rglob("*.py"):
        shutil.copyfile(file, sources / digest(file))
    missing = [f for f in test_files(tree) if fresh or not part_of(parts, tree, f).exists()]

    def run(files: list[str]) -> None:
        begin = time.perf_counter()
        log = kept / f"{files[0].replace('/', '.')}.log"
        done = record_files(tree, parts, files, log)
        print(f"{time.perf_counter() - begin:6.0f} s  coverage of {' '.join(files)}", flush=True)
        if not done:
            last = re.findall(r"^(tests/[^ :]+)::", log.read_text(), re.MULTILINE)[-1]
            print(f"{last} is left out: see {log}", flush=True)
        for file in files if done else [last]:
            if not part_of(parts, tree, file).exists():
                Part({}, {}, {}, []).store(part_of(parts, tree, file))
        if not done and len(files) > 1:
            run([file for file in files if file != last])

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(run, batches(missing)))


def record_files(tree: Path, parts: Path, files: list[str], log: Path) -> bool:
    """Record tests in a process; return false if it fails or takes too long."""
    command = [sys.executable, "-m", "tests.mutation.recorder", str(parts), *files]
    with tempfile.TemporaryDirectory(prefix="hloom-coverage-", ignore_cleanup_errors=True) as scratch:
        environment = os.environ | {"PYTHONPATH": str(tree / "src"), "CI": "1", "TMPDIR": scratch}
        with log.open("w") as output:
            process = subprocess.Popen(
                command, cwd=tree, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            _, stopped = watch(process, LONGEST_SECONDS)
            # Terminate what the tests have started.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return process.wait() == 0 and not stopped


def load(root: Path, kept: Path) -> CoverageMap:
    """Load the map of a tree from the recorded parts."""
    tests: list[tuple[str, float]] = []
    lines: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))

    @cache
    def now(path: str, before: str) -> dict[int, list[int]] | None:
        """Return the numbers of the lines of a source file by those at the time of a digest."""
        file = root / path
        if not file.exists():
            return {}
        return None if digest(file) == before else counterparts(kept / "sources" / before, file)

    for test_file in test_files(root):
        stored = part_of(kept / "parts", root, test_file)
        if not stored.exists():
            continue
        part = Part(**json.loads(stored.read_text()))
        for name, seconds in part.seconds.items():
            for path, numbers in part.lines[name].items():
                moved = now(path, part.digests[path])
                of = lines[path]
                here = numbers if moved is None else {line for n in numbers for line in moved.get(n, ())}
                for line in here:
                    of[line].append(len(tests))
            tests.append((name, seconds))
    return CoverageMap(tests, lines)


def counterparts(before: Path, after: Path) -> dict[int, list[int]]:
    """Return the numbers of the lines of a file by those of an older version; those of replaced lines are all
    that replace them, and new lines belong to the line before them."""
    old, new = before.read_text().split("\n"), after.read_text().split("\n")
    found: dict[int, list[int]] = defaultdict(list)
    for kind, i, end, j, stop in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            for offset in range(end - i):
                found[i + offset + 1].append(j + offset + 1)
        else:
            for line in range(i + 1, end + 1) if end > i else [i]:
                found[line] += range(j + 1, stop + 1)
    return found
