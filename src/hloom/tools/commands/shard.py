"""`hloom partition` and `hloom shard`: partition a program with shardings, and report its costs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click

from hloom.tools.console.options import XLA_VERSION
from hloom.tools.console.program_argument import load_program, program_argument
from hloom.tools.console.terminal import echo, progress

if TYPE_CHECKING:
    from hloom.ir.xla_version import XlaVersion
    from hloom.sharding.reporting.topologies import Link

DOES_NOT_FIT: Final = 3
"""Exit status if the program needs more memory than a device has."""
_MESH: Final = click.option(
    "--mesh",
    default="",
    metavar="AXES",
    help="Sizes of axes, major first, such as x=4,y=2. Default: the program's mesh, or its header.",
)


@click.command(short_help="Print the program of one device of a sharded program.")
@program_argument
@_MESH
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write the program to a file.")
@XLA_VERSION
def partition(file: str, mesh: str, output: str | None, xla_version: XlaVersion) -> None:
    """Partition a program with shardings, and print the program that each device runs on its tiles.

    \b
    Examples:
      hloom partition step.hlo
      hloom partition step.hlo --mesh data=4,model=2
    """
    from hloom.files import save
    from hloom.ir.print_options import PrintOptions
    from hloom.sharding.partitioning.partitioner import partitioned_program
    from hloom.sharding.reading.meshes import device_count, parse_mesh, resized

    module = load_program(file)
    axes = parse_mesh(mesh) if mesh else {}
    program = partitioned_program(resized(module, axes), device_count(module, axes)).module
    if output is not None:
        save(program, Path(output))
    else:
        echo(program.to_text(PrintOptions.dump(xla_version)), nl=False)


@click.command(short_help="Collectives, bytes and memory of a sharded program.")
@program_argument
@_MESH
@click.option(
    "--topology",
    default="tpu-v5p",
    show_default=True,
    metavar="NAME",
    help="tpu-v5p, tpu-v5e, nvlink-a100, nvlink-h100, nvlink-h200, ethernet, or a JSON file.",
)
@click.option(
    "--memory",
    default="",
    metavar="BYTES",
    help="Memory of a device, such as 16GiB. Default: that of the topology.",
)
@click.option("--suggest", is_flag=True, help="Try other shardings; each takes as long as the report itself.")
@click.option(
    "--tries", default=24, show_default=True, type=click.IntRange(1), help="Number of shardings to try."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--all", "everything", is_flag=True, help="Print long lists to the end.")
def shard(
    file: str,
    mesh: str,
    topology: str,
    memory: str,
    suggest: bool,
    tries: int,
    as_json: bool,
    everything: bool,
) -> None:
    """Report what a sharded program costs, without running it.

    Every collective of the partitioned program with the framework's operation and source line that it comes
    from, the axis, the bytes that a device sends, an estimate of its time, why it is needed, and the memory
    of a device. Bytes are exact, times are estimates. Loops count with their trip counts. A file as
    --topology states the link of each axis: {"data": {"latency": SECONDS, "bandwidth": BYTES_PER_SECOND}}.

    The memory of a device is that of values over the schedule; what lives at the peak is listed. Exit status:
    3 if that is more than a device has (--memory, or the topology's). --suggest partitions the program again
    with other annotations, and prints those that cost less.

    \b
    Examples:
      hloom shard step.hlo
      hloom shard step.hlo --mesh data=64,model=8 --topology nvlink-h100
      hloom shard step.hlo --memory 16GiB || echo too large
      hloom shard step.hlo --suggest
    """
    from hloom.sharding.reading.meshes import parse_mesh
    from hloom.sharding.reporting.report import report
    from hloom.sharding.reporting.topologies import parse_memory
    from hloom.tools.reports.shard_text import report_text

    capacity = parse_memory(memory) if memory else None
    summary = report(
        load_program(file),
        parse_mesh(mesh) if mesh else None,
        _topology(topology),
        capacity,
        tries * suggest,
        progress,
    )
    progress.done()
    echo(json.dumps(summary.to_json(), indent=2) if as_json else report_text(summary, everything))
    if summary.fits is False:
        sys.exit(DOES_NOT_FIT)


def _topology(name: str) -> str | dict[str, Link]:
    """Return the links of axes that a JSON file states, or the name itself if it is not a file.

    Raises HloError with the rule ``report.topology-file`` for other contents.
    """
    from hloom.errors import HloError
    from hloom.sharding.reporting.topologies import Link

    if not Path(name).is_file():
        return name
    try:
        data: object = json.loads(Path(name).read_text())
    except ValueError as error:
        raise HloError(f"{name} is not JSON: {error}", rule="report.topology-file") from None
    links: dict[str, Link] = {}
    for axis, link in cast("dict[str, object]", data).items() if isinstance(data, dict) else [("", data)]:
        match link:
            case {"latency": int() | float() as latency, "bandwidth": int() | float() as bandwidth}:
                links[axis] = Link(float(latency), float(bandwidth))
            case _:
                form = '{"AXIS": {"latency": SECONDS, "bandwidth": BYTES_PER_SECOND}}'
                message = f"{name} states {json.dumps(link)} for the axis {axis!r}; wanted is {form}"
                raise HloError(message, rule="report.topology-file")
    return links
