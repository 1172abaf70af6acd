"""Cost model: the arithmetic and memory traffic of a program, derived from its shapes.

An elementwise operation counts once per result element, a contraction twice per product, a reduction once per
application of its computation. Bytes are the operands and results of each kernel; values inside a fusion move
none, and of operands that it only slices the slices count. Loops count with their known trip count.
"""

from __future__ import annotations

import json
from dataclasses import astuple, field
from typing import Final

from hloom.analysis.library_calls import library_flops
from hloom.analysis.subviews import Subview
from hloom.analysis.trip_count import TripCount
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.traits import shape_bytes, shape_elements
from hloom.operations.control_flow import Conditional, Fusion, While
from hloom.operations.custom_call import CustomCall, is_allocation
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.gather_scatter import Gather
from hloom.operations.movement import Slice
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Parameter, Tuple
from hloom.records import dataclass

_FLOPS: Final = 10
"""Flops in the time of a byte of memory traffic, or of a transcendental function."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a program, or of a part of it.

    Attributes:
        flops: additions, multiplications, comparisons and similar operations.
        transcendentals: evaluations of exp, log, sin, square root and similar functions, not included in
            flops.
        bytes: bytes read and written.
    """

    flops: float = 0.0
    transcendentals: float = 0.0
    bytes: float = 0.0

    @property
    def weight(self) -> float:
        """The larger of arithmetic and memory traffic, in flops; a byte or a transcendental counts as 10.

        It ranks parts of a program; it is no estimate of time.
        """
        return max(self.flops + _FLOPS * self.transcendentals, _FLOPS * self.bytes)

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.flops + other.flops,
            self.transcendentals + other.transcendentals,
            self.bytes + other.bytes,
        )

    def __mul__(self, times: float) -> Cost:
        return Cost(self.flops * times, self.transcendentals * times, self.bytes * times)


def module_cost(module: HloModule) -> Cost:
    """Return the cost of running a module once."""
    return computation_cost(module.entry)


def computation_cost(computation: HloComputation) -> Cost:
    """Return the cost of running a computation once."""
    total = Cost()
    for instruction in computation.instructions:
        total = total + instruction_cost(instruction)
    return total


def instruction_cost(i: HloInstruction) -> Cost:
    """Return the cost of running an instruction once, including the computations it calls."""
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
            arithmetic = _arithmetic(i)
            return Cost(arithmetic.flops, arithmetic.transcendentals, moved_bytes(i))


@dataclass(frozen=True, slots=True)
class LoopCount:
    """The trip count of a loop as the cost model takes it.

    Attributes:
        name: the name of the loop.
        iterations: the trip count; None if it is unknown, and the loop counts as one iteration.
        proved: the trip count follows from the program; otherwise it is the hint.
        hint: the trip count in the backend config; None if it has none.
    """

    name: str
    iterations: int | None
    proved: bool
    hint: int | None


@dataclass(slots=True)
class Breakdown:
    """The cost of running a computation once, by opcode, op_name and source line.

    A conditional counts the branch with the most arithmetic. The arithmetic inside a fusion counts under the
    opcodes and op_names of its members, its bytes under those of the fusion.

    Attributes:
        by_opcode: costs without those of called computations, which count under their own opcodes.
        by_op_name, by_source: the same by op_name, and by ``file:line``; the empty text is the rest.
        loops: every loop once.
        unknown_calls: number of custom calls counted without arithmetic.
    """

    by_opcode: dict[str, Cost] = field(default_factory=dict[str, Cost])
    by_op_name: dict[str, Cost] = field(default_factory=dict[str, Cost])
    by_source: dict[str, Cost] = field(default_factory=dict[str, Cost])
    loops: list[LoopCount] = field(default_factory=list[LoopCount])
    unknown_calls: int = 0

    @property
    def unknown_loops(self) -> int:
        """Return the number of loops counted as one iteration because their trip count is unknown."""
        return sum(loop.iterations is None for loop in self.loops)

    def add(self, computation: HloComputation, times: float = 1.0, fused: bool = False) -> None:
        """Add the cost of a computation that runs ``times`` times."""
        for i in computation.instructions:
            self._add(i, times, fused)

    def _add(self, i: HloInstruction, times: float, fused: bool) -> None:
        called, cost = i.called_computations, Cost()
        match i.operation:
            case While():
                self.loops.append(loop_count(i))
                for computation in called:
                    self.add(computation, times * trip_count(i), fused)
            case Conditional():
                self.add(max(called, key=_arithmetic_of), times, fused)
            case Fusion():
                self.add(called[0], times, fused=True)
                cost = Cost(bytes=moved_bytes(i))
            case operation if operation.calls_program:
                self.add(called[0], times, fused)
            case operation:
                is_counted = is_allocation(i) or library_flops(i) is not None
                self.unknown_calls += isinstance(operation, CustomCall) and not is_counted
                cost = instruction_cost(i)
        if fused:
            cost = Cost(cost.flops, cost.transcendentals)
        metadata = i.metadata
        line = f"{metadata.source_file}:{metadata.source_line}" if metadata and metadata.source_file else ""
        for table, key in (
            (self.by_opcode, i.opcode),
            (self.by_op_name, metadata.op_name if metadata else ""),
            (self.by_source, line),
        ):
            table[key] = table.get(key, Cost()) + cost * times


