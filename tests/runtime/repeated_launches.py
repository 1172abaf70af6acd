"""Launch programs over MPI many times, to find hangs: ``python -m tests.runtime.repeated_launches``.

Options: ``--count 50 --processes 2 --limit 60``. The programs run a few collectives, all collectives, and one
that fails in one of two processes. Prints the seconds of the launches; ends with 1 if one hung or went wrong.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mpi_launcher import command
from tests.runtime.test_mpi import environment

HERE = Path(__file__).parent
PROGRAMS: tuple[tuple[str, ...], ...] = (
    ("mpi_program.py",),
    ("mpi_collectives.py",),
    ("mpi_failures.py", "raises"),
)


def launch(processes: int, program: Sequence[str], limit: float) -> tuple[float, str]:
    """Return seconds, and what went wrong."""
    name, *options = program
    start = time.perf_counter()
    try:
        done = subprocess.run(
            command(processes, str(HERE / name), *options),
            env=environment(), capture_output=True, text=True, timeout=limit, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return time.perf_counter() - start, f"hangs: not done after {limit:g} s"
    seconds = time.perf_counter() - start
    return seconds, "" if done.returncode == 0 else f"status {done.returncode}: {done.stderr[-500:]}"


def main() -> int:
    """Launch every program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--limit", type=float, default=60.0)
    options = parser.parse_args()
    wrong = 0
    for program in PROGRAMS[: 3 if options.processes == 2 else 2]:
        times: list[float] = []
        for number in range(options.count):
            seconds, problem = launch(options.processes, program, options.limit)
            times.append(seconds)
            if problem:
                wrong += 1
                print(f"{' '.join(program)}, launch {number}: {problem}", flush=True)
        print(
            f"{' '.join(program)}: {options.count} launches of {options.processes} processes, "
            f"{statistics.median(times):.2f} s each, {max(times):.2f} s at most",
            flush=True,
        )
    print(f"{wrong} launches hung or went wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
