"""`hloom partition` and `hloom shard`: programs with shardings, for many devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hloom.tools.terminal import FILE, styled, table

if TYPE_CHECKING:
    from hloom.sharding.reporting import Link, Report

_MESH_HELP = "Sizes of axes, major first, such as x=4,y=2. Default: the program's mesh, or its header."


@click.command(short_help="Print the program of one device of a sharded program.")
@click.argument("file", type=FILE)
@click.option("--mesh", default="", metavar="AXES", help=_MESH_HELP)
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write the program to a file.")
def partition(file: str, mesh: str, output: str | None) -> None:
    """Partition a program with shardings, and print the program that each device runs on its tiles.

    \b
    Examples:
      hloom partition step.hlo
      hloom partition step.hlo --mesh data=4,model=2
    """
    from hloom.files import load, save
    from hloom.sharding.meshes import device_count, parse_mesh, resized
    from hloom.sharding.partitioner import partition as partitioned

    click.get_current_context().find_root().obj = file
    module = load(file)
    axes = parse_mesh(mesh) if mesh else {}
    found = partitioned(resized(module, axes), device_count(module, axes)).module
    if output is not None:
        save(found, Path(output))
    else:
        click.echo(found.to_text(), nl=False)


@click.command(short_help="Collectives, bytes and memory of a sharded program.")
@click.argument("file", type=FILE)
@click.option("--mesh", default="", metavar="AXES", help=_MESH_HELP)
@click.option("--topology", default="tpu-v5p", show_default=True, metavar="NAME",
              help="tpu-v5p, nvlink-h100, ethernet, or a JSON file.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def shard(file: str, mesh: str, topology: str, as_json: bool) -> None:
    """Report what a sharded program costs, without running it.

    Every collective of the partitioned program with the framework's operation and source line that it comes
    from, the axis, the bytes that a device sends, an estimate of its time, and the memory of a device. Bytes
    are exact, times are estimates. Loops count with their trip counts. A file as --topology states the link
    of each axis: {"data": {"latency": SECONDS, "bandwidth": BYTES_PER_SECOND}}.

    \b
    Examples:
      hloom shard step.hlo
      hloom shard step.hlo --mesh data=64,model=8 --topology nvlink-h100
    """
    from hloom.files import load
    from hloom.sharding.meshes import parse_mesh
    from hloom.sharding.reporting import report

    click.get_current_context().find_root().obj = file
    found = report(load(file), parse_mesh(mesh) if mesh else None, _topology(topology))
    click.echo(json.dumps(found.to_json(), indent=2) if as_json else _text(found))


def _topology(name: str) -> str | dict[str, Link]:
    """Return a name, or the links of a file; raises HloError by the rule ``report.topology-file``."""
    from hloom.errors import HloError
    from hloom.sharding.reporting import Link

    if not Path(name).is_file():
        return name
    try:
        data: dict[str, dict[str, Any]] = json.loads(Path(name).read_text())
        return {a: Link(float(link["latency"]), float(link["bandwidth"])) for a, link in data.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{name} is no JSON object of axes with latency and bandwidth: {error}"
        raise HloError(message, rule="report.topology-file") from None


def _text(found: Report) -> str:
    """Return the report as text."""
    mesh = ", ".join(f"{axis}={size}" for axis, size in found.mesh.items())
    lines = [styled(f"{found.devices} devices" + (f" ({mesh})" if mesh else ""), "title")]
    if found.collectives:
        rows = [("collective", "axis", "of", "bytes", "times", "per step", "estimate", "from")]
        rows += [
            (
                f"{row.opcode} %{row.name}",
                row.axes or "-",
                str(row.members),
                _bytes(row.bytes),
                str(row.times),
                _bytes(row.bytes_per_step),
                f"{row.seconds * 1e6:.1f} us",
                ", ".join(part for part in (row.op_name, row.source) if part),
            )
            for row in found.collectives
        ]
        lines.append(table(rows, ("name", "", "", "", "", "value")))
    total = f"{_bytes(found.bytes_per_step)} sent by each device in a step"
    lines.append(f"{total}, about {found.seconds * 1e6:.1f} us (estimate)")
    if found.unknown_loops:
        lines.append(f"{found.unknown_loops} loops of unknown length count as one iteration")
    memory = f"{_bytes(found.argument_bytes)} arguments, {_bytes(found.result_bytes)} results"
    lines.append(f"memory of a device: {memory}, {_bytes(found.peak_bytes)} at the peak")
    if found.replicated:
        shown = [f"%{name} {_bytes(size)}" for name, size in found.replicated[:8]]
        more = f" and {len(found.replicated) - 8} more" if len(found.replicated) > 8 else ""
        lines.append(f"whole on every device: {', '.join(shown)}{more}")
    return "\n".join(lines)


def _bytes(count: int) -> str:
    """Return a number of bytes in the unit that suits it."""
    value, unit = float(count), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.4g} {unit}"
