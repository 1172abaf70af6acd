"""Compare hloom with other libraries on programs of a few lines: NumPy, numba, PyTorch (eager and compiled),
ONNX Runtime, OpenVINO, and JAX's own client.

Each program runs on every side in a process of its own; the processes take turns. A side whose results differ
from those of JAX's own client, whose library is not installed, or which cannot run a program, does not count.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.alternation import Measured, measured
from benchmarks.machine import this_machine
from benchmarks.row import geometric_mean, quotient
from benchmarks.small_programs.__main__ import PAGE
from benchmarks.small_programs.peers.sides import PACKAGE, SIDES, names_of
from benchmarks.small_programs.program import GROUPS, all_programs
from benchmarks.table import milliseconds, times

TABLE: Final = re.compile(r"(?<=<!-- peers -->\n).*?(?=<!-- end of peers -->)", re.DOTALL)
CLOSE: Final = 1.05
"""Time by that of the best peer up to which hloom counts as fast as it."""


@dataclass(frozen=True)
class Row:
    """A program on all sides."""

    name: str
    sides: Mapping[str, Measured]

    def seconds(self, side: str) -> float | None:
        """Return the median of a side that ran and agrees."""
        of = self.sides.get(side)
        return of.median if of is not None and of.agree is not False else None

    @property
    def best(self) -> str | None:
        """The fastest of the other sides."""
        others = {s: self.seconds(s) for s in self.sides if s != "hloom"}
        return min(
            (s for s, t in others.items() if t is not None), key=lambda s: others[s] or 0, default=None
        )

    @property
    def faster(self) -> float | None:
        """The speedup of hloom over the best peer."""
        return quotient(self.seconds(self.best), self.seconds("hloom")) if self.best else None

    @property
    def cells(self) -> list[str]:
        """The numbers of all columns."""
        return [
            *(milliseconds(self.seconds(side)) for side in COLUMNS),
            self.best or "",
            times(self.faster),
        ]


COLUMNS: Final = ("hloom", "stock", *SIDES)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure programs; returns 1 if hloom's results differ or it does not run a program."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_programs.peers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of programs, or of {', '.join(GROUPS)}")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), help="default: all")
    parser.add_argument("--seconds", type=float, default=0.3, help="of runs on each side (0.3)")
    parser.add_argument("--json", metavar="OUT", help="write everything that was measured")
    parser.add_argument("--page", action="store_true", help="write the table into docs/benchmarks.md")
    options = parser.parse_args(arguments)
    programs, written = all_programs(), {side: names_of(side) for side in options.sides}
    unknown = sorted(set(options.names) - {*programs, *GROUPS})
    if unknown:
        parser.error(f"neither a program nor a group: {', '.join(unknown)}")
    print(f"{'program':28}{''.join(f'{side:>12}' for side in COLUMNS)}{'best':>12}{'by':>8}")
    rows: list[Row] = []
    for name, program in programs.items():
        peers = [side for side in written if name in written[side]]
        if peers and (not options.names or {name, program.group} & set(options.names)):
            rows.append(measured_row(name, peers, options.seconds))
            print(line(rows[-1]), flush=True)
    print(summary(rows))
    if options.json:
        content = [{"name": r.name, **{k: asdict(v) for k, v in r.sides.items()}} for r in rows]
        Path(options.json).write_text(json.dumps(content, indent=1) + "\n")
    if options.page:
        PAGE.write_text(TABLE.sub(lambda _: table(rows), PAGE.read_text()))
    return int(any(row.seconds("hloom") is None for row in rows))


def measured_row(name: str, peers: Sequence[str], budget: float) -> Row:
    """Measure a program on JAX's own client, hloom, and some peers."""
    own = dict.fromkeys(("stock", "hloom"), f"benchmarks.small_programs.program:{name}")
    others = {side: f"{PACKAGE}.sides:{side}/{name}" for side in peers}
    return Row(name, measured({**own, **others}, budget))


def line(row: Row) -> str:
    """Return a line of the table, and what did not run or differs."""
    remarks = [f"{side}: {of.remark}" for side, of in row.sides.items() if of.remark]
    cells = row.cells
    numbers = "".join(f"{cell:>12}" for cell in cells[:-1]) + f"{cells[-1]:>8}"
    return f"{row.name:28}{numbers}  {'; '.join(remarks)}".rstrip()


def summary(rows: Sequence[Row]) -> str:
    """Return the geometric mean, and on how many programs hloom is the fastest, or as fast."""
    ratios = [row.faster for row in rows if row.faster is not None]
    fastest, close = sum(r >= 1 for r in ratios), sum(r >= 1 / CLOSE for r in ratios)
    return (
        f"best peer / hloom {times(geometric_mean(ratios))} (geometric mean of {len(ratios)} programs); "
        f"fastest on {fastest}, within 5 % of the best on {close}"
    )


def table(rows: Sequence[Row]) -> str:
    """Return the table of the page."""
    machine = this_machine()
    lines = ["", f"{machine.processor}, {machine.threads} threads; milliseconds, medians.", ""]
    lines += [f"| program | {' | '.join(COLUMNS)} | best | best by hloom |"]
    lines += ["|---" + "|---:" * len(COLUMNS) + "|---|---:|"]
    lines += [f"| {row.name} | {' | '.join(row.cells)} |" for row in rows]
    return "\n".join([*lines, "", f"{summary(rows)}.", "", ""])


if __name__ == "__main__":
    sys.exit(main())
