"""The report of a sharded program: collectives with their bytes and times, memory, replicated arrays.

Bytes are exact, those of the partitioned program. Times are estimates from latency and bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any, Final, cast

from hloom.analysis.origin import op_name, source_line
from hloom.errors import HloError
from hloom.ir.device_groups import IotaDeviceList, ReplicaGroups
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.traits import shape_bytes
from hloom.operations.collectives import Collective
from hloom.operations.exchanges import CollectivePermute, CollectivePermuteStart
from hloom.records import dataclass
from hloom.sharding.partitioning.partitioner import Partitioned, partitioned_program
from hloom.sharding.reading.meshes import axes_along, device_count, mesh_of, resized
from hloom.sharding.reporting.explanations import Conflict, Explainer, Why
from hloom.sharding.reporting.memory import MemoryUsage, memory_of
from hloom.sharding.reporting.replication import ReplicatedArray, replicated_arrays
from hloom.sharding.reporting.suggestions import (
    Costs,
    Suggestion,
    suggested_reduce_scatters,
    suggested_shardings,
)
from hloom.sharding.reporting.topologies import Link, links_of, memory_of_device
from hloom.sharding.reporting.traffic import Execution, executions

_LEAST: Final = 0.01
"""Fraction of the peak from which replicated arrays are listed."""


@dataclass(frozen=True, slots=True)
class Row:
    """A collective of the partitioned program, and its traffic in a step, which is one run of the program.

    Attributes:
        name, opcode: the instruction.
        op_name, source: the framework's operation and source line; "" if not recorded.
        axes: the mesh axes along which the devices of a group differ, joined by ``+``; "" without a mesh.
        members: the number of devices in a group.
        bytes: the bytes that a device sends in one execution.
        times: the number of executions in a step; a loop of unknown trip count counts as one iteration.
        seconds: the estimated time of all executions in a step.
        why: the reason for the collective.
    """

    name: str
    opcode: str
    op_name: str
    source: str
    axes: str
    members: int
    bytes: int
    times: int
    seconds: float
    why: Why

    @property
    def bytes_per_step(self) -> int:
        return self.bytes * self.times


@dataclass(frozen=True, slots=True)
class Report:
    """The communication and memory of each device in a step (one run) of a sharded program.

    Attributes:
        devices: the number of devices.
        mesh: the sizes of the mesh axes, by name.
        collectives: the collectives of the partitioned program, in descending order of bytes per step.
        memory: the memory that a device uses.
        capacity: the memory that a device has, in bytes; None if unknown.
        replicated: the replicated parameters of the entry as (name, bytes), the largest first.
        unknown_loops: the number of loops of unknown trip count.
        conflicts: the instructions whose operands have incompatible shardings.
        replicated_arrays: the replicated arrays of at least 1 % of the peak, the largest first.
        suggestions: changes of the program that reduce traffic or memory: other shardings, and
            reduce-scatters in place of all-reduces.
    """

    devices: int
    mesh: Mapping[str, int]
    collectives: tuple[Row, ...]
    memory: MemoryUsage
    capacity: int | None = None
    replicated: tuple[tuple[str, int], ...] = ()
    unknown_loops: int = 0
    conflicts: tuple[Conflict, ...] = ()
    replicated_arrays: tuple[ReplicatedArray, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()

    @property
    def bytes_per_step(self) -> int:
        """The bytes that a device sends in a step, in all collectives."""
        return sum(row.bytes_per_step for row in self.collectives)

    @property
    def seconds(self) -> float:
        """The estimated time of all collectives in a step, in seconds, if none of them overlap."""
        return sum(row.seconds for row in self.collectives)

    @property
    def argument_bytes(self) -> int:
        return self.memory.argument_bytes

    @property
    def result_bytes(self) -> int:
        return self.memory.result_bytes

    @property
    def peak_bytes(self) -> int:
        """The maximum of live bytes on a device during a step, arguments included."""
        return self.memory.peak_bytes

    @property
    def fits(self) -> bool | None:
        """True if the peak fits into the memory of a device; None if the size of that memory is unknown."""
        return None if self.capacity is None else self.memory.peak_bytes <= self.capacity

    def to_json(self) -> dict[str, Any]:
        """Return all fields and totals of the report as a dict of JSON data."""
        rows = [asdict(row) | {"bytes_per_step": row.bytes_per_step} for row in self.collectives]
        totals = ("bytes_per_step", "seconds", "argument_bytes", "result_bytes", "peak_bytes", "fits")
        return asdict(self) | {"collectives": rows} | {name: getattr(self, name) for name in totals}


def report(
    program: object,
    mesh: object = None,
    topology: str | Mapping[str, Link] = "tpu-v5p",
    memory: int | None = None,
    tries: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Partition a program, and report its collectives, their traffic, and the memory of each device.

    The report also states replicated arrays, conflicting shardings, and suggestions.

    Args:
        program: a module with shardings, or the result of ``jax.jit(f).lower(...)``.
        mesh: the sizes of axes by name, major first, or a JAX ``Mesh`` or ``AbstractMesh``. Axes of the
            program with these names get these sizes. None keeps the program's mesh.
        topology: a name of `TOPOLOGIES`, or a link for each axis. A collective over several axes is timed by
            the slowest link.
        memory: the bytes of a device's memory; None for those of the topology.
        tries: the number of shardings to try for suggestions, each of which takes as long as the report
            itself.
        progress: called with a description of each try.

    Raises HloError (rule ``report.program``, ``report.mesh`` or ``report.topology``) for invalid arguments,
    and HloError for programs that cannot be partitioned.
    """
    original = _module(program)
    axes = _axis_sizes(mesh)
    devices = device_count(original, axes)
    module = resized(original, axes)
    named = axes or mesh_of(module)
    links = links_of(topology, named)
    partitioned = partitioned_program(module, devices)
    explainer = Explainer(partitioned.module, named)
    executed, unknown_loops = executions(partitioned.module, devices)
    rows = [
        _row(execution, named, links, explainer.why(partitioned.causes.get(execution.sent.instruction)))
        for execution in executed
    ]
    usage = memory_of(partitioned, module)
    summary = Report(
        devices,
        named,
        tuple(sorted(rows, key=lambda row: -row.bytes_per_step)),
        usage,
        memory if memory is not None else memory_of_device(topology),
        tuple(_replicated(module, partitioned)),
        unknown_loops,
        tuple(explainer.conflicts(partitioned.decisions)),
        replicated_arrays(partitioned, devices, named, _LEAST * usage.peak_bytes),
        tuple(suggested_reduce_scatters(executed)),
    )
    if not tries:
        return summary
    needs = [(row.why, row.bytes_per_step) for row in summary.collectives]
    costs = Costs(summary.bytes_per_step, summary.peak_bytes)
    suggestions = suggested_shardings(
        module, devices, named, needs, costs, tries, summary.fits is False, progress
    )
    return replace(summary, suggestions=(*suggestions, *summary.suggestions))


