"""Traffic: the bytes that a device sends in each collective of a partitioned program.

The figures are those of ring algorithms: a member of a group of n sends n - 1 parts of n of what it gathers,
scatters or exchanges, and twice as much in an all-reduce. A permutation sends the whole operand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hloom.analysis.cost import known_trip_count
from hloom.ir.computation import HloComputation
from hloom.ir.device_groups import IotaDeviceList
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.traits import shape_bytes
from hloom.operations.collectives import Collective
from hloom.operations.control_flow import While
from hloom.operations.exchanges import CollectivePermute, CollectivePermuteStart
from hloom.passes.loops.while_loop_trip_count_annotator import WhileLoopTripCountAnnotator


@dataclass(frozen=True, slots=True)
class Sent:
    """Bytes that one device sends in a collective.

    Attributes:
        instruction: the collective.
        members: the number of devices that perform it together; 2 for a permutation.
        bytes: the bytes that a device sends in one execution.
    """

    instruction: HloInstruction
    members: int
    bytes: int


def sent(instruction: HloInstruction, devices: int) -> Sent | None:
    """Return what a device sends in an instruction; None if it is no collective, or only the end of one."""
    operation = instruction.operation
    size = sum(shape_bytes(operand.shape) for operand in instruction.operands)
    if isinstance(operation, (CollectivePermute, CollectivePermuteStart)):
        moves = any(source != target for source, target in operation.source_target_pairs)
        return Sent(instruction, 2, size if moves else 0)
    if not isinstance(operation, Collective):
        return None
    members = _members(operation, devices)
    match operation.kind:
        case "all-gather":
            amount = size * (members - 1)
        case "all-reduce":
            amount = 2 * size * (members - 1) // members
        case "reduce-scatter" | "all-to-all" | "ragged-all-to-all":
            amount = size * (members - 1) // members
        case _:
            amount = size if members > 1 else 0
    return Sent(instruction, members, amount)


def _members(operation: Collective, devices: int) -> int:
    """Return the number of devices of the largest group; all if none are listed."""
    groups = operation.replica_groups
    if isinstance(groups, IotaDeviceList):
        return groups.group_size
    return max(map(len, groups.groups), default=devices) or devices


def collectives(module: HloModule) -> Iterator[Sent]:
    """Return what a device sends in each collective of a module, wherever it stands, once each."""
    for instruction in module.instructions():
        found = sent(instruction, module.config.num_partitions)
        if found is not None:
            yield found


def bytes_sent(module: HloModule) -> int:
    """Return the sum over all collectives of a module, once each, whatever loops they stand in."""
    return sum(one.bytes for one in collectives(module))


@dataclass(frozen=True, slots=True)
class Execution:
    """Executions of a collective in a step.

    Attributes:
        sent: what a device sends in one of them.
        times: their number; of loops whose trip count is unknown, one iteration.
    """

    sent: Sent
    times: int


def executions(module: HloModule, devices: int) -> tuple[list[Execution], int]:
    """Return the executions of all collectives in a step, and the number of loops of unknown length."""
    WhileLoopTripCountAnnotator().run(module)
    found: list[Execution] = []
    return found, _executed(module.entry, devices, 1, found)


def _executed(computation: HloComputation, devices: int, times: int, found: list[Execution]) -> int:
    unknown = 0
    for i in computation.instructions:
        one = sent(i, devices)
        if one is not None:
            found.append(Execution(one, times))
        elif i.operation.calls_program:
            count = known_trip_count(i) if isinstance(i.operation, While) else 1
            unknown += count is None
            for called in i.called_computations:
                unknown += _executed(called, devices, times if count is None else times * count, found)
    return unknown
