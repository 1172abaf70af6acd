"""`hloom reduce`: find the smallest program that still shows a fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hloom.errors import plural
from hloom.tools.console.completion import COMPARED_BACKEND
from hloom.tools.console.options import AS_JSON, INPUTS, SEED, TOLERANCE, XLA_VERSION
from hloom.tools.console.program_argument import program_argument
from hloom.tools.console.terminal import echo, progress, styled

if TYPE_CHECKING:
    from hloom.debug.conditions import Condition
    from hloom.debug.reduction import Reduction


@click.command(short_help="Shrink a program that shows a fault.")
@program_argument
@click.option(
    "--test",
    "test_command",
    metavar="COMMAND",
    help="The fault: this command has exit status 0; {} is the program's file.",
)
@click.option("--differs", is_flag=True, help="The fault: --backend and --against differ (the default).")
@click.option("--fails", "rule", metavar="RULE", help="The fault: compiling or running breaks this rule.")
@click.option(
    "--backend", type=COMPARED_BACKEND, default="cpu", show_default=True, help="The backend in doubt."
)
@click.option(
    "--against",
    type=COMPARED_BACKEND,
    default="evaluator",
    show_default=True,
    help="The backend that is right.",
)
@TOLERANCE
@INPUTS
@SEED
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="Write the program to this file, and its arguments beside it as .npz.",
)
@AS_JSON
@XLA_VERSION
def reduce(file: str, **options: Any) -> None:
    """Print the smallest program that still shows a fault.

    Instructions, results, loops, sizes, ranks and types are taken away as long as the program stays valid and
    the fault remains. An instruction that is taken away becomes a parameter with the value that it had.

    \b
    Examples:
      hloom reduce model.hlo
      hloom reduce model.hlo --backend passes --tolerance rtol=1e-3 -o small.hlo
      hloom reduce model.hlo --fails cpu.lowering-missing
      hloom reduce model.hlo --test 'my_compiler {} 2>&1 | grep -q "Check failed"'

    A command may use {input}, an .npz file of the arguments. Exit status: 0 if a program is printed, 1 if
    the given one does not show the fault.
    """
    from hloom.debug.reduction import reduce as reduced
    from hloom.files import load_snapshot
    from hloom.tools.console.arguments import chosen_arguments

    if sum(map(bool, (options["test_command"], options["differs"], options["rule"]))) > 1:
        raise click.UsageError("use one of --test, --differs and --fails")
    snapshot = load_snapshot(file)
    arguments = chosen_arguments(snapshot, options["inputs"], options["seed"])
    try:
        reduction = reduced(snapshot.module, arguments, _condition(options), progress=progress)
    finally:
        progress.done()
    _print(reduction, options)


def _condition(options: dict[str, Any]) -> Condition:
    from hloom.debug import conditions
    from hloom.debug.tolerance import Tolerance

    if options["test_command"]:
        return conditions.command(options["test_command"])
    if options["rule"]:
        return conditions.fails(options["rule"], options["backend"])
    tolerance = Tolerance.parse(options["tolerance"])
    return conditions.two_backends_differ(options["backend"], options["against"], tolerance)


def _print(reduction: Reduction, options: dict[str, Any]) -> None:
    import numpy as np

    from hloom.debug.statistics import flat, summary
    from hloom.files import save
    from hloom.ir.print_options import PrintOptions

    parameters = reduction.module.entry.parameters
    values = {p.name: summary(a) for p, a in zip(parameters, reduction.arguments, strict=True)}
    counts = {"before": reduction.before, "after": reduction.after, "tests": reduction.tests}
    path = Path(options["output"] or "")
    text = reduction.module.to_text(PrintOptions.dump(options["xla_version"]))
    if options["output"]:
        save(reduction.module, path)
        np.savez(path.with_suffix(".npz"), *flat(tuple(reduction.arguments)))
    if options["as_json"]:
        echo(json.dumps({**counts, "program": text, "arguments": values}))
        return
    echo(
        f"// {reduction.before} -> {reduction.after} instructions, {plural(reduction.tests, 'program')} tried"
    )
    for name, value in values.items():
        echo(styled(f"// %{name} = {value}", "dim"))
    if options["output"]:
        echo(f"// written to {path} and its arguments to {path.with_suffix('.npz')}")
    else:
        echo(text, nl=False)
