"""Try mutants: each in a copy of the tree, against the tests that run its line.

Limits are CPU seconds of the session that a trial starts; see `limits`.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .coverage_map import CoverageMap
from .limits import watch
from .mutants import Mutant

FIRST_SECONDS = 6.0
"""CPU seconds of the tests that run first; they kill most mutants, and collecting all tests takes longer."""
LONGEST_TEST = 8.0
"""CPU seconds of a test function from which only some of its sets of parameters run."""
NEARBY = 0.4
"""Part of the budget in which tests of other lines of the same file run."""
SPARE_SECONDS = 30.0
"""CPU seconds that a run may take in addition to three times those of its tests."""
MEMORY_BYTES = 16 << 30
"""Limit of the memory of each process of a trial; mutants may allocate arrays of any size. Address space is
not limited: browsers reserve more than any machine has."""
PLUGIN = "tests.mutation.parameters"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a mutant: killed, out of time, or survived; how many tests ran and run its line."""

    mutant: Mutant
    result: str
    tried: int
    covering: int
    seconds: float
    killer: str = ""


def order(covered: CoverageMap, mutant: Mutant, tests: Sequence[int]) -> list[int]:
    """Return tests in the order of trial: first quick and specific ones and those of the mutant's name."""
    breadth = Counter(n for tests in covered.lines.get(mutant.path, {}).values() for n in tests)
    about = words(mutant.path.removeprefix("src/hloom/").removesuffix(".py"))

    def key(n: int) -> float:
        name, seconds = covered.tests[n]
        return (min(seconds, LONGEST_TEST) + 0.001 * breadth[n]) / 2 ** len(about & words(name))

    return sorted(tests, key=key)


def words(name: str) -> set[str]:
    """Return the words of a path or of the name of a test."""
    return set(re.findall(r"[a-z]+", name))


def stages(covered: CoverageMap, mutant: Mutant, budget: float) -> list[list[int]]:
    """Return the tests of a mutant that fit a budget of CPU seconds: the first few, the others that run its
    line, and with what is left of a smaller budget some that run other lines of its file."""
    made: list[list[int]] = [[], [], []]
    spent = 0.0
    for n in order(covered, mutant, covered.tests_of(mutant)):
        seconds = min(covered.tests[n][1], LONGEST_TEST)
        if made[0] and spent + seconds > budget:
            continue
        made[bool(made[0]) and spent + seconds > FIRST_SECONDS].append(n)
        spent += seconds
    for n in order(covered, mutant, covered.tests_nearby(mutant)):
        seconds = min(covered.tests[n][1], LONGEST_TEST)
        if spent + seconds <= budget * NEARBY:
            made[2].append(n)
            spent += seconds
    return [stage for stage in made if stage]


def try_all(
    root: Path, scratch: Path, covered: CoverageMap, mutants: Sequence[Mutant], workers: int, budget: float
) -> Iterator[Outcome]:
    """Yield the outcomes, in the order of the mutants."""
    trees: queue.Queue[Path] = queue.Queue()
    for number in range(workers):
        tree = scratch / f"tree{number}"
        copy_tree(root, tree)
        trees.put(tree)

    def work(mutant: Mutant) -> Outcome:
        tree = trees.get()
        original = (tree / mutant.path).read_bytes()
        try:
            return try_one(tree, covered, mutant, budget)
        finally:
            (tree / mutant.path).write_bytes(original)
            trees.put(tree)

    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(work, mutants)


def copy_tree(root: Path, tree: Path) -> None:
    """Copy every file that git tracks or would track, and compile the sources.

    Compiled files are validated by the digest of the source: a mutant may have the size and the time of the
    file that it replaces.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.decode().split("\0")
    shutil.rmtree(tree, ignore_errors=True)
    for name in filter(None, names):
        if (root / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, tree / name)
    arguments = ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "src"]
    subprocess.run([sys.executable, *arguments], cwd=tree, check=True)


def try_one(tree: Path, covered: CoverageMap, mutant: Mutant, budget: float) -> Outcome:
    """Run the tests of one mutant until one fails."""
    (tree / mutant.path).write_text(mutant.text(tree))
    covering = len(covered.tests_of(mutant))
    tried, spent = 0, 0.0
    for stage in stages(covered, mutant, budget):
        names, seconds = zip(*[covered.tests[n] for n in stage], strict=True)
        tried += len(names)
        fractions = {
            name: LONGEST_TEST / s for name, s in zip(names, seconds, strict=True) if s > LONGEST_TEST
        }
        limit = SPARE_SECONDS + 3 * sum(min(s, LONGEST_TEST) for s in seconds)
        result, output, used = run_tests(tree, names, fractions, limit)
        spent += used
        if result != "survived":
            failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
            return Outcome(mutant, result, tried, covering, spent, failed[0] if failed else "")
    return Outcome(mutant, "survived", tried, covering, spent)


def run_tests(
    tree: Path, names: Sequence[str], fractions: Mapping[str, float], limit: float
) -> tuple[str, str, float]:
    """Run tests up to the first failure or the limit of CPU seconds; return (result, output, CPU seconds).

    ``fractions``: of the sets of parameters of long test functions.
    """
    plugins = [word for name in ("no:cacheprovider", "no:xdist", PLUGIN) for word in ("-p", name)]
    command = [sys.executable, "-m", "pytest", "-x", "-q", *plugins, *names]
    with tempfile.TemporaryDirectory(prefix="hloom-trial-", ignore_cleanup_errors=True) as scratch:
        environment = os.environ | {
            "PYTHONPATH": str(tree / "src"),
            "CI": "1",
            "TMPDIR": scratch,
            "MUTATION_FRACTIONS": json.dumps(fractions),
        }
        for name in ("HLOOM_CACHE_DIR", "PYTHONDONTWRITEBYTECODE"):
            environment.pop(name, None)
        with (Path(scratch) / "output").open("w+") as output:
            process = subprocess.Popen(
                command, cwd=tree, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
            seconds, stopped = watch(process, limit)
            # Terminate what the tests have started.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
            output.seek(0)
            text = output.read()
    if stopped:
        return "out of time", text, seconds
    return "killed" if status else "survived", text, seconds
