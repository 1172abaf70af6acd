"""The command line ``hloom``: the group of all commands, and the declarations of those without a file.

Commands import their modules when they run, so that `hloom --help` is fast.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from hloom.errors import plural
from hloom.tools.commands.bisect import bisect
from hloom.tools.commands.check import check
from hloom.tools.commands.draw import draw
from hloom.tools.commands.fuzz import fuzz
from hloom.tools.commands.lsp import lsp
from hloom.tools.commands.opt import opt
from hloom.tools.commands.prove import prove
from hloom.tools.commands.reduce import reduce
from hloom.tools.commands.shard import partition, shard
from hloom.tools.commands.stats import stats
from hloom.tools.commands.trace import trace
from hloom.tools.commands.view import view
from hloom.tools.console.completion import BACKEND, OPCODE, completion
from hloom.tools.console.options import XLA_VERSION
from hloom.tools.console.program_argument import (
    FILE_OR_FOLDER,
    load_program,
    program_argument,
    program_file,
    program_option,
)
from hloom.tools.console.terminal import described, echo, progress, styled
from hloom.visible import visible_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hloom.ir.xla_version import XlaVersion


_MOST_LINES: Final = 30
"""Limit of the number of files for which `hloom verify` lists the valid ones."""


class Commands(click.Group):
    """A group of commands that reports errors of programs and files by a message and exit status 1."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> Any:
        """Run a command; if `hloom run` fails in an MPI process, abort the other processes."""
        words = sys.argv[1:] if args is None else args
        try:
            return super().main(args, *more, **options)
        except SystemExit as end:
            if end.code and words[:1] == ["run"]:
                _abort_mpi()
            raise

    def invoke(self, ctx: click.Context) -> Any:
        from hloom.errors import HloError
        from hloom.tools.console.compile_progress import compile_progress

        progress.start()
        try:
            with compile_progress(progress):
                return super().invoke(ctx)
        except HloError as error:
            _fail(described(error, ctx.obj if isinstance(ctx.obj, str) else ""))
        except BrokenPipeError:
            raise  # click exits silently if the reader has closed the pipe
        except OSError as error:
            _fail(f"{error.filename or 'output'}: {error.strerror or error}")
        except MemoryError as error:
            _fail(f"not enough memory{f': {error}' if str(error) else ''}")


def _abort_mpi() -> None:
    from hloom.runtime import mpi

    if mpi.launched():
        mpi.end_with_others()


def _fail(message: str) -> NoReturn:
    _complain(message)
    sys.exit(1)


def _complain(message: str) -> None:
    echo(click.style("error: ", fg="red", bold=True) + message, err=True)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="hloom", prog_name="hloom")
def main() -> None:
    """Read, check, print, run and draw HLO programs.

    FILE is HLO text, a proto (HloModuleProto, HloProto, HloSnapshot; binary, text or JSON), or a program of
    StableHLO (MLIR text, bytecode, or from jax.export; read through jaxlib), each also compressed with gzip.
    The form is recognized by its content. FILE - is the standard input. FILE may also be a folder of
    programs, such as --xla_dump_to wrote; --program REGEX chooses one of them by name.

    Completion in the shell: hloom completion --help tells how to switch it on.

    \b
    Environment:
      HLOOM_NUM_THREADS   number of compute threads; default: the cores that the process may use
      HLOOM_CACHE_DIR     directory of compiled code; HLOOM_CACHE=0 disables the cache
      HLOOM_CACHE_LIMIT   size limit of the cache in MiB; default: 512
      HLOOM_PACKED_LIMIT  limit of packed weights under JAX in MiB; default: a quarter of memory
      HLOOM_REPRODUCIBLE  1: results have the same bits on all processors with FMA
      XLA_FLAGS           --xla_dump_to=DIR writes XLA's dump files of every compilation
    """


# -- run


