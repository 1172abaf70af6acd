"""The report of a sharded program: its collectives, their bytes and estimated time, memory, replication.

Bytes are exact: they are those of the partitioned program. Times are estimates from latency and bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Final, cast

from hloom.analysis.cost import known_trip_count
from hloom.analysis.origin import op_name, source_line
from hloom.errors import HloError
from hloom.ir.computation import HloComputation
from hloom.ir.device_groups import IotaDeviceList, ReplicaGroups
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.traits import shape_bytes
from hloom.operations.collectives import Collective
from hloom.operations.control_flow import While
from hloom.operations.exchanges import CollectivePermute, CollectivePermuteStart
from hloom.passes.loops.while_loop_trip_count_annotator import WhileLoopTripCountAnnotator
from hloom.sharding.decisions import Cause
from hloom.sharding.explaining import Conflict, Explainer, Why
from hloom.sharding.meshes import axes_along, device_count, mesh_of, resized
from hloom.sharding.partitioner import Partitioned, partition
from hloom.sharding.traffic import sent


@dataclass(frozen=True, slots=True)
class Link:
    """The connection of devices along an axis.

    Attributes:
        latency: seconds for one message.
        bandwidth: bytes per second that a device sends.
    """

    latency: float
    bandwidth: float


TOPOLOGIES: Final[dict[str, Link]] = {
    "tpu-v5p": Link(1e-6, 100e9),
    "nvlink-h100": Link(2e-6, 450e9),
    "ethernet": Link(20e-6, 12.5e9),
}
"""Links by name: one ICI link in one direction, NVLink 4, 100 Gbit/s Ethernet; vendors' figures."""


@dataclass(frozen=True, slots=True)
class Row:
    """A collective.

    Attributes:
        name, opcode: of the instruction in the partitioned program.
        op_name, source: the framework's operation and source line that it comes from; "" if not recorded.
        axes: the axes of the mesh in which the devices of a group differ; "" without a mesh.
        members: the number of devices of a group.
        bytes: what a device sends in one execution.
        times: the number of executions in a step; of loops whose trip count is unknown, one iteration.
        seconds: the estimated time in a step.
        why: what needs it.
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
        """Return what a device sends in a step."""
        return self.bytes * self.times


@dataclass(frozen=True, slots=True)
class Report:
    """Communication and memory of a sharded program.

    Attributes:
        devices: the number of devices.
        mesh: the axes and their sizes.
        collectives: those that send most in front.
        argument_bytes, result_bytes, peak_bytes: memory of a device; the peak counts the arguments too.
        replicated: parameters that every device has whole, with their bytes, the largest first.
        unknown_loops: the number of loops whose trip count is unknown.
        conflicts: cuts that excluded each other, and which were kept.
    """

    devices: int
    mesh: Mapping[str, int]
    collectives: tuple[Row, ...]
    argument_bytes: int
    result_bytes: int
    peak_bytes: int
    replicated: tuple[tuple[str, int], ...] = ()
    unknown_loops: int = 0
    conflicts: tuple[Conflict, ...] = ()

    @property
    def bytes_per_step(self) -> int:
        """Return what a device sends in a step."""
        return sum(row.bytes_per_step for row in self.collectives)

    @property
    def seconds(self) -> float:
        """Return the estimated time of the collectives in a step, one after the other."""
        return sum(row.seconds for row in self.collectives)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        rows = [asdict(row) | {"bytes_per_step": row.bytes_per_step} for row in self.collectives]
        return asdict(self) | {"collectives": rows, "bytes_per_step": self.bytes_per_step}


def report(
    program: Any, mesh: Mapping[str, int] | None = None, topology: str | Mapping[str, Link] = "tpu-v5p"
) -> Report:
    """Return the report of a program with shardings.

    Args:
        program: a module, or what ``jax.jit(f).lower(...)`` returns.
        mesh: sizes of axes, major first; those that the program names get these sizes. By default its own.
        topology: a name of `TOPOLOGIES`, or a link for each axis; the slowest counts for several axes.

    Raises HloError by the rules ``report.program``, ``report.topology`` and those of the partitioner.
    """
    module = _module(program)
    axes = dict(mesh or {})
    devices = device_count(module, axes)
    partitioned = partition(resized(module, axes), devices)
    named = axes or mesh_of(module)
    WhileLoopTripCountAnnotator().run(partitioned.module)
    explainer = Explainer(partitioned.module, named)
    walk = _Walk(devices, named, _links(topology, named), partitioned.causes, explainer)
    walk.computation(partitioned.module.entry, 1)
    entry = partitioned.module.entry
    return Report(
        devices,
        named,
        tuple(sorted(walk.rows, key=lambda row: -row.bytes_per_step)),
        sum(shape_bytes(p.shape) for p in entry.parameters),
        shape_bytes(entry.root.shape),
        peak_bytes(entry),
        tuple(_replicated(module, partitioned)),
        walk.unknown_loops,
        tuple(explainer.conflicts(partitioned.decisions)),
    )


def _module(program: Any) -> HloModule:
    """Return the module of a program."""
    if isinstance(program, HloModule):
        return program
    if not hasattr(program, "compiler_ir"):
        message = f"expected an HloModule or a lowered function of JAX, got {type(program).__name__}"
        raise HloError(message, rule="report.program")
    return HloModule.from_proto(program.compiler_ir("hlo").as_serialized_hlo_module_proto())


def _links(topology: str | Mapping[str, Link], axes: Mapping[str, int]) -> dict[str, Link]:
    """Return the link of each axis; "" is the slowest."""
    if isinstance(topology, str):
        if topology not in TOPOLOGIES:
            message = f"there is no topology {topology!r}; known are {', '.join(TOPOLOGIES)}"
            raise HloError(message, rule="report.topology")
        return dict.fromkeys((*axes, ""), TOPOLOGIES[topology])
    missing = [axis for axis in axes if axis not in topology]
    if missing or not topology:
        message = f"the topology has no link for the axes {', '.join(missing) or 'of the mesh'}"
        raise HloError(message, rule="report.topology")
    slowest = min(topology.values(), key=lambda link: link.bandwidth)
    return {**topology, "": slowest}


@dataclass(slots=True)
class _Walk:
    """Collects the collectives of a program with the number of their executions."""

    devices: int
    axes: Mapping[str, int]
    links: Mapping[str, Link]
    causes: Mapping[HloInstruction, Cause]
    explainer: Explainer
    rows: list[Row] = field(default_factory=list[Row])
    unknown_loops: int = 0

    def computation(self, computation: HloComputation, times: int) -> None:
        """Add the collectives of a computation that runs some times."""
        for i in computation.instructions:
            found = sent(i, self.devices)
            if found is not None:
                self.rows.append(self._row(i, found.members, found.bytes, times))
            elif i.operation.calls_program:
                inside = times
                if isinstance(i.operation, While):
                    count = known_trip_count(i)
                    self.unknown_loops += count is None
                    inside *= 1 if count is None else count
                for called in i.called_computations:
                    self.computation(called, inside)

    def _row(self, i: HloInstruction, members: int, amount: int, times: int) -> Row:
        axes = _axes(i, self.axes)
        links = [self.links[axis] for axis in axes.split("+") if axis in self.links] or [self.links[""]]
        link = min(links, key=lambda link: link.bandwidth)
        hops = 1 if isinstance(i.operation, (CollectivePermute, CollectivePermuteStart)) else members - 1
        seconds = times * (hops * link.latency + amount / link.bandwidth)
        origin = op_name(i), source_line(i)
        why = self.explainer.why(self.causes.get(i))
        return Row(i.name, i.opcode, *origin, axes, members, amount, times, seconds, why)


def _axes(i: HloInstruction, axes: Mapping[str, int]) -> str:
    """Return the axes in which the devices of a collective's group differ."""
    operation = i.operation
    if isinstance(operation, (CollectivePermute, CollectivePermuteStart)):
        moving = [pair for pair in operation.source_target_pairs if pair[0] != pair[1]]
        return axes_along(moving[0], axes) if moving else ""
    return _axes_of_groups(cast("Collective", operation).replica_groups, tuple(axes.items()))


