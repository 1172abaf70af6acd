"""What a program has to compute and to move, counted from its shapes.

An elementwise operation counts once for every element of its result, a contraction twice for every product,
a reduction as often as its computation runs. Bytes are those of the operands and results of what runs as
one piece; what is fused away moves none. Loops count as often as they are known to run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from hloom.analysis.trip_count import TripCount
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.window import ConvolutionDimensionNumbers, Window, WindowDimension
from hloom.shape.shape import Shape


@dataclass(frozen=True, slots=True)
class Cost:
    """Work of a program, or of a part of it.

    Attributes:
        flops: additions, multiplications and whatever else is done once to an element.
        bytes: read and written.
    """

    flops: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.bytes + other.bytes)

    def __mul__(self, times: float) -> Cost:
        return Cost(self.flops * times, self.bytes * times)


_FREE: Final = frozenset(
    (
        "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "reshape", "opt-barrier", "domain",
        "add-dependency", "after-all", "partition-id", "replica-id",
    )
)  # fmt: skip
"""Operations that neither compute nor move anything."""


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
    """The cost of running an instruction once, with all that it calls."""
    called = i.called_computations
    match i.opcode:
        case opcode if opcode in _FREE:
            return Cost()
        case "while":
            return (computation_cost(called[0]) + computation_cost(called[1])) * trip_count(i)
        case "conditional":
            branches = [computation_cost(c) for c in called]
            return Cost(max(b.flops for b in branches), max(b.bytes for b in branches))
        case "call" | "async-start":
            return computation_cost(called[0])
        case "fusion":
            return Cost(sum(map(_fused_flops, called[0].instructions)), moved_bytes(i))
        case _:
            return Cost(_flops(i), moved_bytes(i))


def _fused_flops(i: HloInstruction) -> float:
    return instruction_cost(i).flops if i.opcode == "while" else _flops(i)


def moved_bytes(i: HloInstruction) -> float:
    """Bytes that an instruction reads and writes: of what is sliced or gathered only what is used."""
    result = shape_bytes(i.shape)
    match i.opcode:
        case "slice" | "dynamic-slice":
            return 2 * result
        case "gather":
            return 2 * result + shape_bytes(i.operands[1].shape)
        case "dynamic-update-slice":
            return 2 * shape_bytes(i.operands[1].shape)
        case "scatter":
            count = len(i.operands) // 2
            return shape_bytes(i.operands[count].shape) + 3 * sum(
                shape_bytes(o.shape) for o in i.operands[count + 1 :]
            )
        case _:
            return result + sum(shape_bytes(o.shape) for o in dict.fromkeys(i.operands))


def shape_bytes(shape: Shape) -> int:
    """Bytes of all arrays of a shape."""
    if shape.is_tuple:
        return sum(map(shape_bytes, shape.tuple_shapes))
    return shape.byte_size if shape.is_array and shape.is_static else 0


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


# -- operations


def _elements(shape: Shape) -> int:
    if shape.is_tuple:
        return _elements(shape.tuple_shapes[0]) if shape.tuple_shapes else 0
    return shape.element_count if shape.is_array and shape.is_static else 0


def _flops(i: HloInstruction) -> float:
    rule = _RULES.get(i.opcode)
    if rule is not None:
        return rule(i)
    return float(_elements(i.shape)) if i.operation.elementwise and i.opcode != "copy" else 0.0


def _applied(i: HloInstruction) -> float:
    """The cost of an instruction's computation on one element."""
    return max(1.0, sum(map(_flops, i.called_computations[-1].instructions)))


def _dot(i: HloInstruction) -> float:
    operation: Any = i.operation
    sizes = i.operands[0].shape.dimensions
    contracted: tuple[int, ...] = operation.lhs_contracting_dims
    scale = 4 if i.shape.element_type.is_complex else 1
    return 2.0 * scale * _elements(i.shape) * math.prod(sizes[d] for d in contracted)


def _convolution(i: HloInstruction) -> float:
    operation: Any = i.operation
    labels: ConvolutionDimensionNumbers = operation.dim_labels
    features = i.operands[1].shape.dimensions[labels.kernel_input_feature_dimension]
    window = math.prod(d.size for d in operation.window)
    return 2.0 * _elements(i.shape) * window * features


def _reduce(i: HloInstruction) -> float:
    return _applied(i) * max(0, _elements(i.operands[0].shape) - _elements(i.shape))


def _reduce_window(i: HloInstruction) -> float:
    operation: Any = i.operation
    window: Window = operation.window
    sizes = i.operands[0].shape.dimensions
    # a result over all beginnings, or all ends, goes on from the one before it
    combined = [2 if _runs_along(d, n) else d.size for d, n in zip(window, sizes, strict=True)]
    return _applied(i) * _elements(i.shape) * max(0, math.prod(combined) - 1)


def _runs_along(d: WindowDimension, size: int) -> bool:
    """Whether a dimension of a window covers everything up to an element, or everything from it on."""
    plain = d.stride == d.base_dilation == d.window_dilation == 1
    return plain and d.size == size > 1 and sorted((d.padding_low, d.padding_high)) == [0, size - 1]


def _select_and_scatter(i: HloInstruction) -> float:
    operation: Any = i.operation
    return _applied(i) * _elements(i.operands[1].shape) * math.prod(d.size for d in operation.window)


def _map(i: HloInstruction) -> float:
    return _applied(i) * _elements(i.shape)


def _scatter(i: HloInstruction) -> float:
    return _applied(i) * _elements(i.operands[-1].shape)


def _sort(i: HloInstruction) -> float:
    operation: Any = i.operation
    dimensions: tuple[int, ...] = operation.dimensions
    n = i.operands[0].shape.dimensions[dimensions[0]]
    return _applied(i) * _elements(i.operands[0].shape) * max(1, n.bit_length())


def _fft(i: HloInstruction) -> float:
    operation: Any = i.operation
    return 5.0 * _elements(i.shape) * max(1.0, math.log2(max(2, math.prod(operation.fft_length))))


def _cholesky(i: HloInstruction) -> float:
    n = i.shape.dimensions[-1]
    return _elements(i.shape) * n / 3


def _triangular_solve(i: HloInstruction) -> float:
    return float(_elements(i.operands[1].shape) * i.operands[0].shape.dimensions[-1])


_RULES: Final[dict[str, Callable[[HloInstruction], float]]] = {
    "dot": _dot, "convolution": _convolution, "reduce": _reduce, "reduce-window": _reduce_window,
    "select-and-scatter": _select_and_scatter, "map": _map, "scatter": _scatter, "sort": _sort, "fft": _fft,
    "cholesky": _cholesky, "triangular-solve": _triangular_solve,
}  # fmt: skip
