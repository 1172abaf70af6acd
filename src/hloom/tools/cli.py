"""The command line: `hloom run`, `verify`, `print`, `layout`, `op`, `diff`, `draw`, `stats`, `aot`.

What a command needs is imported when it runs, so that `hloom --help` answers at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from hloom.errors import HloError
    from hloom.ir.module import HloModule

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


def styled(text: str, role: str) -> str:
    """The text in the colour of its role; `click.echo` takes colours away where there is no terminal."""
    return click.style(text, **_STYLES.get(role, {}))


class Commands(click.Group):
    """Turns errors of programs and files into a message and exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        from hloom.errors import HloError

        try:
            return super().invoke(ctx)
        except HloError as error:
            _fail(_described(error, ctx.obj if isinstance(ctx.obj, str) else ""))
        except BrokenPipeError:
            raise  # click ends silently when nobody reads on
        except OSError as error:
            _fail(f"{error.filename or 'output'}: {error.strerror or error}")
        except MemoryError:
            _fail("not enough memory")


def _fail(message: str) -> NoReturn:
    _complain(message)
    sys.exit(1)


def _complain(message: str) -> None:
    click.echo(click.style("error: ", fg="red", bold=True) + message, err=True)


def _described(error: HloError, source: str) -> str:
    """The error's text with its file in front, and its rule where the eye finds it."""
    text = str(error)
    rule = f" [{error.rule}]"
    if error.rule and rule in text:
        text = text.replace(rule, " " + click.style(f"[{error.rule}]", fg="yellow"))
    if not source or text.startswith(source):
        return text
    return f"{source}:{'' if error.line else ' '}{text}"


class _ProgramFile(click.Path):
    """A file that is there; ``-`` is the standard input."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path of the file."""
        return super().convert("/dev/stdin" if value == "-" else value, param, ctx)


FILE: Final = _ProgramFile(exists=True, dir_okay=False)
F = TypeVar("F", bound="Callable[..., Any]")


def _file_argument(function: F) -> F:
    return click.argument("file", type=FILE)(function)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="hloom", prog_name="hloom")
def main() -> None:
    """Read, check, print, run and draw HLO programs.

    FILE is HLO text, a serialized or textual proto (HloModuleProto, HloProto, HloSnapshot), plain or in gzip;
    what it is shows in its contents. A FILE of - is the standard input.

    \b
    Environment:
      HLOOM_NUM_THREADS   threads that compute; by default the cores this process may use
      HLOOM_CACHE_DIR     where compiled code is kept; HLOOM_CACHE=0: nowhere
      HLOOM_CACHE_LIMIT   MiB of it (512)
      XLA_FLAGS           --xla_dump_to=DIR: dumps of every compilation, as XLA writes them
    """


def _load(file: str) -> HloModule:
    from hloom.files import load_all

    click.get_current_context().find_root().obj = file
    modules = load_all(file)
    if len(modules) > 1:
        click.echo(f"{file} holds {len(modules)} programs; this is about the first", err=True)
    return modules[0]


# -- run


@main.command(short_help="Run a program.")
@_file_argument
@click.option(
    "--input", "inputs", multiple=True, type=FILE, help="A .npy or .npz file of arguments; repeat it."
)
@click.option(
    "--random", "seed", type=click.IntRange(0), metavar="SEED", help="Draw the arguments by chance."
)
@click.option("--backend", default="cpu", show_default=True, help="What runs the program: cpu or evaluator.")
@click.option("--output", type=click.Path(file_okay=False), help="A directory for the results as .npy files.")
@click.option("--num-replicas", type=click.IntRange(1), help="Default: what the program says, or 1.")
@click.option("--num-partitions", type=click.IntRange(1), help="Default: what the program says, or 1.")
@click.option("--quiet", is_flag=True, help="Do not print the results.")
def run(
    file: str,
    inputs: tuple[str, ...],
    seed: int | None,
    backend: str,
    output: str | None,
    num_replicas: int | None,
    num_partitions: int | None,
    quiet: bool,
) -> None:
    """Run a program.

    Arguments come from --input, from --random, or from the snapshot that FILE is; a snapshot's own result is
    then compared. All devices get the same inputs; with --random each gets its own.
    """
    from hloom.tools import run_command

    click.get_current_context().find_root().obj = file
    run_command.run(
        file,
        inputs=inputs,
        seed=seed,
        backend=backend,
        output=None if output is None else Path(output),
        num_replicas=num_replicas,
        num_partitions=num_partitions,
        quiet=quiet,
        echo=click.echo,
        style=styled,
    )


# -- verify and print


@main.command(short_help="Check programs by every rule.")
@click.argument("files", type=FILE, nargs=-1, required=True)
def verify(files: tuple[str, ...]) -> None:
    """Check programs: their structure and every operation's rules. Exit status 1 if one of them is wrong."""
    from hloom.errors import HloError
    from hloom.files import load_all

    wrong = False
    for file in files:
        try:
            for module in load_all(file):
                module.verify()
                count = sum(len(computation) for computation in module.computations)
                words = f"{module.name}, {count} instructions in {len(module.computations)} computations"
                click.echo(click.style("ok  ", fg="green") + f"{file}: {words}")
        except HloError as error:
            _complain(_described(error, file))
            wrong = True
    sys.exit(wrong)


