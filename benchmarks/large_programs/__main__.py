"""Compile times of large programs: see `benchmarks.large_programs`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.fresh import ROOT
from benchmarks.large_programs.kinds import KINDS, program_text
from benchmarks.large_programs.report import GROWTH_BAR, Measured, growth, save_plot, table, written_into
from benchmarks.machine import this_machine
from benchmarks.sides import xla_is_there

PLOT = "pictures/large-programs.svg"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table; returns 1 if something fails, or the time grows faster than the program."""
    options = _parser().parse_args(arguments)
    if options.text:
        kind, size = options.text
        print(program_text(kind, int(size), options.seed), end="")
        return 0
    rows: list[Measured] = []
    for row in measurements(options):
        rows.append(row)
        print(_line(row), flush=True)
    print(table(rows))
    if options.json:
        content = [vars(row) for row in rows]
        Path(options.json).write_text(json.dumps({"machine": this_machine().to_json(), "programs": content}))
    if options.plot:
        docs = ROOT / "docs"
        save_plot(rows, docs / PLOT)
        page = docs / "benchmarks.md"
        content = f"{table(rows)}\n\n![Seconds of compiling over instructions, a panel for each kind]({PLOT})"
        page.write_text(written_into(page.read_text(), content))
    failed = any(not isinstance(row.hloom, dict) for row in rows)
    factors = [growth([row for row in rows if row.kind == kind]) for kind in options.kinds]
    return int(failed or any(factor is not None and factor > GROWTH_BAR for factor in factors))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_programs", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 3000, 10_000], metavar="N")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS), metavar="KIND")
    parser.add_argument("--seed", type=int, default=0, help="of the programs (0)")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each program and side (300)")
    parser.add_argument("--no-xla", action="store_true", help="measure hloom alone")
    parser.add_argument("--json", metavar="OUT", help="write everything that was measured")
    parser.add_argument("--plot", action="store_true", help="write table and plot into docs/")
    parser.add_argument("--text", nargs=2, metavar=("KIND", "N"), help="print a program")
    return parser


def measurements(options: argparse.Namespace) -> Iterator[Measured]:
    """Measure every kind at every size; a side that fails or takes too long skips the larger sizes."""
    sides = ["hloom"] if options.no_xla or not xla_is_there() else ["hloom", "xla"]
    for kind in options.kinds:
        fits = dict.fromkeys(sides, True)
        for size in sorted(options.sizes):
            found: dict[str, Any] = {"hloom": None, "xla": None}
            for side in sides:
                if fits[side]:
                    found[side] = measured(side, kind, size, options.seed, options.limit)
                    fits[side] = isinstance(found[side], dict)
            yield Measured(kind, size, found["hloom"], found["xla"])


def measured(side: str, kind: str, size: int, seed: int, limit: float) -> dict[str, Any] | str:
    """Return what a process of its own measured, or why it did not."""
    words = [sys.executable, "-m", "benchmarks.large_programs.child", side, kind, str(size), str(seed)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    try:
        done = subprocess.run(
            words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return f"> {limit:.0f}"
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return "failed"
    return json.loads(done.stdout.splitlines()[-1])


def _line(row: Measured) -> str:
    words = [f"{row.kind:18} {row.size:7,}"]
    if isinstance(row.hloom, dict):
        stages = ", ".join(f"{stage} {taken:.2f}" for stage, taken in row.hloom["stages"].items())
        times = row.hloom["cpu"]
        rest = ", ".join(f"{name} {taken:.2f}" for name, taken in times.items() if name != "compile")
        words.append(f"{times['compile']:7.2f} s ({stages}; {rest}), {row.hloom['peak'] >> 20} MiB")
    else:
        words.append(str(row.hloom))
    if row.xla is not None:
        words.append(
            f"XLA:CPU {row.xla['cpu']['compile']:.2f} s"
            if isinstance(row.xla, dict)
            else f"XLA:CPU {row.xla}"
        )
    return "  ".join(words)


if __name__ == "__main__":
    sys.exit(main())
