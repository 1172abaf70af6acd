"""The argument FILE of commands: a program's file, or a folder of programs or dumps."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from hloom.errors import plural
from hloom.tools.console.terminal import FILE, echo

if TYPE_CHECKING:
    from collections.abc import Callable

    from hloom.ir.module import HloModule

F = TypeVar("F", bound="Callable[..., Any]")


class _FileOrFolder(click.ParamType[str]):
    """A parameter type for an existing folder or file, or ``-``."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if Path(value).is_dir() else FILE.convert(value, param, ctx)


FILE_OR_FOLDER: Final = _FileOrFolder()
program_option: Final = click.option(
    "--program", default="", metavar="REGEX", help="The program of a folder. Default: the largest."
)


def program_argument(function: F) -> F:
    """Add the argument FILE and the option --program to a command, which receives the path of one file."""

    @functools.wraps(function)
    def command(file: str, program: str, **options: object) -> Any:
        return function(file=program_file(file, program), **options)

    return click.argument("file", type=FILE_OR_FOLDER)(program_option(command))  # pyright: ignore[reportReturnType]


def program_file(path: str, matching: str) -> str:
    """Return `path` if it is a file; of a folder, the first stage of the largest program that matches.

    The command's errors mention this file. Raises HloError as `hloom.dumps.dumped_programs`.
    """
    from hloom.dumps import dumped_programs

    root = click.get_current_context().find_root()
    root.obj = path
    if not Path(path).is_dir():
        return path
    programs = dumped_programs(path, matching)
    largest = max(programs, key=lambda program: program.byte_size)
    file = str(largest.stages[0].path)
    root.obj = file
    if len(programs) > 1:
        others = f"the largest of {plural(len(programs), 'program')}; --program REGEX chooses another"
        echo(f"{file}: {others}", err=True)
    return file


def load_program(file: str) -> HloModule:
    """Load the program of a file; if there are several, the first one, with a note."""
    from hloom.files import load_all

    modules = load_all(file)
    if len(modules) > 1:
        echo(f"{file} contains {plural(len(modules), 'program')}; only the first is used", err=True)
    return modules[0]
