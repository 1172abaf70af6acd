"""Run the drawn tests of a file in processes, one after another until every test has an outcome."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TEST_SECONDS = 180
"""A test that takes longer hangs."""
GRACE_SECONDS = 10
"""Seconds that a hanging test has to print its stack."""
COLLECTION_SECONDS = 600
_OUTPUT = 3000


@dataclass
class FileRun:
    """The outcomes of a file's tests.

    Attributes:
        outcomes: by test: passed, failed, skipped, crashed or hung.
        reasons: what failed tests say.
        problem: why the file could not be run at all.
    """

    collected: int = 0
    selected: list[str] = field(default_factory=list)
    outcomes: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    problem: str = ""

    def count(self, *outcomes: str) -> int:
        """Return the number of tests with one of the outcomes."""
        return sum(found in outcomes for found in self.outcomes.values())

    @property
    def misses(self) -> list[str]:
        """The tests that failed, crashed or hung."""
        return [t for t, outcome in self.outcomes.items() if outcome not in ("passed", "skipped")]


@dataclass(frozen=True)
class Selection:
    """Tests of a file: a number to draw with a seed, or names."""

    count: int = 0
    seed: int = 1
    tests: tuple[str, ...] = ()


def run_file(path: Path, platform: str, selection: Selection) -> FileRun:
    """Run tests of a file on a platform, ``hloom`` or ``stock``."""
    run = FileRun()
    with tempfile.TemporaryDirectory() as folder:
        while True:
            before = len(run.outcomes)
            code, output = _process(path, platform, selection, run, Path(folder))
            if code in (0, 1, 5) and run.selected and len(run.outcomes) >= len(run.selected):
                return run
            if code == 5 or (run.collected and not run.selected):
                return run
            if len(run.outcomes) == before:
                run.problem = f"pytest ended with {code}\n{output}"
                return run


def _process(path: Path, platform: str, selection: Selection, run: FileRun, folder: Path) -> tuple[int, str]:
    """Run what has no outcome yet; a test in which the process ends gets one."""
    record, done, listed, output = (folder / n for n in ("record", "done", "tests", "output"))
    record.write_text("")
    done.write_text("\n".join(run.outcomes))
    listed.write_text("\n".join(selection.tests))
    given = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_PLATFORMS", "XLA_FLAGS"))}
    given |= {
        "JAX_PLATFORMS": "cpu",
        "JAX_SKIP_SLOW_TESTS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))),
        "JAX_SUITE_RECORD": str(record),
        "JAX_SUITE_DONE": str(done),
        "JAX_SUITE_COUNT": str(selection.count),
        "JAX_SUITE_SEED": str(selection.seed),
        "JAX_SUITE_SECONDS": str(TEST_SECONDS),
    }
    given.setdefault("JAX_NUM_GENERATED_CASES", "10")
    if selection.tests:
        given["JAX_SUITE_TESTS"] = str(listed)
    if platform == "hloom":
        given["HLOOM_AS_CPU"] = "1"
    # JAX's sources must not hide the installed package, nor its settings of pytest apply.
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
        "-p", "no:faulthandler", "-p", "tests.jax_suite.sampling", "-c", str(folder / "pytest.ini"),
        "--rootdir", str(folder), "--confcutdir", str(path.parent), "--tb=short", str(path),
    ]  # fmt: skip
    with output.open("w") as file:
        process = subprocess.Popen(command, env=given, cwd=folder, stdout=file, stderr=file)
        hung = _watch(process, record)
    pending = _read(record, run)
    text = output.read_text(errors="replace")[-_OUTPUT:]
    if pending:
        run.outcomes[pending] = "hung" if hung else "crashed"
        run.reasons[pending] = f"exit status {process.returncode}\n{text}"
    return process.returncode, text


def _watch(process: subprocess.Popen[bytes], record: Path) -> bool:
    """Wait for the process; kill it, and return True, if a test takes too long."""
    size, since = 0, time.monotonic()
    while True:
        try:
            process.wait(1)
            return False
        except subprocess.TimeoutExpired:
            pass
        found = record.stat().st_size
        if found != size:
            size, since = found, time.monotonic()
        if time.monotonic() - since > (TEST_SECONDS + GRACE_SECONDS if size else COLLECTION_SECONDS):
            process.kill()
            process.wait()
            return True


def _read(record: Path, run: FileRun) -> str:
    """Read the records; return the test that began and has no outcome."""
    pending = ""
    for line in record.read_text().splitlines():
        found: dict[str, Any] = json.loads(line)
        if "selected" in found:
            run.collected, run.selected = found["collected"], found["selected"]
        elif "outcome" not in found:
            pending = found["test"]
        else:
            test = found["test"]
            run.outcomes[test] = found["outcome"]
            run.seconds[test] = found["seconds"]
            if found["why"]:
                run.reasons[test] = found["why"]
            pending = ""
    return pending
