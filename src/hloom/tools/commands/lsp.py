"""`hloom lsp`: serve editors by the Language Server Protocol."""

from __future__ import annotations

import click

from hloom.errors import HloError


@click.command(short_help="Serve editors: errors, names and completion of HLO text.")
@click.option("--stdio", is_flag=True, help="Accepted for editors that pass it; the server always uses it.")
def lsp(stdio: bool) -> None:
    """Serve an editor by the Language Server Protocol, on the standard input and output.

    It needs pygls: pip install 'hloom[lsp]'. docs/editors.md has the settings of VS Code, Neovim, Emacs and
    Helix.
    """
    try:
        from hloom.tools.language_server.server import serve
    except ModuleNotFoundError as error:
        if error.name not in ("pygls", "lsprotocol"):
            raise
        message = "the language server needs pygls; install it by: pip install 'hloom[lsp]'"
        raise HloError(message, rule="lsp.installed") from error
    serve()
