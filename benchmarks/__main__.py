"""Whole programs: ``python -m benchmarks [DIR [NAME ...]] [--json OUT] [--plot OUT.svg]``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.agreement import agreement
from benchmarks.fresh import fresh_times
from benchmarks.machine import Machine, this_machine
from benchmarks.plots import save_plots
from benchmarks.row import Row, summary
from benchmarks.sides import on_hloom, on_xla, warm_up, xla_is_there
from benchmarks.table import AGREEMENT, COMPILE, FRESH, LIMIT, MEMORY, RUN, Table
from benchmarks.timing import medians
from hloom.errors import HloError
from hloom.tools.examples.workload import draw_inputs, examples


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the programs of a directory; returns 1 if results differ or something could not be measured."""
    options = _parser().parse_args(arguments)
    folder = Path(options.directory) if options.directory else examples()
    names = options.names or sorted(path.stem for path in folder.glob("*.hlo"))
    missing = [name for name in names if not (folder / f"{name}.hlo").is_file()]
    if missing or not names:
        print(f"no program {', '.join(missing) or '*'}.hlo in {folder}", file=sys.stderr)
        return 2
    machine = this_machine()
    print(machine)
    if not xla_is_there():
        print("XLA is not installed here (pip install 'hloom[jax]'): hloom alone")
    warm_up()
    fresh = [] if options.no_fresh else FRESH
    table = Table([*RUN, *LIMIT, *COMPILE, *fresh, *MEMORY, *AGREEMENT])
    for name in names:
        table.add(
            measured(folder, name, machine, options.seconds, block=options.block, fresh=not options.no_fresh)
        )
    table.finish()
    if options.json:
        content = {
            "machine": machine.to_json(),
            "summary": summary(table.rows),
            "programs": [row.to_json() for row in table.rows],
        }
        Path(options.json).write_text(json.dumps(content, indent=1) + "\n")
    if options.plot:
        save_plots(table.rows, machine, options.plot)
    return int(any(row.error or row.agree is False for row in table.rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("directory", nargs="?", help="of NAME.hlo and inputs.json; default: the examples")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of programs; default: all")
    parser.add_argument("--json", metavar="OUT", help="write everything that was measured")
    parser.add_argument("--plot", metavar="OUT", help="draw ratios and roofline: .svg or .png")
    parser.add_argument("--seconds", type=float, default=1.0, help="of runs for each program (1)")
    parser.add_argument("--block", type=int, default=1, help="runs on one side before the other's turn (1)")
    parser.add_argument("--no-fresh", action="store_true", help="no compilations in fresh processes")
    return parser


def measured(folder: Path, name: str, machine: Machine, budget: float, *, block: int = 1, fresh: bool) -> Row:
    """Measure one program; failures are recorded in the row."""
    row = Row(name)
    file = folder / f"{name}.hlo"
    text = file.read_text()
    try:
        inputs = draw_inputs(folder, name)
        ours = on_hloom(text, inputs)
        row.compiled, row.temp = ours.compile_seconds, ours.temp_bytes
        cost = ours.executable.cost
        row.flops, row.moved = cost.flops, cost.bytes
        row.limit = machine.limit(cost.flops, cost.bytes)
        calls = {"hloom": ours.call}
        found = ours.values(ours.call())
        if xla_is_there():
            theirs = on_xla(text, inputs)
            row.xla_compiled, row.xla_temp = theirs.compile_seconds, theirs.temp_bytes
            same = agreement(found, theirs.values(theirs.call()))
            row.agree, row.worst = same.agree, same.worst
            calls = {"xla": theirs.call, **calls}
        times = medians(calls, budget, block)
        row.run, row.xla_run = times["hloom"], times.get("xla")
        if fresh:
            alone = fresh_times(file)
            row.fresh, row.cached, row.loads_llvm = alone.cold, alone.cached, alone.loads_llvm
    except (HloError, RuntimeError, OSError) as error:
        row.error = str(error).splitlines()[0]
    return row


if __name__ == "__main__":
    sys.exit(main())
