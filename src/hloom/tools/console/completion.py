"""Completion in shells: `hloom completion`, and parameter types with completed words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, get_completion_class

if TYPE_CHECKING:
    Text = click.ParamType[str]
else:
    Text = click.ParamType  # generic since click 8.2


class CompletedText(Text):
    """A parameter type for text whose words shells complete; in a list, the word after the last comma."""

    def __init__(self, name: str, words: Callable[[], Iterable[str]], *, is_list: bool = False) -> None:
        self.name = name
        self._words = words
        self._is_list = is_list

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text unchanged; commands refuse unknown words."""
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the words with the typed prefix."""
        before, comma, prefix = incomplete.rpartition(",") if self._is_list else ("", "", incomplete)
        return [CompletionItem(before + comma + w) for w in sorted(self._words()) if w.startswith(prefix)]


def _opcodes() -> Iterable[str]:
    import hloom.operations  # noqa: F401  # pyright: ignore[reportUnusedImport]  (declares the operations)
    from hloom.ir.operation import REGISTRY

    return REGISTRY


def _backends() -> Iterable[str]:
    import hloom.runtime.executable  # noqa: F401  # pyright: ignore[reportUnusedImport]  (registers them)
    from hloom.runtime.backend import backend_names

    return backend_names()


def _compared() -> Iterable[str]:
    return {*_backends(), "passes", "xla"}


def _passes() -> Iterable[str]:
    from hloom.passes.registry import passes

    return passes()


OPCODE = CompletedText("name", _opcodes)
BACKEND = CompletedText("text", _backends)
COMPARED_BACKEND = CompletedText("text", _compared)
PASSES = CompletedText("names", _passes, is_list=True)


@click.command(short_help="Print the script that completes commands in a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands, options, operations, backends and passes in a shell.

    \b
    To switch it on, add one line:
      bash   ~/.bashrc   eval "$(hloom completion bash)"
      zsh    ~/.zshrc    eval "$(hloom completion zsh)"
      fish   ~/.config/fish/config.fish   hloom completion fish | source
    """
    cls = get_completion_class(shell)
    assert cls is not None
    root = click.get_current_context().find_root().command
    click.echo(cls(root, {}, "hloom", "_HLOOM_COMPLETE").source())