@lru_cache(maxsize=1024)
def _axes_of_groups(groups: ReplicaGroups, axes: tuple[tuple[str, int], ...]) -> str:
    first = groups.first if isinstance(groups, IotaDeviceList) else next(iter(groups.groups), (0,))
    return axes_along(first, dict(axes))


def peak_bytes(computation: HloComputation) -> int:
    """Return the most bytes of values that live at the same time, in post-order, with the parameters.

    A called computation adds what it needs beyond its parameters. Tuples and their elements are no values of
    their own.
    """
    order = computation.post_order()
    last: dict[HloInstruction, int] = {}
    for place, i in enumerate(order):
        for operand in i.operands:
            last[operand] = place
    last[computation.root] = len(order)
    live = peak = sum(shape_bytes(p.shape) for p in computation.parameters)
    ending: dict[int, int] = {}
    for place, i in enumerate(order):
        own = 0 if i.opcode in ("parameter", "tuple", "get-tuple-element") else shape_bytes(i.shape)
        inside = 0
        if i.operation.calls_program:
            inside = max(peak_bytes(c) - _parameter_bytes(c) for c in i.called_computations)
        live += own
        peak = max(peak, live + inside)
        ending[last.get(i, place)] = ending.get(last.get(i, place), 0) + own
        live -= ending.pop(place, 0)
    return peak


def _parameter_bytes(computation: HloComputation) -> int:
    return sum(shape_bytes(p.shape) for p in computation.parameters)


def _replicated(module: HloModule, partitioned: Partitioned) -> Iterator[tuple[str, int]]:
    """Return the parameters that every device has whole, large ones first."""
    tilings = iter(partitioned.parameters)
    found: list[tuple[str, int]] = []
    for parameter in module.entry.parameters:
        for index, leaf in parameter.shape.leaves():
            if next(tilings).is_replicated and leaf.is_array and leaf.rank:
                name = parameter.name + "".join(f"{{{n}}}" for n in index)
                found.append((name, shape_bytes(leaf)))
    yield from sorted(found, key=lambda pair: -pair[1])