@main.command(short_help="Run a program.")
@program_argument
@click.option(
    "--input",
    "inputs",
    multiple=True,
    type=click.Path(exists=True),
    help="A .npy file, an .npz file of arrays in the order of the parameters (names do not count), or a "
    "directory of --output-tiles; may be repeated.",
)
@click.option(
    "--random", "seed", type=click.IntRange(0), metavar="SEED", help="Draw random arguments from this seed."
)
@click.option(
    "--backend", type=BACKEND, default="cpu", show_default=True, help="The backend: cpu or evaluator."
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the results to this directory as .npy files.",
)
@click.option(
    "--output-tiles",
    type=click.Path(file_okay=False, path_type=Path),
    help="With --partition: write the results to this directory as Zarr arrays, a file for each tile.",
)
@click.option(
    "--partition", is_flag=True, help="Cut arrays as the program's shardings say, over the partitions."
)
@click.option("--mesh", default="", metavar="AXES", help="Sizes of axes, such as x=4,y=2; means --partition.")
@click.option("--num-replicas", type=click.IntRange(1), help="Default: as stated in the program, else 1.")
@click.option("--num-partitions", type=click.IntRange(1), help="Default: as stated in the program, else 1.")
@click.option("--quiet", is_flag=True, help="Do not print the results.")
@click.option("--all", "every", is_flag=True, help="Print every array of the results in full.")
@click.option("--profile", is_flag=True, help="Run again, and print the time of each instruction.")
def run(file: str, **options: Any) -> None:
    """Run a program.

    Arguments come from --input, from --random, or from a snapshot, whose stored result is then compared. With
    --input all devices get the same arguments; with --random each device gets different ones. --profile shows
    of each collective how long devices waited in it.

    With --partition the arguments and results are whole, and each device computes on its tiles of them; so
    are those of a program that computes on tiles only in between (shard_map before XLA's partitioner). What
    --output-tiles has written is read by --input with any number of devices.

    mpirun -n 4 hloom run FILE divides the devices among processes, which may be on several machines; it needs
    mpi4py: pip install 'hloom[mpi]'.
    """
    from hloom.tools.commands import run as run_command

    run_command.run(file, **options)


# -- verify and print


@main.command(short_help="Check programs against every rule.")
@click.argument("files", type=FILE_OR_FOLDER, nargs=-1, required=True)
def verify(files: tuple[str, ...]) -> None:
    """Check the structure of programs and every operation's rules.

    Of a folder every program is checked, in all its stages. Files are listed if there are at most 30, invalid
    ones always. Exit status: 1 if a program is invalid.
    """
    from hloom.errors import HloError
    from hloom.files import load_all

    paths = [path for file in files for path in _program_files(file)]
    invalid = 0
    for number, path in enumerate(paths, 1):
        progress(f"{number} of {len(paths)}: {path}")
        try:
            for module in load_all(path):
                module.verify()
                count = sum(len(computation) for computation in module.computations)
                name, callees = visible_line(module.name), len(module.computations)
                words = f"{name}, {plural(count, 'instruction')} in {plural(callees, 'computation')}"
                if len(paths) <= _MOST_LINES:
                    progress.done()
                    echo(click.style("ok  ", fg="green") + f"{path}: {words}")
        except HloError as error:
            progress.done()
            _complain(described(error, path))
            invalid += 1
    progress.done()
    if len(paths) > 1:
        echo(f"{len(paths) - invalid} of {len(paths)} files are valid")
    sys.exit(bool(invalid))


def _program_files(path: str) -> list[str]:
    """Return the files of all stages of all programs of a folder, or the path itself if it is a file."""
    from hloom.dumps import dumped_programs

    if not Path(path).is_dir():
        return [path]
    return [str(stage.path) for program in dumped_programs(path) for stage in program.stages]


@main.command("print", short_help="Print a program as XLA does, as a proto or as StableHLO.")
@program_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "short", "canonical", "fingerprint", "proto", "pbtxt", "json", "stablehlo"]),
    default="text",
    show_default=True,
)
@click.option("--large-constants", is_flag=True, help="Print constants of more than 10 elements in full.")
@click.option("--no-metadata", is_flag=True, help="Omit metadata={...}.")
@click.option("--no-backend-config", is_flag=True, help="Omit backend_config=...")
@click.option("--no-layouts", is_flag=True, help="Omit the layouts of shapes.")
@click.option("--no-percent", is_flag=True, help="Print names without a leading %.")
@click.option("--operand-shapes", is_flag=True, help="Print the shape of each operand.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write to a file.")
@XLA_VERSION
def print_(file: str, form: str, output: str | None, xla_version: XlaVersion, **switches: bool) -> None:
    """Print a program as XLA does, as a proto (also in text or JSON), or as StableHLO (through jaxlib)."""
    from hloom.files import load_all
    from hloom.tools.commands.print import all_printed

    data = all_printed(load_all(file), form, xla_version, switches)
    if output is not None:
        Path(output).write_bytes(data)
    elif form == "proto" and sys.stdout.isatty():
        _fail("protos are binary; write one to a file with --output")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


# -- layout and op


