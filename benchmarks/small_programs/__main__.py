"""Compare hloom with JAX's own CPU client on programs of a few lines of jax.numpy.

Each program runs on both in processes of their own, which take turns. Without names all are measured; a name
is that of a program or of a group.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.alternation import ROOT
from benchmarks.jax_programs.__main__ import HEADING, last_line, line
from benchmarks.jax_programs.row import Row, measured_row
from benchmarks.machine import this_machine
from benchmarks.row import geometric_mean
from benchmarks.small_programs.program import GROUPS, all_programs
from benchmarks.table import milliseconds, times

PAGE = ROOT / "docs" / "benchmarks.md"
TABLE = re.compile(r"(?<=<!-- small programs -->\n).*?(?=<!-- end of small programs -->)", re.DOTALL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure programs; returns 1 if results differ or something could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_programs", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of programs, or of {', '.join(GROUPS)}")
    parser.add_argument("--seconds", type=float, default=0.3, help="of runs on each side (0.3)")
    parser.add_argument("--json", metavar="FILE", help="keep the results, beside those that the file has")
    parser.add_argument("--page", action="store_true", help="write the table into docs/benchmarks.md")
    options = parser.parse_args(arguments)
    programs = all_programs()
    unknown = sorted(set(options.names) - {*programs, *GROUPS})
    if unknown:
        parser.error(f"neither a program nor a group: {', '.join(unknown)}")
    file = Path(options.json) if options.json else None
    rows = {r["name"]: Row(**r) for r in (json.loads(file.read_text()) if file and file.exists() else ())}
    print(HEADING)
    measured: list[Row] = []
    for name, program in programs.items():
        if not options.names or {name, program.group} & set(options.names):
            measured.append(measured_row(name, f"benchmarks.small_programs.program:{name}", options.seconds))
            rows[name] = measured[-1]
            print(line(measured[-1]), flush=True)
    print(last_line(measured))
    if file:
        file.write_text(json.dumps([vars(row) for row in rows.values()], indent=1) + "\n")
    if options.page:
        PAGE.write_text(TABLE.sub(lambda _: table(rows.values()), PAGE.read_text()))
    return int(any(row.error or row.agree is False for row in measured))


def table(rows: Iterable[Row]) -> str:
    """Return the table of the page."""
    programs, known = all_programs(), {row.name: row for row in rows}
    machine = this_machine()
    where = f"{machine.processor}, {machine.threads} threads, jaxlib {machine.versions['jaxlib']}"
    lines = ["", f"{where}; milliseconds, medians.", ""]
    lines += ["| group | program | XLA:CPU | hloom | faster |", "|---|---|---:|---:|---:|"]
    for name, program in programs.items():
        if name in known:
            row = known[name]
            numbers = milliseconds(row.stock_run), milliseconds(row.run), times(row.faster)
            lines.append(f"| {program.group} | {name} | {' | '.join(numbers)} |")
    mean = geometric_mean(row.faster for row in known.values())
    return "\n".join([*lines, f"| geometric mean | | | | {times(mean)} |", "", ""])


if __name__ == "__main__":
    sys.exit(main())
