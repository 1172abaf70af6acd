"""`hloom stats`: count the costs of a program."""

from __future__ import annotations

import json
from textwrap import indent

import click

from hloom.tools.console.program_argument import load_program, program_argument
from hloom.tools.console.terminal import echo, styled


@click.command(short_help="Count operations, arithmetic and bytes.")
@program_argument
@click.option("--json", "as_json", is_flag=True, help="Write all counts as JSON.")
@click.option(
    "--depth", type=click.IntRange(1), default=3, show_default=True, help="Depth of op_name scopes."
)
@click.option(
    "--sort",
    "order",
    type=click.Choice(["cost", "flops", "bytes"]),
    default="cost",
    show_default=True,
    help="Order of the tables: cost is the larger of arithmetic and 10 flops a byte.",
)
@click.option(
    "--copies", is_flag=True, help="List the arrays that loops, branches and updates copy, and why."
)
@click.option("--compile", "compiles", is_flag=True, help="Compile, and tell where the time goes.")
def stats(file: str, as_json: bool, depth: int, order: str, copies: bool, compiles: bool) -> None:
    """Count operations, arithmetic and bytes: by opcode, op_name scope and source line.

    Loops count as often as they run if that follows from the program, else by known_trip_count, else once.
    Calls of libraries (cuBLAS, cuDNN, oneDNN, LAPACK) count as what they compute. Arrays whose tiled layouts
    waste memory are listed, the worst first.

    Loops and branches update arrays in place if an order of the reads and updates allows it. --copies
    lists the copies that remain in the compiled program, with the instruction that needs the old value.

    With --compile the program is compiled without the cache; the report tells the CPU seconds of every pass,
    with the instructions before and after it, of planning, emission, LLVM and loading.

    \b
    Examples:
      hloom stats model.hlo
      hloom stats model.hlo --sort bytes
      hloom stats dump_folder --program train_step
      hloom stats model.hlo --copies
      hloom stats model.hlo --json
      hloom stats model.hlo --compile
    """
    from hloom.phases import phase, recording
    from hloom.tools.reports.statistics import copies_text, statistics_json, statistics_of, statistics_text

    with recording() as reading, phase("reading", "file"):
        module = load_program(file)
    if copies:
        echo(copies_text(module), nl=False)
        return
    statistics = statistics_of(module)
    profile = None
    if compiles:
        from hloom.cpu.native import compile_or_load

        profile = compile_or_load(module, cached=False).compile_profile
        profile.begin_with(reading)
    if as_json:
        compilation = {"compilation": profile.to_json()} if profile is not None else {}
        echo(json.dumps(statistics_json(statistics) | compilation, indent=1))
        return
    echo(statistics_text(statistics, styled, depth, order), nl=False)
    if profile is not None:
        echo(f"\n{styled('Compilation', 'title')}\n{indent(str(profile), '  ')}")
