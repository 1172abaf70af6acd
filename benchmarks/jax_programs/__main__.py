"""Compare hloom with JAX's own CPU client on programs that users of JAX run.

Each program runs on both in processes of their own, which take turns. ``--cpu-time`` measures the CPU time of
all threads, for machines on which others compute.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.jax_programs.row import Row, measured_row
from benchmarks.machine import this_machine
from benchmarks.plots import MARGIN, WIDTH, draw_ratios
from benchmarks.row import geometric_mean
from benchmarks.table import milliseconds, seconds, times
from hloom.tools.pictures.picture import Picture

NAMES = sorted(path.stem for path in (Path(__file__).parent / "programs").glob("[a-z]*.py"))
HEADING = f"{'program':24}{'stock ms':>10}{'hloom ms':>10}{'faster':>8}" + (
    f"{'stock s':>9}{'hloom s':>9}{'ratio':>8}{'stock MB':>10}{'hloom MB':>10}  agree"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure programs; returns 1 if results differ or something could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jax_programs", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of programs; default: all")
    parser.add_argument("--seconds", type=float, default=2.0, help="of steps on each side (2)")
    parser.add_argument("--cpu-time", action="store_true", help="measure the CPU time of all threads")
    parser.add_argument("--json", metavar="OUT", help="write everything that was measured")
    parser.add_argument("--plot", metavar="OUT", help="draw the ratios: .svg or .png")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(NAMES))
    if unknown:
        parser.error(f"no program {', '.join(unknown)}; there are {', '.join(NAMES)}")
    machine = this_machine()
    print(machine, HEADING, sep="\n")
    rows: list[Row] = []
    for name in options.names or NAMES:
        program = f"benchmarks.jax_programs.programs.{name}"
        rows.append(measured_row(name, program, options.seconds, "cpu" if options.cpu_time else "wall"))
        print(line(rows[-1]), flush=True)
    print(last_line(rows))
    if options.json:
        content = {
            "machine": machine.to_json(),
            "clock": "cpu" if options.cpu_time else "wall",
            "programs": [row.to_json() for row in rows],
        }
        Path(options.json).write_text(json.dumps(content, indent=1) + "\n")
    if options.plot:
        picture = Picture(WIDTH, 0, "hloom and JAX's own CPU client")
        picture.height = draw_ratios(picture, rows, MARGIN) + MARGIN
        picture.save(options.plot)
    return int(any(row.error or row.agree is False for row in rows))


def line(row: Row) -> str:
    """Return a line of the table."""
    if row.missing or row.error:
        return f"{row.name:24}not run: {f'{row.missing} is not installed' if row.missing else row.error}"
    megabytes = [f"{(size or 0) / 1e6:10.0f}" for size in (row.stock_peak, row.peak)]
    agree = ("yes" if row.agree else "NO") + (f" {row.worst:.0e}" if row.worst else "")
    return (
        f"{row.name:24}{milliseconds(row.stock_run):>10}{milliseconds(row.run):>10}{times(row.faster):>8}"
        f"{seconds(row.stock_first):>9}{seconds(row.first):>9}{times(row.first_ratio):>8}"
        f"{''.join(megabytes)}  {agree}"
    )


def last_line(rows: Sequence[Row]) -> str:
    """Return the geometric means, and how many programs were not run."""
    faster, first = (geometric_mean(getattr(row, name) for row in rows) for name in ("faster", "first_ratio"))
    absent = sum(bool(row.missing) for row in rows)
    note = f"; {absent} not run" if absent else ""
    return f"{'geometric mean':24}{'':20}{times(faster):>8}{'':18}{times(first):>8}{note}"


if __name__ == "__main__":
    sys.exit(main())