def _arithmetic_of(computation: HloComputation) -> float:
    cost = computation_cost(computation)
    return cost.flops + cost.transcendentals


def moved_bytes(i: HloInstruction) -> float:
    """Return the bytes that an instruction reads and writes; a repeated operand is read once.

    Those of a part of an array that stays where it is are none.
    """
    if i.annotation(Subview) is not None:
        return 0.0
    if isinstance(i.operation, Fusion):
        return _fusion_bytes(i)
    repeated = len(i.operands) - len(dict.fromkeys(i.operands))
    if repeated and i.operation.elementwise:
        return shape_bytes(i.shape) + sum(shape_bytes(o.shape) for o in dict.fromkeys(i.operands))
    return i.operation.traffic(i.shape, *(o.shape for o in i.operands))


def _fusion_bytes(fusion: HloInstruction) -> float:
    """Return the bytes that a fusion moves: of operands that it slices or updates, those of the parts."""
    body = fusion.called_computations[0]
    roots = body.root.operands if isinstance(body.root.operation, Tuple) else [body.root]
    operands = dict(zip(fusion.operands, body.parameters, strict=True))
    return sum(map(_read_bytes, operands.values())) + sum(map(_written_bytes, roots))


def _read_bytes(array: HloInstruction) -> float:
    """Return the bytes of an array that its users in a fusion read."""
    return min(float(shape_bytes(array.shape)), sum(_used_bytes(user, array) for user in array.users))


def _used_bytes(user: HloInstruction, array: HloInstruction) -> float:
    """Return the bytes of an array that a user in a fusion reads."""
    if user.operands.count(array) > 1 or user.operands[0] is not array:
        return shape_bytes(array.shape)
    match user.operation:
        case Slice() | DynamicSlice() | Gather():
            return shape_bytes(user.shape)
        case DynamicUpdateSlice():
            return 0.0 if _written_bytes(user) < shape_bytes(user.shape) else shape_bytes(array.shape)
        case Reshape():
            return _read_bytes(user) if user.users else shape_bytes(array.shape)
        case _:
            return shape_bytes(array.shape)


def _written_bytes(root: HloInstruction) -> float:
    """Return the bytes that a fusion writes of a result: an update in place writes the new elements."""
    is_root = root.is_root or any(isinstance(user.operation, Tuple) for user in root.users)
    if isinstance(root.operation, DynamicUpdateSlice) and is_root and _is_view(root.operands[0]):
        return shape_bytes(root.operands[1].shape)
    return shape_bytes(root.shape)


def _is_view(i: HloInstruction) -> bool:
    """Return whether a member of a fusion is an operand, in any shape."""
    while isinstance(i.operation, Reshape):
        (i,) = i.operands
    return isinstance(i.operation, Parameter)


def trip_count(loop: HloInstruction) -> int:
    """Return the trip count of a loop, 1 if it is unknown."""
    iterations = loop_count(loop).iterations
    return 1 if iterations is None else iterations


def loop_count(loop: HloInstruction) -> LoopCount:
    """Return the trip count of a loop, from its annotation or else from its backend config.

    The backend config is not verified; a wrong trip count only makes the estimate wrong.
    """
    proof, hint = loop.annotation(TripCount), _hinted_trip_count(loop)
    return LoopCount(loop.name, hint if proof is None else proof.iterations, proof is not None, hint)


def _hinted_trip_count(loop: HloInstruction) -> int | None:
    """Return the unverified trip count in the backend config of a loop; None if it has none."""
    try:
        config: object = json.loads(loop.backend_config or "null")
    except ValueError:
        return None
    match config:
        case {"known_trip_count": {"n": int() | str() as count}} if str(count).isdecimal():
            return int(count)
        case _:
            return None


def _arithmetic(i: HloInstruction) -> Cost:
    """Return the arithmetic of an instruction, with that of the computations it calls, and no bytes."""
    if i.operation.calls_program:
        total = instruction_cost(i)
        return Cost(total.flops, total.transcendentals)
    if not i.shape.is_array and not i.shape.is_tuple:
        return Cost()
    library = library_flops(i)
    if library is not None:
        return Cost(library)
    shapes = [o.shape for o in i.operands]
    if i.operation.transcendental:
        return Cost(transcendentals=float(shape_elements(i.shape)))
    applied = _applied(i) if i.called_computations else Cost()
    flops = i.operation.flops(i.shape, *shapes, applied=applied.flops)
    times = i.operation.flops(i.shape, *shapes, applied=1.0) if applied.transcendentals else 0.0
    return Cost(flops, applied.transcendentals * times)


def _applied(i: HloInstruction) -> Cost:
    """Return the arithmetic of one application of the last computation that an instruction calls."""
    return sum(map(_arithmetic, i.called_computations[-1].instructions), Cost())
