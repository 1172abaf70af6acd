"""What a program has to compute and to move, counted from its shapes.

An elementwise operation counts once for every element of its result, a contraction twice for every product,
a reduction as often as its computation runs. Bytes are those of the operands and results of what runs as
one piece; what is fused away moves none. Loops count as often as they are known to run.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass

from hloom.analysis.trip_count import TripCount
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.traits import shape_bytes, shape_elements
from hloom.operations.control_flow import Conditional, Fusion, While


@dataclass(frozen=True, slots=True)
class Cost:
    """Work of a program, or of a part of it.

    Attributes:
        flops: additions, multiplications, comparisons and the like.
        transcendentals: evaluations of exp, log, sin, square roots and the like, which are not flops.
        bytes: read and written.
    """

    flops: float = 0.0
    transcendentals: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.flops + other.flops,
            self.transcendentals + other.transcendentals,
            self.bytes + other.bytes,
        )

    def __mul__(self, times: float) -> Cost:
        return Cost(self.flops * times, self.transcendentals * times, self.bytes * times)


def module_cost(module: HloModule) -> Cost:
    """The cost of running a module once."""
    return computation_cost(module.entry)


def computation_cost(computation: HloComputation) -> Cost:
    """The cost of running a computation once."""
    total = Cost()
    for instruction in computation.instructions:
        total = total + instruction_cost(instruction)
    return total


def instruction_cost(i: HloInstruction) -> Cost:
    """Return the cost of running an instruction once, with all that it calls."""
    called = i.called_computations
    match i.operation:
        case While():
            return (computation_cost(called[0]) + computation_cost(called[1])) * trip_count(i)
        case Conditional():
            branches = [computation_cost(c) for c in called]
            return Cost(*(max(part) for part in zip(*map(astuple, branches), strict=True)))
        case Fusion():
            inside = sum(map(_arithmetic, called[0].instructions), Cost())
            return Cost(inside.flops, inside.transcendentals, moved_bytes(i))
        case operation if operation.calls_program:
            return computation_cost(called[0])
        case _:
            own = _arithmetic(i)
            return Cost(own.flops, own.transcendentals, moved_bytes(i))


def moved_bytes(i: HloInstruction) -> float:
    """Return the bytes that an instruction reads and writes; an operand that is used twice is read once."""
    repeated = len(i.operands) - len(dict.fromkeys(i.operands))
    if repeated and i.operation.elementwise:
        return shape_bytes(i.shape) + sum(shape_bytes(o.shape) for o in dict.fromkeys(i.operands))
    return i.operation.traffic(i.shape, *(o.shape for o in i.operands))


def trip_count(loop: HloInstruction) -> int:
    """Return how often a loop runs: as a pass found, else as its backend config hints, else 1.

    A cost is an estimate; a hint that is wrong costs time at most.
    """
    found = loop.annotation(TripCount)
    if found is not None:
        return found.turns
    try:
        return max(0, int(json.loads(loop.backend_config)["known_trip_count"]["n"]))
    except (ValueError, KeyError, TypeError):
        return 1


def _arithmetic(i: HloInstruction) -> Cost:
    """Return the arithmetic of an instruction by itself, loops inside fusions included."""
    if i.operation.calls_program:
        whole = instruction_cost(i)
        return Cost(whole.flops, whole.transcendentals)
    if not i.shape.is_array and not i.shape.is_tuple:
        return Cost()
    shapes = [o.shape for o in i.operands]
    if i.operation.transcendental:
        return Cost(transcendentals=float(shape_elements(i.shape)))
    applied = _applied(i) if i.called_computations else Cost()
    flops = i.operation.flops(i.shape, *shapes, applied=applied.flops)
    times = i.operation.flops(i.shape, *shapes, applied=1.0) if applied.transcendentals else 0.0
    return Cost(flops, applied.transcendentals * times)


def _applied(i: HloInstruction) -> Cost:
    """Return the arithmetic of an instruction's last computation on one element."""
    return sum(map(_arithmetic, i.called_computations[-1].instructions), Cost())
