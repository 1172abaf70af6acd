"""`hloom bisect`: find the pass and the rewrite that change a result."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hloom.errors import plural
from hloom.tools.console.completion import BACKEND
from hloom.tools.console.options import AS_JSON, INPUTS, SEED, TOLERANCE
from hloom.tools.console.terminal import echo, exit_2_if_undecided, progress, styled

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
@click.option("--prove", "proves", is_flag=True, help="Judge passes by proofs in place of results.")
@INPUTS
@SEED
@TOLERANCE
@AS_JSON
def bisect(file: str, **options: Any) -> None:
    """Find the smallest step of a compilation that changes the result of a program.

    FILE is a program, whose passes in hloom are searched, then the rewrites of the pass; the step is printed
    as a diff. If no pass changes the result, native code is compared, and the first wrong instruction named.

    Or FILE is a folder of dumps that XLA wrote after each of its passes, for any of its backends: the pass
    of XLA is named after which hloom's evaluator gets another result.

    With --prove no inputs are needed: the first pass is named that is refuted, or open if none is (see "hloom
    prove").

    \b
    Examples:
      hloom bisect model.hlo
      hloom bisect model.hlo --prove
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

    if options["proves"]:
        with exit_2_if_undecided(file):
            status = _prove(file, options)
        sys.exit(status)
    with exit_2_if_undecided(file):
        tolerance = Tolerance.parse(options["tolerance"])
        search = _dumps if Path(file).is_dir() else _program
        bisections = search(file, tolerance, options)
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


def _prove(file: str, options: dict[str, Any]) -> int:
    """Print the first pass that is refuted, else the first that is open; return the exit status."""
    if Path(file).is_dir():
        from hloom.proofs.refutation import SAMPLES
        from hloom.tools.commands.prove import judge_folder

        return judge_folder(file, options["program"], SAMPLES, options["as_json"])
    from hloom.files import load_snapshot
    from hloom.proofs.pipelines import judge_passes
    from hloom.tools.commands.prove import status_of, verdict_lines
    from hloom.tools.reports.diff_text import diff_text

    module = load_snapshot(file).module
    steps = list(judge_passes(module, backend=options["backend"], progress=progress))
    progress.done()
    status = status_of([step.verdict for step in steps])
    wrong = next((step for step in steps if status_of([step.verdict]) == status), None) if status else None
    if options["as_json"]:
        content = None if wrong is None else {"pass": wrong.pass_name, **wrong.verdict.to_json()}
        echo(json.dumps({module.name: content}, indent=1))
    elif wrong is None:
        echo(f"{styled('agrees ', 'added')} {module.name}: {plural(len(steps), 'pass', 'passes')} proved")
    else:
        lines = [f"{styled(wrong.pass_name, 'title')} of {module.name}:", *verdict_lines(wrong.verdict)]
        echo("\n".join([*lines, "", diff_text(wrong.before, wrong.after, styled).rstrip()]))
    return status


# -- output


def report(name: str, step: Bisection | None) -> str:
    """Return the report of a bisected program; no step means that its result never changes."""
    from hloom.tools.commands.check import comparison_line, culprit_lines
    from hloom.tools.reports.diff_text import diff_text

    if step is None:
        return f"{styled('agrees ', 'added')} {name}: no step changes the result"
    lines = [f"note: not run: {skipped}" for skipped in step.skipped]
    if not step.pass_name:
        lines.append(f"{styled('native code', 'title')} of {name} is wrong; no pass changes the result")
        lines += map(comparison_line, step.comparisons)
        return "\n".join([*lines, *(culprit_lines(step.culprit) if step.culprit is not None else [])])
    lines.append(f"{styled(step.pass_name, 'title')} changes the result of {name}")
    if step.rewrite:
        lines.append(f"  rewrite {step.number} of {step.total}: {step.rewrite}")
    lines += map(comparison_line, step.comparisons)
    return "\n".join([*lines, "", diff_text(step.before, step.after, styled).rstrip()])


def _json(step: Bisection | None) -> dict[str, object] | None:
    from hloom.tools.reports.diff_text import diff_text

    if step is None:
        return None
    return {
        "pass": step.pass_name,
        "rewrite": step.rewrite,
        "number": step.number,
        "total": step.total,
        "results": [c.name for c in step.comparisons],
        "instruction": step.culprit.instruction if step.culprit is not None else None,
        "skipped": list(step.skipped),
        "diff": diff_text(step.before, step.after, lambda text, role: text) if step.pass_name else "",
    }