@main.command(short_help="Explain and draw the layout of a shape.")
@click.argument("shape")
@click.option(
    "-o", "--out", type=click.Path(dir_okay=False), help="Write the drawing to this .svg or .png file."
)
@click.option("--at", "where", default="", metavar="INDICES", help="The slice to draw: z=1 or z=1,p=0.")
@click.option("--no-drawing", is_flag=True, help="Print the explanation only.")
def layout(shape: str, out: str | None, where: str, no_drawing: bool) -> None:
    """Explain every component of a shape and its layout, and draw the layout.

    Two dimensions are drawn for the first indices of the others, or for those that --at chooses.

    For example: hloom layout 'bf16[8,1,1280,16384]{3,2,0,1:T(8,128)(2,1)S(1)}'
    """
    import shutil

    from hloom.shape.shape import Shape
    from hloom.tools.reports.layout import draw_layout, explain_layout, slice_at, terminal_drawing

    echo(explain_layout(shape))
    parsed = Shape.parse(shape)
    if out is not None:
        draw_layout(parsed, out, slice_at(parsed, where))
        echo(f"\ndrawn in {out}")
    elif not no_drawing and parsed.is_array:
        columns = shutil.get_terminal_size((100, 24)).columns
        at = slice_at(parsed, where)
        drawing = terminal_drawing(parsed, color=sys.stdout.isatty(), columns=columns, at=at)
        echo("\n" + drawing if drawing else "", nl=bool(drawing))


@main.command(short_help="Print the page of an operation.")
@click.argument("name", type=OPCODE, required=False)
@click.option("--format", "form", type=click.Choice(["text", "markdown"]), default="text", show_default=True)
def op(name: str | None, form: str) -> None:
    """Print the page of an operation: arguments, rules, an evaluated example. Without NAME, list all.

    NAME is an opcode or a function of XLA's builder: subtract, Sub, dot, DotGeneral.
    """
    from hloom.tools.pages.op_page import op_list, op_markdown, op_page

    if name is None:
        echo(op_list(styled), nl=False)
    else:
        echo(op_markdown(name) if form == "markdown" else op_page(name, styled), nl=False)


# -- diff


@main.command(short_help="Compare two programs by structure.")
@click.argument("left", type=FILE_OR_FOLDER)
@click.argument("right", type=FILE_OR_FOLDER)
@program_option
@click.option(
    "--context", default=2, show_default=True, help="Number of unchanged instructions shown around a change."
)
def diff(left: str, right: str, program: str, context: int) -> None:
    """Compare two programs by structure; differences of names alone do not count.

    Exit status: 0 if they are equal, 1 if they differ.
    """
    from hloom.tools.reports.diff_text import diff_text

    before, after = (load_program(program_file(file, program)) for file in (left, right))
    text = diff_text(before, after, styled, context)
    if not text:
        echo("equal")
        return
    echo(text, nl=False)
    sys.exit(1)


# -- aot


@main.command(short_help="Compile a program into an object file and a C header.")
@program_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="The object file; .o is added to a name without a suffix. Default: NAME.o.",
)
@click.option(
    "--header", type=click.Path(dir_okay=False), help="The C header. Default: as --output, with .h."
)
@click.option("--name", default="", help="Prefix of its names in C. Default: the program's name.")
@click.option("--target", "triple", help="Target triple, such as aarch64-linux-gnu. Default: this machine.")
@click.option(
    "--cpu", default="", help="LLVM processor name, such as x86-64-v3. Default: the architecture's baseline."
)
@click.option("--threads", default=1, show_default=True, help="Number of compute threads.")
@click.option("--reproducible", is_flag=True, help="Results have the same bits on all processors with FMA.")
def aot(
    file: str,
    output: str | None,
    header: str | None,
    name: str,
    triple: str | None,
    cpu: str,
    threads: int,
    reproducible: bool,
) -> None:
    """Compile a program ahead of time, to be linked into programs without Python.

    The header declares the function and describes its arguments and results. Programs that need Python at run
    time (Python custom calls, collectives, infeed) are refused. Without --target and --cpu the code is for
    the processor of this machine.
    """
    from hloom.codegen.target import Target, host, reproducible_target
    from hloom.tools.commands.aot import compile_ahead

    target = Target.named(triple or host().triple, cpu) if triple or cpu else host()
    target = reproducible_target(target) if reproducible else target
    compiled = compile_ahead(load_program(file), target, name=name, threads=threads)
    code = Path(output or compiled.name)
    code = code if code.suffix else code.with_suffix(".o")
    declarations = Path(header) if header is not None else code.with_suffix(".h")
    compiled.save(code, declarations)
    echo(
        f"{code}: {plural(len(compiled.code), 'byte')} for {target.triple}, "
        f"{plural(compiled.temp_bytes, 'byte')} of temporaries"
    )
    echo(f"{declarations}: void {compiled.name}_run(...)")


main.add_command(check)
main.add_command(completion)
main.add_command(lsp)
main.add_command(draw)
main.add_command(fuzz)
main.add_command(opt)
main.add_command(prove)
main.add_command(reduce)
main.add_command(bisect)
main.add_command(partition)
main.add_command(shard)
main.add_command(stats)
main.add_command(trace)
main.add_command(view)


if __name__ == "__main__":
    main()
