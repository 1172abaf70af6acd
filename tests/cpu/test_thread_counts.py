"""Every number of threads gives the same bits, in every run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hloom.tools.examples.workload import examples

ROOT = Path(__file__).parents[2]


def digests(threads: int, runs: int) -> dict[str, list[str]]:
    """Return the digests of the results of the example programs, for each run."""
    words = [sys.executable, "-m", "tests.cpu.thread_digests", str(examples()), str(runs)]
    environment = {**os.environ, "HLOOM_NUM_THREADS": str(threads)}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def one_thread() -> dict[str, list[str]]:
    """Return the digests of each program's results on one thread."""
    return digests(1, 10)


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 8])
def test_every_number_of_threads_gives_the_same_bits(threads: int, one_thread: dict[str, list[str]]) -> None:
    found = one_thread if threads == 1 else digests(threads, 10)
    assert found.keys() == one_thread.keys()
    assert [name for name in found if set(found[name]) != {one_thread[name][0]}] == []
