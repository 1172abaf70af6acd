"""A loop of small steps in hloom, XLA:CPU, NumPy and C: ``python -m benchmarks.scan [STEPS]``.

The step is ``x = tanh(A x)`` with a matrix of 16 x 16. The C program (`scan_limit.c`) measures the time of
the arithmetic; the difference is the compiler's overhead.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.agreement import agreement
from benchmarks.sides import on_hloom, on_xla, warm_up, xla_is_there
from benchmarks.timing import samples

Array = np.ndarray[Any, Any]
STEPS = 1000
SIZE = 16
MOST_OVER_LIMIT = 30e-9
"""Seconds a step that hloom may take beyond the arithmetic."""


def scan_text(steps: int = STEPS) -> str:
    """Return the loop as JAX writes a scan without outputs."""
    return f"""
HloModule scan

more {{
  s = (s32[], f32[{SIZE}], f32[{SIZE},{SIZE}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({steps})
  ROOT c = pred[] compare(i, n), direction=LT
}}

step {{
  s = (s32[], f32[{SIZE}], f32[{SIZE},{SIZE}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[{SIZE}] get-tuple-element(s), index=1
  a = f32[{SIZE},{SIZE}] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  d = f32[{SIZE}] dot(a, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  t = f32[{SIZE}] tanh(d)
  ROOT r = (s32[], f32[{SIZE}], f32[{SIZE},{SIZE}]) tuple(j, t, a)
}}

ENTRY main {{
  a = f32[{SIZE},{SIZE}] parameter(0)
  x = f32[{SIZE}] parameter(1)
  zero = s32[] constant(0)
  start = (s32[], f32[{SIZE}], f32[{SIZE},{SIZE}]) tuple(zero, x, a)
  end = (s32[], f32[{SIZE}], f32[{SIZE},{SIZE}]) while(start), condition=more, body=step
  ROOT result = f32[{SIZE}] get-tuple-element(end), index=1
}}
"""


def scan_inputs() -> list[Array]:
    """Return a matrix for which the state neither overflows nor vanishes, and a state."""
    draws = np.random.default_rng(0)
    matrix = draws.normal(0, 1.2 / SIZE**0.5, (SIZE, SIZE)).astype(np.float32)
    return [matrix, draws.normal(size=SIZE).astype(np.float32)]


def scan_in_numpy(a: Array, x: Array, steps: int = STEPS) -> Array:
    """Run the loop in Python."""
    for _ in range(steps):
        x = np.tanh(a @ x)
    return x


@dataclass(frozen=True)
class InC:
    """The C program's output: seconds per step, and the final state."""

    seconds: float
    state: Array


def scan_in_c(a: Array, x: Array, steps: int = STEPS) -> InC | None:
    """Run the loop in C; None if there is no compiler or it is too old."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    source = Path(__file__).with_name("scan_limit.c")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "scan"
        command = [compiler, "-O3", "-march=native", "-ffp-contract=fast", str(source), "-o", str(program)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return None
        entries = np.concatenate([a.T.ravel(), x]).astype(np.float32).tobytes()
        made = subprocess.run([program, str(steps)], input=entries, capture_output=True, check=True)
    numbers = [float(line) for line in made.stdout.split()]
    return InC(numbers[0] / 1e9, np.array(numbers[1:], np.float32))


def main() -> int:
    """Print the times of a step."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else STEPS
    text, (a, x) = scan_text(steps), scan_inputs()
    warm_up()
    ours = on_hloom(text, [a, x])
    calls: dict[str, Callable[[], Any]] = {"hloom": ours.call}
    if xla_is_there():
        calls["XLA:CPU"] = on_xla(text, [a, x]).call
    calls["NumPy"] = lambda: scan_in_numpy(a, x, steps)
    times = samples(calls, 2.0)
    in_c = scan_in_c(a, x, steps)
    print(f"x = tanh(A x), {SIZE} x {SIZE}, {steps} steps: nanoseconds a step, median and least")
    for name, seconds in times.items():
        median, least = statistics.median(seconds), min(seconds)
        print(f"  {name:10} {1e9 * median / steps:10.1f} {1e9 * least / steps:10.1f}")
    if in_c is None:
        return 0
    over = min(times["hloom"]) / steps - in_c.seconds
    same = agreement([np.asarray(ours.call())], [in_c.state])
    print(f"  {'C':10} {'':10} {1e9 * in_c.seconds:10.1f}   the arithmetic's own limit; same result: {same}")
    print(
        f"hloom takes {1e9 * over:.1f} ns a step more than C; the aim is at most {1e9 * MOST_OVER_LIMIT:.0f}"
    )
    return int(over > MOST_OVER_LIMIT)


if __name__ == "__main__":
    sys.exit(main())