@main.command("print", short_help="Print a program as XLA does, or as a proto.")
@_file_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "short", "canonical", "fingerprint", "proto", "pbtxt"]),
    default="text",
    show_default=True,
)
@click.option("--large-constants", is_flag=True, help="Constants of more than 10 elements in full.")
@click.option("--no-metadata", is_flag=True, help="Leave out metadata={...}.")
@click.option("--no-backend-config", is_flag=True, help="Leave out backend_config=...")
@click.option("--no-layouts", is_flag=True, help="Leave out the layouts of shapes.")
@click.option("--no-percent", is_flag=True, help="Names without a leading %.")
@click.option("--operand-shapes", is_flag=True, help="The shape before each operand.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write to a file.")
def print_(file: str, form: str, output: str | None, **switches: bool) -> None:
    """Print a program as XLA does, or as a proto."""
    from hloom.files import load_all
    from hloom.tools.print_command import all_printed

    click.get_current_context().find_root().obj = file
    data = all_printed(load_all(file), form, switches)
    if output is not None:
        Path(output).write_bytes(data)
    elif form == "proto" and sys.stdout.isatty():
        _fail("a proto is not for the terminal; use --output")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


# -- layout and op


@main.command(short_help="Explain and draw a shape and its layout.")
@click.argument("shape")
@click.option("--out", type=click.Path(dir_okay=False), help="Draw into an .svg or .png file.")
@click.option("--no-drawing", is_flag=True, help="Words only.")
def layout(shape: str, out: str | None, no_drawing: bool) -> None:
    """Explain a shape and its layout in plain words, and draw it.

    For example: hloom layout 'bf16[8,1,1280,16384]{3,2,0,1:T(8,128)(2,1)S(1)}'
    """
    import shutil

    from hloom.shape.shape import Shape
    from hloom.tools.layout import draw_layout, explain_layout, terminal_drawing

    click.echo(explain_layout(shape))
    parsed = Shape.parse(shape)
    if out is not None:
        draw_layout(parsed, out)
        click.echo(f"\ndrawn in {out}")
    elif not no_drawing and parsed.is_array:
        columns = shutil.get_terminal_size((100, 24)).columns
        drawing = terminal_drawing(parsed, color=sys.stdout.isatty(), columns=columns)
        click.echo("\n" + drawing if drawing else "", nl=bool(drawing))


@main.command(short_help="The page of an operation.")
@click.argument("name", required=False)
@click.option("--format", "form", type=click.Choice(["text", "markdown"]), default="text", show_default=True)
def op(name: str | None, form: str) -> None:
    """The page of an operation: arguments, rules, an example evaluated live. Without NAME: all of them."""
    from hloom.tools.op_page import op_list, op_markdown, op_page

    if name is None:
        click.echo(op_list(styled), nl=False)
    else:
        click.echo(op_markdown(name) if form == "markdown" else op_page(name, styled), nl=False)


# -- diff, draw, stats


@main.command(short_help="The differences of two programs, by structure.")
@click.argument("left", type=FILE)
@click.argument("right", type=FILE)
@click.option("--context", default=2, show_default=True, help="Unchanged instructions around a change.")
def diff(left: str, right: str, context: int) -> None:
    """What is different between two programs, by structure: names alone are no difference.

    Exit status 0 if they are equal, 1 if they differ.
    """
    from hloom.tools.diff_text import diff_text

    text = diff_text(_load(left), _load(right), styled, context)
    if not text:
        click.echo("equal")
        return
    click.echo(text, nl=False)
    sys.exit(1)


@main.command(short_help="Draw a program as .svg, .html or .dot.")
@_file_argument
@click.option("--out", type=click.Path(dir_okay=False), default="graph.svg", show_default=True)
@click.option("--full", is_flag=True, help="Draw small constants and scalar computations too.")
def draw(file: str, out: str, full: bool) -> None:
    """Draw a program: .svg, .html (to move, scale and search in) or .dot for Graphviz."""
    from hloom.tools.graph_picture import save_picture

    nodes, boxes = save_picture(_load(file), Path(out), full=full)
    click.echo(f"{out}: {nodes} instructions in {boxes} computations")


@main.command(short_help="Count operations, arithmetic and bytes.")
@_file_argument
def stats(file: str) -> None:
    """Count operations, arithmetic and bytes."""
    from hloom.tools.statistics import statistics_of, statistics_text

    click.echo(statistics_text(statistics_of(_load(file)), styled), nl=False)


# -- aot


@main.command(short_help="Compile a program into an object file and a C header.")
@_file_argument
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="The object file. Default: NAME.o.")
@click.option(
    "--header", type=click.Path(dir_okay=False), help="The C header. Default: as --output, with .h."
)
@click.option("--name", default="", help="What its names in C begin with. Default: the program's name.")
@click.option("--target", "triple", help="Such as aarch64-linux-gnu. Default: this machine.")
@click.option("--cpu", default="", help="Such as x86-64-v3 or neoverse-v2. Default: any of the architecture.")
@click.option("--threads", default=1, show_default=True, help="How many compute at once.")
def aot(
    file: str, output: str | None, header: str | None, name: str, triple: str | None, cpu: str, threads: int
) -> None:
    """Compile a program ahead of time, to be linked into programs without Python.

    The header says what the function takes and gives. A program that needs Python while it runs (custom
    calls, collectives, infeed) cannot be compiled so. Without --target and --cpu the code is for exactly
    this machine.
    """
    from hloom.codegen.target import Target, host
    from hloom.tools.aot import compile_ahead

    target = Target.named(triple or host().triple, cpu) if triple or cpu else host()
    compiled = compile_ahead(_load(file), target, name=name, threads=threads)
    code = Path(output or f"{compiled.name}.o")
    declarations = Path(header) if header is not None else code.with_suffix(".h")
    compiled.save(code, declarations)
    click.echo(
        f"{code}: {len(compiled.code)} bytes for {target.triple}, {compiled.temp_bytes} bytes of memory"
    )
    click.echo(f"{declarations}: void {compiled.name}_run(...)")


if __name__ == "__main__":
    main()
