"""Compare: ``python -m tests.jax_suite DIR [--count 300] [--seed 1] [--files PATTERN]``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from .processes import FileRun, Selection, run_file
from .selection import files_of


def main() -> int:
    """Run the tests, print the table and each miss; return 1 if hloom misses what JAX's client passes."""
    parser = argparse.ArgumentParser(prog="python -m tests.jax_suite", description=__doc__)
    parser.add_argument("checkout", type=Path, help="sources of JAX, at the tag of the installed version")
    parser.add_argument("--count", type=int, default=300, help="tests to draw, spread over the files")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", default="*", help="names of files, with wildcards")
    parser.add_argument("--all", action="store_true", help="run every test of the files")
    parser.add_argument("--only-misses", action="store_true", help="run JAX's client only for what failed")
    parser.add_argument("--log", type=Path, help="folder for the reasons of misses")
    options = parser.parse_args()
    files = files_of(options.checkout, options.files)
    if not files:
        print(f"no tests of JAX in {options.checkout}/tests for {options.files}", file=sys.stderr)
        return 2
    if find_spec("absl") is None:
        print("JAX's tests need absl-py: pip install absl-py", file=sys.stderr)
        return 2
    each = sys.maxsize if options.all else -(-options.count // len(files))
    passed, missed = compare(files, Selection(each, options.seed), options.only_misses, options.log)
    share = 100 * (1 - missed / max(1, passed))
    print(f"{passed} passed by JAX's own client, {missed} of them missed: {share:.2f} % pass")
    return int(missed > 0)


def compare(
    files: Sequence[Path], selection: Selection, only_misses: bool, log: Path | None
) -> tuple[int, int]:
    """Run the files and print a line for each and each miss.

    Return how many tests JAX's client passes, and how many of them hloom misses.
    """
    print(f"{'file':34} {'drawn':>6} {'passed':>6} {'missed':>6} {'skipped':>7} {'stock':>6}", flush=True)
    total_passed, total_missed = 0, 0
    for path in files:
        run = run_file(path, "hloom", selection)
        tests = tuple(run.misses if only_misses else run.selected)
        stock = run_file(path, "stock", Selection(tests=tests)) if tests else FileRun()
        missed = [test for test in run.misses if stock.outcomes.get(test) == "passed"]
        passed = stock.count("passed") + (run.count("passed") if only_misses else 0)
        row = len(run.selected), run.count("passed"), len(missed), run.count("skipped"), passed
        print(f"{path.name:34} {row[0]:6} {row[1]:6} {row[2]:6} {row[3]:7} {row[4]:6}", flush=True)
        for problem in filter(None, (run.problem, stock.problem)):
            print(f"    {problem[-400:]}", flush=True)
        for test in missed:
            reason = run.reasons.get(test, "")
            print(f"    {run.outcomes[test]} {test}: {_last_line(reason)}", flush=True)
            if log is not None:
                log.mkdir(parents=True, exist_ok=True)
                (log / f"{path.stem}.{test.replace('/', '_')[-200:]}.txt").write_text(reason)
        total_passed, total_missed = total_passed + passed, total_missed + len(missed)
    return total_passed, total_missed


def _last_line(reason: str) -> str:
    lines = [line for line in reason.splitlines() if line.startswith("E  ")] or reason.splitlines()
    return lines[-1].strip()[:200] if lines else ""


if __name__ == "__main__":
    sys.exit(main())
