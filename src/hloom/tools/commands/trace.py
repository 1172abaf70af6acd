"""`hloom trace`: show the value of every instruction in a run."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hloom.errors import plural
from hloom.tools.console.options import INPUTS, SEED
from hloom.tools.console.program_argument import program_argument
from hloom.tools.console.terminal import FILE, echo, progress, styled, table

if TYPE_CHECKING:
    from hloom.debug.tracing import Event, Trace
    from hloom.ir.module import HloModule


@click.command(short_help="Show every value of a run; find the first NaN.")
@program_argument
@click.option("--first-nan", is_flag=True, help="Show the first value with a NaN, and its operands.")
@click.option("--first-inf", is_flag=True, help="Show the first value with an infinity, and its operands.")
@click.option("--stats", is_flag=True, help="Show statistics of every value (the default).")
@click.option("--save", type=click.Path(file_okay=False), help="Write every value to this directory as .npy.")
@click.option("--diff", "other", type=FILE, help="Another program: show where values of equal names differ.")
@INPUTS
@SEED
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each value, a line each.")
def trace(file: str, **options: Any) -> None:
    """Run a program on the evaluator and show every value it computes, in the order of computation.

    Values inside loops are shown for each iteration, with the loop in front. Rows have the framework's name
    of the operation and the source line, where the program has them.

    \b
    Examples:
      hloom trace step.hlo --first-nan
      hloom trace step.hlo --input arguments.npz --stats
      hloom trace step.hlo --save values
      hloom trace before.hlo --diff after.hlo

    \b
    Exit status:
      0  done; with --first-nan or --first-inf: there is none; with --diff: no value differs
      1  a NaN, an infinity or a difference is shown; or the program cannot be run
    """
    from hloom.files import load, load_snapshot
    from hloom.tools.console.arguments import chosen_arguments

    snapshot = load_snapshot(file)
    arguments = chosen_arguments(snapshot, options["inputs"], options["seed"])
    drawn = bool(arguments) and not options["inputs"] and (not snapshot.runs or options["seed"] is not None)
    if options["first_nan"] or options["first_inf"]:
        _first(snapshot.module, arguments, options, drawn)
    elif options["other"]:
        _differences(snapshot.module, load(options["other"]), arguments)
    else:
        events = _traced(snapshot.module, arguments, options["save"])
        if options["as_json"]:
            for event in events:
                echo(json.dumps(_json(event)))
        elif not options["save"] or options["stats"]:
            echo(_statistics(events))


def _traced(module: HloModule, arguments: list[Any], directory: str | None) -> Trace:
    """Run a program, write its values to a directory if there is one, and return their statistics."""
    import numpy as np

    from hloom.debug.tracing import trace as traced
    from hloom.tools.console.arguments import leaves_of

    count = 0
    folder = Path(directory) if directory is not None else None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)

    def observe(event: Event) -> None:
        nonlocal count
        count += 1
        if count % 100 == 0:
            progress(f"{plural(count, 'value')}, {event.loop}%{event.instruction.name}")
        if folder is not None:
            where = re.sub(r"[^\w.\-]+", "_", f"{event.loop}{event.instruction.name}")
            for leaf, array in leaves_of(event.value, f"{count:06d}.{where}"):
                np.save(folder / f"{leaf}.npy", np.asarray(array))

    events = traced(module, arguments, keep_values=False, observe=observe)
    progress.done()
    if folder is not None:
        echo(styled(f"wrote {plural(count, 'value')} to {folder}", "dim"))
    return events


def _statistics(events: Trace) -> str:
    rows: list[tuple[str, ...]] = [("value", "shape", "min", "max", "mean", "NaN", "inf", "origin")]
    for event in events:
        origin = ", ".join(part for part in (event.op_name, event.source_line) if part)
        for number, s in enumerate(event.statistics):
            name = f"{event.loop}%{event.instruction.name}"
            part = f".{number}" if len(event.statistics) > 1 else ""
            numbers = ("" if x is None else f"{x:.5g}" for x in (s.minimum, s.maximum, s.mean))
            counts = (str(n) if n else "" for n in (s.nans, s.infinities))
            rows.append((name + part, s.shape, *numbers, *counts, origin))
    return table(rows, ("name", "", "value", "value", "value", "removed", "removed", "dim"), indent=0)


def _json(event: Event) -> dict[str, object]:
    return {
        "instruction": event.instruction.name,
        "opcode": event.instruction.opcode,
        "in": event.loop.strip(),
        "op_name": event.op_name,
        "source": event.source_line,
        "values": [asdict(s) for s in event.statistics],
    }


def _first(module: HloModule, arguments: list[Any], options: dict[str, Any], drawn: bool) -> None:
    """Print the first value with a NaN or infinity, and exit; `drawn` adds that the arguments are random."""
    from hloom.debug.tracing import first_event

    def wanted(event: Event) -> bool:
        return (options["first_nan"] and event.has_nan) or (options["first_inf"] and event.has_infinity)

    both = options["first_nan"] and options["first_inf"]
    what = "NaN or infinity" if both else "NaN" if options["first_nan"] else "infinity"
    event = first_event(module, arguments, wanted)
    if options["as_json"]:
        echo(json.dumps(None if event is None else _json(event)))
    elif event is None:
        echo(f"no value has a {what}" if what[0] == "N" else f"no value has an {what}")
    else:
        count = sum(s.nans + s.infinities for s in event.statistics)
        total = sum(s.elements for s in event.statistics)
        echo(styled(f"first {what}: {count} of {total} elements of", "title"))
        echo(str(event))
        if drawn:
            echo("the arguments are random; --input FILE.npz takes those of a real run")
    sys.exit(event is not None)


def _differences(module: HloModule, other: HloModule, arguments: list[Any]) -> None:
    """Run both programs, print where values of equal names differ, and exit."""
    from hloom.debug.agreement import compare
    from hloom.debug.tracing import trace as traced
    from hloom.tools.commands.check import comparison_line

    values = {(e.loop, e.instruction.name): e.value for e in traced(module, arguments)}
    lines: list[str] = []
    both = 0

    def observe(event: Event) -> None:
        nonlocal both
        name = event.instruction.name
        expected = values.get((event.loop, name))
        if expected is None or event.value is None:
            return
        both += 1
        try:
            comparisons = compare(event.value, expected, 0.0, f"{event.loop}%{name}")
        except ValueError as error:
            lines.append(f"  {styled('differs', 'removed')} {error}")
            return
        lines.extend(comparison_line(c) for c in comparisons if not c.agrees)

    traced(other, arguments, keep_values=False, observe=observe)
    echo(
        "\n".join([*lines, f"{plural(len(lines), 'different value')} of {both} with names of both programs"])
    )
    sys.exit(bool(lines))
