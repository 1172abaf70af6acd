"""The terminal: file arguments, colors, tables, errors, and progress of commands."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from hloom.regex import regex
from hloom.visible import visible, visible_line

if TYPE_CHECKING:
    from hloom.errors import HloError

_STYLES: Final[dict[str, dict[str, Any]]] = {
    "title": {"bold": True},
    "name": {"fg": "cyan"},
    "rule": {"fg": "yellow"},
    "value": {"fg": "green"},
    "dim": {"dim": True},
    "removed": {"fg": "red"},
    "added": {"fg": "green"},
    "removed-word": {"fg": "red", "bold": True, "reverse": True},
    "added-word": {"fg": "green", "bold": True, "reverse": True},
}


_STYLE: Final = regex(r"(\x1b\[(?:[0127]|3[1-6])m)")
"""The sequences that `styled` writes."""


def styled(text: str, role: str) -> str:
    """Return text in the color of a role; `echo` strips colors if the output is not a terminal."""
    return click.style(visible(text), **_STYLES.get(role, {}))


def echo(text: str = "", *, nl: bool = True, err: bool = False) -> None:
    """Print text with colors; escape other control characters, which names in programs may contain."""
    parts = _STYLE.split(text)
    click.echo("".join(part if n % 2 else visible(part) for n, part in enumerate(parts)), nl=nl, err=err)


class _ProgramFile(click.Path):
    """A parameter type for an existing file; ``-`` is the standard input."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert("/dev/stdin" if value == "-" else value, param, ctx)


FILE: Final = _ProgramFile(exists=True, dir_okay=False)


def table(rows: Sequence[Sequence[str]], roles: Sequence[str] = (), indent: int = 2) -> str:
    """Return rows in aligned columns; the first row is the header, cells below have their column's role."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    lines: list[str] = []
    for number, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        cells[-1] = row[-1]
        if number == 0:
            cells = [styled(cell, "dim") for cell in cells]
        else:
            cells = [styled(c, roles[n]) if n < len(roles) and roles[n] else c for n, c in enumerate(cells)]
        lines.append(" " * indent + "  ".join(cells).rstrip())
    return "\n".join(lines)


_PERIOD: Final = 10.0
"""Seconds between the lines of `progress` if the error stream is not a terminal."""


@contextmanager
def exit_2_if_undecided(file: str) -> Generator[None]:
    """Turn an HloError, which prevents a comparison, into a message and exit status 2; clear the progress."""
    from hloom.errors import HloError

    try:
        yield
    except HloError as error:
        echo(styled("error: ", "removed") + described(error, file), err=True)
        sys.exit(2)
    finally:
        progress.done()


def described(error: HloError, source: str) -> str:
    """Return an error's message, preceded by the source file, with the rule colored."""
    text = str(error)
    rule = f" [{error.rule}]"
    if error.rule and rule in text:
        text = text.replace(rule, " " + click.style(f"[{error.rule}]", fg="yellow"))
    if not source or text.startswith(source):
        return text
    return f"{source}:{'' if error.line else ' '}{text}"


class Progress:
    """The progress of a command on the error stream: a rewritten line of a terminal, else a line every 10 s.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()
        self._shown = 0

    def start(self) -> None:
        """Restart the period, at the beginning of a command."""
        self._last = self._clock()

    def __call__(self, text: str) -> None:
        """Show the state of the work."""
        text = visible_line(text)
        if sys.stderr.isatty():
            line = text[: shutil.get_terminal_size((100, 24)).columns - 1]
            click.echo("\r" + line.ljust(self._shown), nl=False, err=True)
            self._shown = len(line)
        elif self._clock() - self._last >= _PERIOD:
            click.echo(text, err=True)
            self._last = self._clock()

    def done(self) -> None:
        """Clear the line."""
        if self._shown:
            click.echo("\r" + " " * self._shown + "\r", nl=False, err=True)
        self._shown = 0


progress: Final = Progress()
