"""Programs that users of XLA:CPU report as slow: ``python -m benchmarks.complaints [WORD ...] [--json OUT]``.

Compare XLA:CPU, NumPy or SciPy, and hloom on the cases of `complaint_programs` whose names contain one of the
words; on all without words.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.agreement import agreement
from benchmarks.complaint_programs import COMPLAINTS, Complaint
from benchmarks.machine import Machine, this_machine
from benchmarks.row import Row, summary
from benchmarks.sides import leaves_of, on_hloom, on_xla, warm_up, xla_is_there
from benchmarks.table import AGREEMENT, COMPILE, LIBRARY, MEMORY, RUN, Table
from benchmarks.timing import medians
from hloom.errors import HloError


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; returns 1 if results differ or something could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.complaints", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD", help="in the names of cases")
    parser.add_argument("--json", metavar="OUT", help="write everything that was measured")
    parser.add_argument("--seconds", type=float, default=1.0, help="of runs for each case (1)")
    options = parser.parse_args(arguments)
    cases = [case for make in COMPLAINTS if wanted(case := make(), options.words)]
    machine = this_machine()
    print(machine)
    warm_up()
    table = Table([*RUN, *LIBRARY, *COMPILE, *MEMORY, *AGREEMENT])
    for case in cases:
        table.add(measured(case, machine, options.seconds))
    table.finish()
    if options.json:
        content = {
            "machine": machine.to_json(),
            "summary": summary(table.rows),
            "cases": [
                {**row.to_json(), "source": case.source} for row, case in zip(table.rows, cases, strict=True)
            ],
        }
        Path(options.json).write_text(json.dumps(content, indent=1) + "\n")
    return int(any(row.error or row.agree is False for row in table.rows))


def wanted(case: Complaint, words: Sequence[str]) -> bool:
    """Return whether a case's name contains one of the words; true without words."""
    return not words or any(word.lower() in case.name.lower() for word in words)


def measured(case: Complaint, machine: Machine, budget: float) -> Row:
    """Measure one case; results are compared with all others, and failures are recorded in the row."""
    row = Row(case.name)
    calls: dict[str, Callable[[], Any]] = {}
    try:
        ours = on_hloom(case.text, case.inputs)
        row.compiled, row.temp = ours.compile_seconds, ours.temp_bytes
        cost = ours.executable.cost
        row.flops, row.moved, row.limit = cost.flops, cost.bytes, machine.limit(cost.flops, cost.bytes)
        found = ours.values(ours.call())
        others = []
        if xla_is_there():
            theirs = on_xla(case.text, case.inputs)
            row.xla_compiled, row.xla_temp = theirs.compile_seconds, theirs.temp_bytes
            calls["xla"] = theirs.call
            others.append(theirs.values(theirs.call()))
        calls["hloom"] = ours.call
        if case.library is not None:
            library, inputs = case.library, list(case.inputs)
            calls["library"] = lambda: library(*inputs)
            others.append(
                [a.astype(f.dtype) for a, f in zip(leaves_of(library(*inputs)), found, strict=True)]
            )
        compared = [agreement(found, other) for other in others]
        if compared:
            row.agree = all(c.agree for c in compared)
            row.worst = max(c.worst for c in compared)
        times = medians(calls, budget)
        row.run, row.xla_run, row.library_run = times["hloom"], times.get("xla"), times.get("library")
    except (HloError, RuntimeError) as error:
        row.error = str(error).splitlines()[0]
    return row


if __name__ == "__main__":
    sys.exit(main())
