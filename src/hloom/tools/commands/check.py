"""`hloom check`: compare the results of two backends."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from hloom.tools.console.completion import COMPARED_BACKEND
from hloom.tools.console.options import AS_JSON, INPUTS, TOLERANCE
from hloom.tools.console.program_argument import FILE_OR_FOLDER, program_file, program_option
from hloom.tools.console.terminal import echo, exit_2_if_undecided, progress, styled

if TYPE_CHECKING:
    from hloom.debug.agreement import Comparison
    from hloom.debug.checking import Check, Culprit
    from hloom.debug.tolerance import Tolerance
    from hloom.files import Snapshot


_MOST_LINES: Final = 12
"""Limit of the number of results for which those that agree are listed."""


@click.command(short_help="Compare the results of two backends.")
@click.argument("file", type=FILE_OR_FOLDER)
@program_option
@click.option(
    "--backend", type=COMPARED_BACKEND, default="cpu", show_default=True, help="The backend in doubt."
)
@click.option(
    "--against",
    type=COMPARED_BACKEND,
    metavar="BACKEND",
    help="The backend that is right. Default: the result stored in a snapshot, else evaluator.",
)
@INPUTS
@click.option(
    "--random",
    "seeds",
    multiple=True,
    type=click.IntRange(0),
    metavar="SEED",
    help="Draw the arguments from this seed; may be repeated. Default: 0.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    metavar="N",
    help="Draw N arguments, every second one with edge values.",
)
@TOLERANCE
@click.option("--no-locate", is_flag=True, help="Do not search for the first instruction that differs.")
@click.option("--all", "every", is_flag=True, help="List every result, also those that agree.")
@AS_JSON
def check(file: str, program: str, **options: Any) -> None:
    """Run a program on two backends and compare every result.

    Backends are cpu, evaluator, passes (the evaluator after the cpu backend's passes: a difference is a wrong
    rewrite) and xla (XLA:CPU of jaxlib). The tolerance is by default what the rounding errors of this program
    allow for these arguments. If the results differ, the first instruction that differs is named, with the
    values of its operands. A snapshot of XLA is run with its arguments and compared with its result.

    Edge values are NaN, infinities, zeros of both signs, subnormal and extreme numbers.

    \b
    Examples:
      hloom check model.hlo
      hloom check model.hlo --against xla --repeat 10
      hloom check step.hlo_snapshot.pb
      hloom check model.hlo --tolerance 4ulp --json

    \b
    Exit status:
      0  all results agree
      1  a result differs
      2  the comparison could not be made: the program is invalid, or no tolerance can be derived
    """
    from hloom.debug.tolerance import Tolerance
    from hloom.files import load_snapshot

    with exit_2_if_undecided(file):
        file = program_file(file, program)
    with exit_2_if_undecided(file):
        tolerance = Tolerance.parse(options["tolerance"])
        checks = list(_checks(load_snapshot(file), tolerance, options))
    if options["as_json"]:
        echo(json.dumps({"file": file, "checks": [_json(c) for c in checks]}, indent=1))
    else:
        for each in checks:
            echo(report(each, every=options["every"]))
    sys.exit(1 if any(c.is_wrong for c in checks) else 0 if all(c.agrees for c in checks) else 2)


def _checks(snapshot: Snapshot, tolerance: Tolerance, options: dict[str, Any]) -> Iterator[Check]:
    """Yield the check of the program for each set of arguments."""
    from dataclasses import replace

    from hloom.debug import checking

    module = snapshot.module
    module.verify()
    against: str | None = options["against"]
    if snapshot.result is not None and not (options["inputs"] or options["seeds"] or against):
        yield _replayed(snapshot, tolerance, options["backend"])
        return
    for inputs, arguments in _inputs(snapshot, options):
        progress(f"{module.name}: {inputs}")
        outcome = checking.check(
            module,
            arguments,
            backend=options["backend"],
            against=against or "evaluator",
            tolerance=tolerance,
            locate=not options["no_locate"],
        )
        yield replace(outcome, inputs=inputs)


def _replayed(snapshot: Snapshot, tolerance: Tolerance, backend: str) -> Check:
    """Run a snapshot with its arguments, and compare the result with the stored one."""
    from hloom.debug.backends import run_on
    from hloom.debug.checking import Check, compared

    assert snapshot.result is not None
    runs = [[literal.numpy() for literal in run] for run in snapshot.runs] or [[]]
    got = run_on(backend, snapshot.module, runs)
    comparison = compared(snapshot.module, runs[:1], got[:1], [snapshot.result.numpy()], tolerance)
    return Check(backend, "stored", "snapshot", *comparison)


def _inputs(snapshot: Snapshot, options: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield a title and the arguments of each run: a list, or on several devices a list for each device."""
    from hloom.debug.inputs import random_arguments
    from hloom.errors import HloError
    from hloom.tools.console.arguments import read_arguments, shaped

    module = snapshot.module
    devices = module.config.replica_count * module.config.num_partitions
    if options["inputs"]:
        if options["seeds"] or options["repeat"]:
            message = "--input is given with --random or --repeat; use one of them"
            raise HloError(message, rule="run.argument-source")
        arguments = shaped(read_arguments(options["inputs"]), module)
        yield "given", arguments if devices == 1 else [arguments] * devices
        return
    if snapshot.runs and not options["seeds"] and not options["repeat"]:
        runs = [[literal.numpy() for literal in run] for run in snapshot.runs]
        yield "snapshot", runs[0] if devices == 1 else runs
        return
    first = options["seeds"][0] if options["seeds"] else 0
    seeds = list(options["seeds"]) if not options["repeat"] else range(first, first + options["repeat"])
    for number, seed in enumerate(seeds or [0]):
        edges = bool(options["repeat"]) and number % 2 == 1
        name = f"edge values {seed}" if edges else f"random {seed}"
        drawn = [random_arguments(module, seed + 1000 * n, edges=edges) for n in range(devices)]
        yield name, drawn[0] if devices == 1 else drawn


