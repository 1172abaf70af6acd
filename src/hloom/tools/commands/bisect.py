"""`hloom bisect`: the pass and the rewrite that change a result."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hloom.tools.console.completion import BACKEND
from hloom.tools.console.terminal import FILE, echo, progress, styled

if TYPE_CHECKING:
    from hloom.debug.bisection import Bisection
    from hloom.debug.tolerance import Tolerance


@click.command(short_help="Find the pass and the rewrite that change a result.")
@click.argument("file", type=click.Path(exists=True))
@click.option(
    "--backend",
    type=BACKEND,
    default="cpu",
    show_default=True,
    help="The backend whose pipeline is searched.",
)
@click.option(
    "--program", default="", metavar="REGEX", help="Of a folder of dumps: only programs of matching names."
)
@click.option("--input", "inputs", multiple=True, type=FILE, help="A .npy or .npz file of arguments.")
@click.option(
    "--random",
    "seed",
    type=click.IntRange(0),
    metavar="SEED",
    help="Draw the arguments from this seed. Default: those of a snapshot, else 0.",
)
@click.option(
    "--tolerance",
    default="analysis",
    show_default=True,
    metavar="HOW",
    help="analysis, exact, 4ulp, or rtol=1e-5,atol=1e-8.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def bisect(file: str, **options: Any) -> None:
    """Find the smallest step of a compilation that changes the result of a program.

    FILE is a program, whose passes in hloom are searched, then the rewrites of the pass; the step is printed
    as a diff. If no pass changes the result, native code is compared, and the first wrong instruction named.

    Or FILE is a folder of dumps that XLA wrote after each of its passes, for any of its backends: the pass
    of XLA is named after which hloom's evaluator gets another result.

    \b
    Examples:
      hloom bisect model.hlo
      hloom bisect model.hlo --input arguments.npz --tolerance rtol=1e-4
      XLA_FLAGS='--xla_dump_to=dumps --xla_dump_hlo_pass_re=.* --xla_dump_large_constants' python train.py
      hloom bisect dumps --program jit_step

    \b
    Exit status:
      0  no step changes the result
      1  a step does
      2  the search could not be made
    """
    from hloom.debug.tolerance import Tolerance
    from hloom.errors import HloError

    try:
        tolerance = Tolerance.parse(options["tolerance"])
        search = _dumps if Path(file).is_dir() else _program
        bisections = search(file, tolerance, options)
    except HloError as error:
        echo(styled("error: ", "removed") + f"{file}: {error}", err=True)
        sys.exit(2)
    finally:
        progress.done()
    if options["as_json"]:
        echo(json.dumps({name: _json(each) for name, each in bisections.items()}, indent=1))
    else:
        for name, each in bisections.items():
            echo(report(name, each))
    sys.exit(any(each is not None for each in bisections.values()))


def _program(file: str, tolerance: Tolerance, options: dict[str, Any]) -> dict[str, Bisection | None]:
    from hloom.debug.bisection import bisect as searched
    from hloom.files import load_snapshot
    from hloom.tools.console.arguments import chosen_arguments

    snapshot = load_snapshot(file)
    arguments = chosen_arguments(snapshot, options["inputs"], options["seed"])
    bisection = searched(
        snapshot.module, arguments, backend=options["backend"], tolerance=tolerance, progress=progress
    )
    return {snapshot.module.name: bisection}


def _dumps(folder: str, tolerance: Tolerance, options: dict[str, Any]) -> dict[str, Bisection | None]:
    from hloom.debug.bisection import bisect_dumps, pass_dumps
    from hloom.debug.inputs import random_arguments
    from hloom.tools.console.arguments import read_arguments, shaped

    def arguments(module: Any) -> list[Any]:
        if options["inputs"]:
            return shaped(read_arguments(options["inputs"]), module)
        return random_arguments(module, options["seed"] or 0)

    return {
        program.name: bisect_dumps(
            program, arguments, tolerance=tolerance, progress=progress, note=_note_unread
        )
        for program in pass_dumps(folder, options["program"])
    }


def _note_unread(reason: str) -> None:
    progress.done()
    echo(f"note: not run: {reason}", err=True)


# -- output


def report(name: str, found: Bisection | None) -> str:
    """Return the text about one program."""
    from hloom.tools.commands.check import comparison_line, culprit_lines
    from hloom.tools.reports.diff_text import diff_text

    if found is None:
        return f"{styled('agrees ', 'added')} {name}: no step changes the result"
    lines = [f"note: not run: {skipped}" for skipped in found.skipped]
    if not found.pass_name:
        lines.append(f"{styled('native code', 'title')} of {name} is wrong; no pass changes the result")
        lines += map(comparison_line, found.comparisons)
        return "\n".join([*lines, *(culprit_lines(found.culprit) if found.culprit is not None else [])])
    lines.append(f"{styled(found.pass_name, 'title')} changes the result of {name}")
    if found.rewrite:
        lines.append(f"  rewrite {found.number} of {found.total}: {found.rewrite}")
    lines += map(comparison_line, found.comparisons)
    return "\n".join([*lines, "", diff_text(found.before, found.after, styled).rstrip()])


def _json(found: Bisection | None) -> dict[str, object] | None:
    from hloom.tools.reports.diff_text import diff_text

    if found is None:
        return None
    return {
        "pass": found.pass_name,
        "rewrite": found.rewrite,
        "number": found.number,
        "total": found.total,
        "results": [c.name for c in found.comparisons],
        "instruction": found.culprit.instruction if found.culprit is not None else None,
        "skipped": list(found.skipped),
        "diff": diff_text(found.before, found.after, lambda text, role: text) if found.pass_name else "",
    }
