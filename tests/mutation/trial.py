"""Try mutants: each in a copy of the tree, against the tests that run its line."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .coverage_map import CoverageMap
from .mutants import Mutant


@dataclass(frozen=True)
class Outcome:
    """The outcome of a mutant: killed, out of time, or survived; and the number of tests that ran."""

    mutant: Mutant
    result: str
    tried: int
    covering: int
    seconds: float
    killer: str = ""


def choose(covered: CoverageMap, mutant: Mutant, budget: float) -> tuple[list[str], int]:
    """Return the tests of a mutant that fit a time budget, and the number of all.

    Tests of the file's own name come first, then quick ones that run few lines elsewhere.
    """
    numbers = covered.lines[mutant.path][mutant.line]
    stem = Path(mutant.path).stem
    breadth = dict.fromkeys(numbers, 0)
    for tests in covered.lines[mutant.path].values():
        for n in tests:
            if n in breadth:
                breadth[n] += 1

    def order(n: int) -> tuple[bool, float]:
        name, seconds = covered.tests[n]
        return stem not in name, seconds + 0.001 * breadth[n]

    chosen: list[str] = []
    spent = 0.0
    for n in sorted(numbers, key=order):
        name, seconds = covered.tests[n]
        if chosen and spent + seconds > budget:
            continue
        chosen.append(name)
        spent += seconds
    return chosen, len(numbers)


def try_all(
    root: Path, scratch: Path, covered: CoverageMap, mutants: Sequence[Mutant], workers: int, limit: float
) -> Iterator[Outcome]:
    """Return the outcomes, in the order of the mutants."""
    trees: queue.Queue[Path] = queue.Queue()
    for number in range(workers):
        tree = scratch / f"tree{number}"
        copy_tree(root, tree)
        trees.put(tree)

    def work(mutant: Mutant) -> Outcome:
        tree = trees.get()
        try:
            return try_one(tree, covered, mutant, limit)
        finally:
            shutil.copyfile(root / mutant.path, tree / mutant.path)
            trees.put(tree)

    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(work, mutants)


def copy_tree(root: Path, tree: Path) -> None:
    """Copy every file that git tracks or would track."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.decode().split("\0")
    shutil.rmtree(tree, ignore_errors=True)
    for name in filter(None, names):
        if (root / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, tree / name)


def try_one(tree: Path, covered: CoverageMap, mutant: Mutant, limit: float) -> Outcome:
    """Run the tests of one mutant, two thirds of the time for which are theirs by the map."""
    chosen, covering = choose(covered, mutant, limit / 3)
    mutant.apply(tree)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        *chosen,
    ]
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "CI": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("HLOOM_CACHE_DIR", None)
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=tree, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=limit)
        result = "survived" if process.returncode == 0 else "killed"
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        result = "out of time"
    failed = [line.split(" ")[1] for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    seconds = time.perf_counter() - begin
    return Outcome(mutant, result, len(chosen), covering, seconds, failed[0] if failed else "")
