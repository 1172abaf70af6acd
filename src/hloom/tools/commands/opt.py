"""`hloom opt`: run passes by name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hloom.tools.console.completion import PASSES
from hloom.tools.console.options import XLA_VERSION
from hloom.tools.console.program_argument import FILE_OR_FOLDER, load_program, program_file, program_option
from hloom.tools.console.terminal import echo, progress, styled

if TYPE_CHECKING:
    from hloom.ir.module import HloModule
    from hloom.ir.xla_version import XlaVersion
    from hloom.passes.pipeline import Pass
    from hloom.proofs.verdict import Verdict


@click.command(short_help="Run passes by name.")
@click.argument("file", type=FILE_OR_FOLDER, required=False)
@program_option
@click.option(
    "--passes",
    "names",
    type=PASSES,
    default="",
    metavar="NAMES",
    help="Passes or parts of the pipeline, separated by commas. Default: all.",
)
@click.option(
    "--pipeline",
    default="cpu",
    show_default=True,
    metavar="BACKEND",
    help="The backend whose pipeline states the passes and their options.",
)
@click.option("--print-after-all", is_flag=True, help="Print the program after every pass that changed it.")
@click.option(
    "--prove", "proves", is_flag=True, help="Judge every pass that changed the program, without inputs."
)
@click.option("--diff", "as_diff", is_flag=True, help="Print what changed instead of the program.")
@click.option("--list", "as_list", is_flag=True, help="List the pipeline and all passes.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write the program to a file.")
@XLA_VERSION
def opt(
    file: str | None,
    program: str,
    names: str,
    pipeline: str,
    print_after_all: bool,
    proves: bool,
    as_diff: bool,
    as_list: bool,
    output: str | None,
    xla_version: XlaVersion,
) -> None:
    """Run passes on a program and print it; it is verified after each pass.

    Passes have XLA's names (algsimp) or those of their classes (algebraic-simplifier).

    With --prove it prints the verdict of each pass instead of the program (see "hloom prove"), and the exit
    status is 1 if a pass is refuted, 2 if one is open.

    \b
    Examples:
      hloom opt model.hlo --passes=cse,algsimp,dce
      hloom opt model.hlo --passes=expansion,simplification --diff
      hloom opt model.hlo --diff --print-after-all
      hloom opt model.hlo --prove
      hloom opt --list
    """
    from hloom.debug.optimization import listing, optimized
    from hloom.files import save
    from hloom.ir.print_options import PrintOptions

    if as_list or file is None:
        if not as_list:
            raise click.UsageError("give a FILE, or --list")
        echo(listing(pipeline))
        return
    module = load_program(program_file(file, program))
    if proves:
        sys.exit(_judge(module, names, pipeline))
    form = PrintOptions.dump(xla_version)
    last = module

    def observe(item: Pass, program: HloModule) -> None:
        nonlocal last
        if not print_after_all:
            return
        echo(styled(f"// -- after {item.name}", "title"))
        echo(_changes(last, program) if as_diff else program.to_text(form))
        last = program.clone()

    result = optimized(module, names, backend=pipeline, observe=observe)
    if output is not None:
        save(result, Path(output))
    elif not print_after_all:
        sys.stdout.flush()
        echo(_changes(module, result) if as_diff else result.to_text(form), nl=False)


def _judge(module: HloModule, names: str, pipeline: str) -> int:
    """Print the verdict of each pass; return the exit status."""
    from hloom.proofs.pipelines import judge_passes
    from hloom.tools.commands.prove import status_of, verdict_lines

    verdicts: list[Verdict] = []
    for step in judge_passes(module, names, backend=pipeline, progress=progress):
        progress.done()
        first, *details = verdict_lines(step.verdict)
        echo("\n".join([f"{step.pass_name:36} {first}", *details]))
        verdicts.append(step.verdict)
    return status_of(verdicts)


def _changes(before: HloModule, after: HloModule) -> str:
    """Return the differences of two programs as text."""
    from hloom.tools.reports.diff_text import diff_text

    return diff_text(before, after, styled) or "equal\n"
