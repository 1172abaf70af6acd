"""Traffic: the bytes that a device sends in each collective of a partitioned program.

The model is ring algorithms: a member of a group of n sends (n - 1) / n of what it gathers, scatters or
exchanges, and twice as much in an all-reduce. A permutation sends the full operand.
"""

from __future__ import annotations

from collections.abc import Iterator

from hloom.analysis.cost import loop_count
from hloom.ir.computation import HloComputation
from hloom.ir.device_groups import IotaDeviceList
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.traits import shape_bytes
from hloom.operations.collectives import Collective
from hloom.operations.control_flow import While
from hloom.operations.exchanges import CollectivePermute, CollectivePermuteStart
from hloom.passes.loops.while_loop_trip_count_annotator import WhileLoopTripCountAnnotator
from hloom.records import dataclass


@dataclass(frozen=True, slots=True)
class Sent:
    """The traffic of one execution of a collective.

    Attributes:
        instruction: the collective.
        members: the number of devices in a group; 2 for a permute.
        bytes: the bytes that a device sends.
    """

    instruction: HloInstruction
    members: int
    bytes: int


def sent(instruction: HloInstruction, devices: int) -> Sent | None:
    """Return the traffic of one execution of a collective, or of its start instruction.

    Returns None for other instructions. ``devices`` is the number of devices of the program.
    """
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
    """Return the number of devices in the largest group of a collective.

    Returns ``devices``, the number of devices of the program, if the collective lists no groups.
    """
    groups = operation.replica_groups
    if isinstance(groups, IotaDeviceList):
        return groups.group_size
    return max(map(len, groups.groups), default=devices) or devices


def collectives(module: HloModule) -> Iterator[Sent]:
    """Yield the traffic of one execution of each collective in a partitioned module."""
    for instruction in module.instructions():
        traffic = sent(instruction, module.config.num_partitions)
        if traffic is not None:
            yield traffic


def bytes_sent(module: HloModule) -> int:
    """Return the bytes that a device sends if each collective in a partitioned module runs exactly once."""
    return sum(traffic.bytes for traffic in collectives(module))


@dataclass(frozen=True, slots=True)
class Execution:
    """A collective with the number of its executions in a step, which is one run of the program.

    Attributes:
        sent: the traffic of one execution.
        times: the number of executions; loops of unknown trip count count as one iteration.
    """

    sent: Sent
    times: int


def executions(module: HloModule, devices: int) -> tuple[list[Execution], int]:
    """Return the collectives that a step (one run of the program) executes, and how often each runs.

    The second result is the number of loops of unknown trip count, which count as one iteration. ``devices``
    is the number of devices.
    """
    WhileLoopTripCountAnnotator().run(module)
    executed: list[Execution] = []
    return executed, _count_executions(module.entry, devices, 1, executed)


def _count_executions(
    computation: HloComputation, devices: int, times: int, executed: list[Execution]
) -> int:
    """Append the executions of collectives in a computation, and in those that it calls, to ``executed``.

    ``times`` is how often the computation runs in a step, ``devices`` the number of devices. Returns the
    number of loops of unknown trip count.
    """
    unknown = 0
    for i in computation.instructions:
        traffic = sent(i, devices)
        if traffic is not None:
            executed.append(Execution(traffic, times))
        elif i.operation.calls_program:
            count = loop_count(i).iterations if isinstance(i.operation, While) else 1
            unknown += count is None
            for called in i.called_computations:
                unknown += _count_executions(
                    called, devices, times if count is None else times * count, executed
                )
    return unknown
