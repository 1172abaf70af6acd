"""`hloom draw`: draw a program, or a part of it."""

from __future__ import annotations

from pathlib import Path

import click

from hloom.errors import plural
from hloom.tools.console.program_argument import load_program, program_argument
from hloom.tools.console.terminal import echo


@click.command(short_help="Draw a program as .svg, .png, .html or .dot.")
@program_argument
@click.option("-o", "--out", type=click.Path(dir_okay=False), default="graph.svg", show_default=True)
@click.option("--full", is_flag=True, help="Draw small constants and scalar computations too.")
@click.option("--around", metavar="NAME", default="", help="Draw only what is near this instruction.")
@click.option(
    "--depth",
    type=click.IntRange(0),
    default=2,
    show_default=True,
    help="With --around: the number of edges from it.",
)
def draw(file: str, out: str, full: bool, around: str, depth: int) -> None:
    """Draw a program: .svg, .png, .html (to move, scale and search in) or .dot for Graphviz.

    A picture of more than 2,000 instructions cannot be read: hloom view shows programs of any size.

    \b
    Examples:
      hloom draw model.hlo --out model.png
      hloom draw model.hlo --around dot.3 --depth 2
    """
    from hloom.tools.pictures.graph_picture import save_picture

    nodes, boxes = save_picture(load_program(file), Path(out), full=full, around=around, depth=depth)
    echo(f"{out}: {plural(nodes, 'instruction')} in {plural(boxes, 'computation')}")
