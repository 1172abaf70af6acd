"""`hloom stats`: the costs of a program."""

from __future__ import annotations

import json

import click

from hloom.tools.terminal import FILE, styled


@click.command(short_help="Count operations, arithmetic and bytes.")
@click.argument("file", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Write all counts as JSON.")
@click.option(
    "--depth", type=click.IntRange(1), default=3, show_default=True, help="Depth of op_name scopes."
)
def stats(file: str, as_json: bool, depth: int) -> None:
    """Count operations, arithmetic and bytes: by opcode, op_name scope and source line.

    Loops count as often as they run if that follows from the program, else by known_trip_count, else once.
    Calls of libraries (cuBLAS, cuDNN, oneDNN, LAPACK) count as what they compute. Arrays whose tiled layouts
    waste memory are listed, the worst first.

    \b
    Examples:
      hloom stats model.hlo
      hloom stats model.hlo --json
    """
    from hloom.files import load_all
    from hloom.tools.statistics import statistics_json, statistics_of, statistics_text

    click.get_current_context().find_root().obj = file
    modules = load_all(file)
    if len(modules) > 1:
        click.echo(f"{file} contains {len(modules)} programs; only the first is used", err=True)
    found = statistics_of(modules[0])
    if as_json:
        click.echo(json.dumps(statistics_json(found), indent=1))
    else:
        click.echo(statistics_text(found, styled, depth), nl=False)