# -- output


def report(outcome: Check, *, every: bool = False) -> str:
    """Return the report of a check: a summary, the results that differ, the first wrong instruction.

    With `every`, or for at most 12 results, those that agree are listed too.
    """
    listed = [
        c for c in outcome.comparisons if every or len(outcome.comparisons) <= _MOST_LINES or not c.agrees
    ]
    lines = [_summary(outcome), *map(comparison_line, listed)]
    if outcome.undecided:
        lines.append(f"  no tolerance can be derived: {outcome.undecided}; state one with --tolerance")
    if outcome.culprit is not None:
        lines += ["", *culprit_lines(outcome.culprit)]
    return "\n".join(lines)


def _summary(outcome: Check) -> str:
    """Return the line that names the backends and counts the results that agree."""
    results = outcome.comparisons
    title = styled(f"{outcome.backend} against {outcome.against}, {outcome.inputs}", "title")
    if not results:
        return title
    agree, equal = sum(c.agrees for c in results), sum(not c.unequal for c in results)
    worst = max((c for c in results if c.unequal), key=lambda c: c.ulps, default=None)
    words = f"{agree} of {len(results)} results agree, {equal} in all bits"
    return f"{title}: {words}" + (f"; at most {worst.ulps:.3g} ulp in {worst.name}" if worst else "")


def comparison_line(c: Comparison) -> str:
    """Return the line about one array: it agrees, differs, or is unequal with an unknown error bound."""
    if c.agrees and not c.unequal:
        return f"  {styled('agrees ', 'added')} {c.name} {c.shape}: equal bits"
    far = f"at most {c.ulps:.3g} ulp, {c.difference:.3g}"
    if c.agrees:
        return f"  {styled('agrees ', 'added')} {c.name} {c.shape}: {c.unequal} of {c.elements} differ, {far}"
    where = "".join(f"[{n}]" for n in c.index)
    worst = f"{c.name}{where} is {c.got!r}, not {c.expected!r} (allowed: {c.bound:.3g})"
    word, number = ("differs", c.wrong) if c.wrong else ("unequal", c.unjudged)
    count = f"{number} of {c.elements} elements differ, {far}"
    return f"  {styled(word, 'removed')} {c.name} {c.shape}: {count}\n          {worst}"


def culprit_lines(culprit: Culprit) -> list[str]:
    """Return the lines about the first instruction that differs."""
    lines = [styled("first instruction that differs", "title"), f"  {culprit.instruction}"]
    lines += [f"  at {culprit.origin}"] if culprit.origin else []
    lines += [f"  in {culprit.loop}"] if culprit.loop else []
    lines += [f"  {styled(name, 'name')} = {value}" for name, value in culprit.operands]
    return [*lines, *map(comparison_line, culprit.comparisons)]


def _json(outcome: Check) -> dict[str, object]:
    data = asdict(outcome)
    data["agrees"] = outcome.agrees
    for comparison, compared in zip(data["comparisons"], outcome.comparisons, strict=True):
        comparison["agrees"] = compared.agrees
    return _plain(data)


def _plain(value: Any) -> Any:
    """Return a value with complex numbers, NaN and infinities, which JSON lacks, as text."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, complex) or (isinstance(value, float) and value - value != 0):
        return str(value)
    return value
