"""`hloom view`: write a page that shows programs."""

from __future__ import annotations

from pathlib import Path

import click

from hloom.tools.terminal import FILE


@click.command(short_help="Show programs in one HTML page.")
@click.argument("files", type=FILE, nargs=-1, required=True)
@click.option("-o", "--output", default="page.html", show_default=True, type=click.Path(dir_okay=False))
def view(files: tuple[str, ...], output: str) -> None:
    """Write a page that shows programs: their graph, costs and text.

    The page is one file that needs no server and no network. Open it in a browser, and press ? for the keys.
    """
    from hloom.files import load_all
    from hloom.ir.module import HloModule
    from hloom.tools.viewer.page import html_page, page_parts

    context = click.get_current_context().find_root()
    modules: list[HloModule] = []
    for file in files:
        context.obj = file
        modules += load_all(file)
    Path(output).write_text(html_page(page_parts(modules)), encoding="utf-8")
    programs = f"{len(modules)} programs" if len(modules) > 1 else modules[0].name
    click.echo(f"{output}: {programs}")
