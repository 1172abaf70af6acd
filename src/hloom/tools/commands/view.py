"""`hloom view`: write an HTML page that shows programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click

from hloom.errors import plural
from hloom.tools.console.program_argument import FILE_OR_FOLDER
from hloom.tools.console.terminal import FILE, described, echo, progress

if TYPE_CHECKING:
    from hloom.errors import HloError
    from hloom.ir.module import HloModule
    from hloom.ir.value import Value
    from hloom.sharding.partitioning.partitioner import Partitioned
    from hloom.tools.viewer.program import Stage

_MOST_COMPILED: Final = 5_000
"""Limit of instructions for compiling a program without --compile."""

_MOST_DEVICES: Final = 256
"""Limit of virtual devices, each of which is a thread, for running a program."""
_TRIES: Final = 24
"""Number of shardings that --suggest tries."""


@click.command(short_help="Show programs in one HTML page.")
@click.argument("files", type=FILE_OR_FOLDER, nargs=-1, required=True)
@click.option("-o", "--output", default="page.html", show_default=True, type=click.Path(dir_okay=False))
@click.option(
    "--compile/--no-compile",
    "compiled",
    default=None,
    help="Show the passes, memory and code of the cpu backend. Default: for a single program of up "
    f"to {_MOST_COMPILED} instructions.",
)
@click.option(
    "--random",
    "seed",
    type=click.IntRange(0),
    metavar="SEED",
    help="Run on random arguments, and show the time of each instruction.",
)
@click.option("--input", "inputs", multiple=True, type=FILE, help="Run on the arrays of a .npy or .npz file.")
@click.option(
    "--mesh",
    default="",
    metavar="AXES",
    help="Sizes of axes for the tab of sharding, such as x=4,y=2. Default: its own.",
)
@click.option("--suggest", is_flag=True, help="Try other shardings, and show those that cost less.")
@click.option("--prove", is_flag=True, help="Judge each stage against the one before it; see hloom prove.")
@click.option(
    "--program",
    "--module",
    "matching",
    default="",
    metavar="REGEX",
    help="Only programs of a folder with such names. Default: all, the largest first.",
)
def view(
    files: tuple[str, ...],
    output: str,
    compiled: bool | None,
    seed: int | None,
    inputs: tuple[str, ...],
    mesh: str,
    suggest: bool,
    prove: bool,
    matching: str,
) -> None:
    """Write a page that shows programs: their graph, costs, text, passes, memory, time,
    sharding and proofs.

    FILE may also be a folder that --xla_dump_to wrote: its programs are shown pass by pass, and a menu
    switches between them. Several files are shown with what changes from one to the next. The page is one
    file that needs no server and no network: open it in a browser, and press ? for the keys.

    \b
    Examples:
      hloom view model.hlo
      hloom view model.hlo --random 0
      hloom view step.hlo --mesh data=64,model=8
      hloom view dump_folder --program train_step
      hloom view before.hlo after.hlo -o changes.html
      hloom view before.hlo after.hlo --prove
    """
    from hloom.tools.viewer.page import html_page, page_parts

    stages, modules = _stages(files, matching)
    single = modules[0] if len(stages) == len(modules) == 1 else None
    run = seed is not None or bool(inputs)
    if single is None and (compiled or run):
        raise click.UsageError("one program is compiled and run, not several")
    sharding: dict[str, object] = {}
    tabs: dict[str, object] = {}
    parts: Partitioned | None = None
    if single is not None:
        parts, sharding = _sharding(single, stages, mesh, suggest)
    if single is not None and compiled is not False:
        tabs = _compiled(single if parts is None else parts.module, stages, must=bool(compiled) or run)
    if single is not None and run:
        tabs |= _timed(single, parts, seed, inputs)
    tabs |= sharding
    if prove:
        tabs |= _proved(stages)
    progress.done()
    Path(output).write_text(html_page(page_parts(stages, tabs)), encoding="utf-8")
    shown = ["graph", "text", *(["passes"] if len(stages) > 1 else []), *tabs]
    echo(f"{output}: {stages[0].data['name']}, {', '.join(shown)}")


def _stages(files: tuple[str, ...], matching: str) -> tuple[list[Stage], list[HloModule]]:
    """Return the stages of all files and folders, and the modules of the files."""
    from hloom.dumps import dumped_programs
    from hloom.files import load_all
    from hloom.tools.viewer.dump_folder import folder_stages
    from hloom.tools.viewer.program import stage_of

    stages: list[Stage] = []
    modules: list[HloModule] = []
    for file in files:
        click.get_current_context().find_root().obj = file
        if Path(file).is_dir():
            stages += folder_stages(dumped_programs(file, matching), progress, _note_unread)
            continue
        loaded = load_all(file)
        modules += loaded
        title = Path(file).stem if len(files) > 1 else ""
        stages += [stage_of(module, title or module.name) for module in loaded]
    return stages, modules


def _note_unread(path: Path, error: HloError) -> None:
    progress.done()
    echo(f"left out: {described(error, str(path))}", err=True)


def _compiled(module: HloModule, stages: list[Stage], must: bool) -> dict[str, object]:
    """Add a stage for each pass, and return the data of the tabs; without `must`, tolerate HloError."""
    from hloom.errors import HloError
    from hloom.tools.viewer.compiled import compiled_parts

    count = len(stages[0].data["names"])
    if count > _MOST_COMPILED and not must:
        echo(
            f"not compiled: {plural(count, 'instruction')}; --compile adds passes, memory and code", err=True
        )
        return {}
    try:
        passes, parts = compiled_parts(module, progress)
    except HloError as error:
        if must:
            raise
        echo(f"not compiled: {error}", err=True)
        return {}
    stages += passes
    return parts


def _sharding(
    module: HloModule, stages: list[Stage], mesh: str, suggest: bool
) -> tuple[Partitioned | None, dict[str, object]]:
    """Partition a program, add the result as a stage, and return it with the data of its report.

    Return None and no data if the program has no shardings, or if the partitioner refuses it.
    """
    from hloom.errors import HloError
    from hloom.sharding.reading.meshes import parse_mesh
    from hloom.tools.viewer.program import stage_of
    from hloom.tools.viewer.sharding import is_sharded, partitioned, sharding_part

    axes = parse_mesh(mesh) if mesh else {}
    if not is_sharded(module, axes):
        return None, {}
    try:
        parts = partitioned(module, axes)
        stages.append(stage_of(parts.module, "after spmd-partitioner"))
        return parts, sharding_part(module, axes, _TRIES if suggest else 0, progress)
    except HloError as error:
        if mesh or suggest:
            raise
        echo(f"no report of the sharding: {error}", err=True)
        return None, {}


def _proved(stages: list[Stage]) -> dict[str, object]:
    from hloom.proofs.refutation import SAMPLES
    from hloom.tools.viewer.proof import proof_part

    if len({stage.program for stage in stages}) == len(stages):
        raise click.UsageError(
            "a proof compares the stages of a program: state two files, or a folder of dumps"
        )
    return proof_part(stages, samples=SAMPLES, progress=progress)


def _timed(
    module: HloModule, parts: Partitioned | None, seed: int | None, inputs: tuple[str, ...]
) -> dict[str, object]:
    """Run a program, or the partitioned one on tiles of its arguments; return the data of the time tab."""
    from hloom.debug.inputs import random_arguments
    from hloom.sharding.storing.tiles import cut
    from hloom.tools.console.arguments import read_arguments, shaped
    from hloom.tools.viewer.compiled import time_part

    config = module.config if parts is None else parts.module.config
    devices = range(config.replica_count * config.num_partitions)
    if len(devices) > _MOST_DEVICES:
        raise click.UsageError(
            f"{plural(len(devices), 'device')}: programs run on at most {_MOST_DEVICES} here"
        )
    arguments = shaped(read_arguments(inputs), module) if inputs else None
    if parts is not None:
        global_arguments = arguments or random_arguments(module, seed or 0)
        tiles = [cut(tuple(global_arguments), parts.parameters, n) for n in devices]
        return time_part(parts.module, cast("list[tuple[Value, ...]]", tiles))
    return time_part(module, [arguments or random_arguments(module, (seed or 0) + n) for n in devices])
