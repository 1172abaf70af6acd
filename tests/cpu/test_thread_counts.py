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


UPDATES = """
HloModule updates

ENTRY main {
  x = f32[128,1024] parameter(0)
  y = f32[128,1040] parameter(1)
  p = f32[1024,1040] parameter(2)
  m = f32[1024,1040] parameter(3)
  gradient = f32[1024,1040] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  moment = f32[1024,1040] add(m, gradient)
  square = f32[1024,1040] multiply(moment, moment)
  root = f32[1024,1040] sqrt(square)
  next = f32[1024,1040] divide(p, root)
  ROOT r = (f32[1024,1040], f32[1024,1040]) tuple(next, moment)
}
"""
"""A product whose epilogue updates parameters and their moments."""

ROWS = """
HloModule rows

ENTRY main {
  x = f32[5,300,1001] parameter(0)
  u = f32[1,300,1001] parameter(1)
  two = s32[] constant(2)
  zero = s32[] constant(0)
  row = f32[1,300,1001] sine(u)
  ROOT r = f32[5,300,1001] dynamic-update-slice(x, row, two, zero, zero)
}
"""
"""A row that is computed where it is stored, in a copy of an argument; threads share both."""

SEGMENTS = """
HloModule segments

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}

ENTRY main {
  x = f32[7000] parameter(0)
  u = f32[40000] parameter(1)
  number = s32[40000] iota(), iota_dimension=0
  six = s32[] constant(6)
  sixes = s32[40000] broadcast(six), dimensions={}
  segment = s32[40000] divide(number, sixes)
  i = s32[40000,1] reshape(segment)
  ROOT r = f32[7000] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
}
"""
"""Updates whose indices ascend; threads share the segments, and run several of them in turns."""

RESIZED = """
HloModule resized

ENTRY main {
  x = f32[4,128,128] parameter(0)
  column = f32[128,256] iota(), iota_dimension=1
  row = f32[128,256] iota(), iota_dimension=0
  half = f32[] constant(0.5)
  halves = f32[128,256] broadcast(half), dimensions={}
  at = f32[128,256] multiply(column, halves)
  distance = f32[128,256] subtract(at, row)
  far = f32[128,256] abs(distance)
  zero = f32[] constant(0)
  zeros = f32[128,256] broadcast(zero), dimensions={}
  near = f32[128,256] subtract(halves, far)
  weights = f32[128,256] maximum(near, zeros)
  high = f32[4,128,256] dot(x, weights), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[4,256,256] dot(high, weights), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
"""Images that are multiplied by matrices with few numbers that are not zero."""


def digests(threads: int, runs: int, directory: Path) -> dict[str, list[str]]:
    """Return the digests of the results of a directory's programs, for each run."""
    words = [sys.executable, "-m", "tests.cpu.thread_digests", str(directory), str(runs)]
    environment = {**os.environ, "HLOOM_NUM_THREADS": str(threads)}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def one_thread() -> dict[str, list[str]]:
    """Return the digests of each program's results on one thread."""
    return digests(1, 10, examples())


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 8])
def test_every_number_of_threads_gives_the_same_bits(threads: int, one_thread: dict[str, list[str]]) -> None:
    found = one_thread if threads == 1 else digests(threads, 10, examples())
    assert found.keys() == one_thread.keys()
    assert [name for name in found if set(found[name]) != {one_thread[name][0]}] == []


PROGRAMS = {
    "updates": (UPDATES, [[128, 1024], [128, 1040], [1024, 1040], [1024, 1040]]),
    "rows": (ROWS, [[5, 300, 1001], [1, 300, 1001]]),
    "segments": (SEGMENTS, [[7000], [40000]]),
    "resized": (RESIZED, [[4, 128, 128]]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_have_the_same_bits_on_every_number_of_threads(name: str, tmp_path: Path) -> None:
    text, shapes = PROGRAMS[name]
    (tmp_path / f"{name}.hlo").write_text(text)
    normal = {"dtype": "float32", "kind": "normal", "lo": None, "hi": None, "scale": 1.0, "mean": 0.0}
    (tmp_path / "inputs.json").write_text(json.dumps({name: [{**normal, "shape": s} for s in shapes]}))
    one = digests(1, 3, tmp_path)
    assert len(set(one[name])) == 1
    assert all(digests(threads, 3, tmp_path) == one for threads in (2, 3, 8))