def _axis_sizes(mesh: object) -> dict[str, int]:
    """Return the axis sizes, by name, of a mapping or a JAX mesh; an empty dict for None.

    Raises HloError (rule ``report.mesh``) for any other object.
    """
    sizes: object = getattr(mesh, "shape", mesh) if mesh is not None else {}
    if not isinstance(sizes, Mapping):
        message = f"expected sizes of axes or a mesh of JAX, got {type(mesh).__name__}"
        raise HloError(message, rule="report.mesh")
    return {str(axis): int(size) for axis, size in cast("Mapping[Any, Any]", sizes).items()}


def _module(program: Any) -> HloModule:
    """Return the HLO module of a module or a lowered JAX function.

    Raises HloError (rule ``report.program``) for any other object.
    """
    if isinstance(program, HloModule):
        return program
    if not hasattr(program, "compiler_ir"):
        message = f"expected an HloModule or a lowered function of JAX, got {type(program).__name__}"
        raise HloError(message, rule="report.program")
    return HloModule.from_proto(program.compiler_ir("hlo").as_serialized_hlo_module_proto())


def _row(execution: Execution, axes: Mapping[str, int], links: Mapping[str, Link], why: Why) -> Row:
    """Return the report's row for a collective: its traffic in a step, estimated time, and reason.

    ``axes`` are the sizes of the mesh axes; ``links`` has the network link along each axis, by name, and the
    slowest link, by the name "".
    """
    traffic, times = execution.sent, execution.times
    i, members, amount = traffic.instruction, traffic.members, traffic.bytes
    along = _axes(i, axes)
    used = [links[axis] for axis in along.split("+") if axis in links] or [links[""]]
    link = min(used, key=lambda link: link.bandwidth)
    seconds = times * (_steps(i, members) * link.latency + amount / link.bandwidth)
    return Row(i.name, i.opcode, op_name(i), source_line(i), along, members, amount, times, seconds, why)


def _steps(i: HloInstruction, members: int) -> int:
    """Return the number of messages that a device sends one after the other in a collective.

    ``members`` is the number of devices in a group. A permute takes 1 message, an all-to-all one to each
    other device, other collectives take log2(``members``), by recursive doubling. Source: Thakur,
    Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.
    """
    if isinstance(i.operation, (CollectivePermute, CollectivePermuteStart)):
        return 1
    if isinstance(i.operation, Collective) and i.operation.kind in ("all-to-all", "ragged-all-to-all"):
        return members - 1
    return (members - 1).bit_length()


def _axes(i: HloInstruction, axes: Mapping[str, int]) -> str:
    """Return the mesh axes along which the devices of a collective's group differ, joined by ``+``.

    ``axes`` are the sizes of the mesh axes. Returns "" if ``axes`` is empty, or if a collective-permute sends
    nothing to a different device.
    """
    operation = i.operation
    if isinstance(operation, (CollectivePermute, CollectivePermuteStart)):
        moving = [pair for pair in operation.source_target_pairs if pair[0] != pair[1]]
        return axes_along(moving[0], axes) if moving else ""
    return _axes_of_groups(cast("Collective", operation).replica_groups, tuple(axes.items()))


@lru_cache(maxsize=1024)
def _axes_of_groups(groups: ReplicaGroups, axes: tuple[tuple[str, int], ...]) -> str:
    first = groups.first if isinstance(groups, IotaDeviceList) else next(iter(groups.groups), (0,))
    return axes_along(first, dict(axes))


def _replicated(module: HloModule, partitioned: Partitioned) -> Iterator[tuple[str, int]]:
    """Yield (name, bytes) of each replicated array among the entry's parameters, the largest first.

    Scalars are left out. An element of a tuple has a name such as ``p{1}``.
    """
    tilings = iter(partitioned.parameters)
    parameters: list[tuple[str, int]] = []
    for parameter in module.entry.parameters:
        for index, leaf in parameter.shape.leaves():
            if next(tilings).is_replicated and leaf.is_array and leaf.rank:
                name = parameter.name + "".join(f"{{{n}}}" for n in index)
                parameters.append((name, shape_bytes(leaf)))
    yield from sorted(parameters, key=lambda pair: -pair[1])
