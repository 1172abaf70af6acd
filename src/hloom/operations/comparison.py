"""Comparison and selection element by element: compare, select, clamp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, cast

import numpy as np

from hloom.error_bounds.bounded import Bounded
from hloom.error_bounds.floating import wide
from hloom.error_bounds.rules import apart, largest
from hloom.errors import ShapeError
from hloom.ir.codec import enum
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, ErrorRun, Operation, ProgramShape, Run, operation
from hloom.ir.traits import LayoutSource, Range, Roundoff
from hloom.ir.xla_version import V0_11_2
from hloom.operations.arithmetic import maximum, minimum
from hloom.operations.conversion import Copy
from hloom.operations.elementwise import (
    ANY,
    Elementwise,
    check_element_types,
    joint_element_type,
    same_dimensions,
)
from hloom.operations.movement import Broadcast
from hloom.operations.reduction import Reduce
from hloom.operations.reshaping import Reshape
from hloom.operations.rounding import widen
from hloom.shape.element_type import PRED, ElementType
from hloom.shape.shape import Shape

_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "GE": np.greater_equal,
    "GT": np.greater,
    "LE": np.less_equal,
    "LT": np.less,
}

OPPOSITE: Final = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}
"""The direction of the negation of a comparison of totally ordered values."""
SWAPPED: Final = {"EQ": "EQ", "NE": "NE", "LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}
"""The direction of a comparison with its operands exchanged."""


ORDERS: Final = ("", "PARTIAL", "TOTAL")
COMPARISON_TYPES: Final = {"": 0, "FLOAT": 1, "TOTALORDER": 2, "SIGNED": 3, "UNSIGNED": 4}
"""Types of comparisons; the empty one stands for the element type's own."""


@operation("compare", "lhs rhs")
class Compare(Elementwise):
    """Compares ``lhs`` and ``rhs``; the result is pred.

    Attributes:
        direction: EQ, NE, GE, GT, LE or LT.
        comparison_type: FLOAT, TOTALORDER, SIGNED or UNSIGNED; empty for the element type's own.
            With FLOAT a comparison with NaN is false (NE true) and -0 equals +0; the total order is
            -NaN < -inf < ... < -0 < +0 < ... < inf < NaN. Complex numbers have no order: only EQ and NE.
        order: XLA's word for the type since 0.11.2: TOTAL is TOTALORDER, PARTIAL is FLOAT.
    """

    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    accepts: ClassVar[frozenset[ElementType]] = ANY
    direction: str = enum(tuple(_COMPARE), proto="comparison_direction", stored_as_text=True)
    comparison_type: str = enum(COMPARISON_TYPES, default="", name="type", stored_as_text=True, until=V0_11_2)
    order: str = enum(ORDERS, default="", proto="comparison_order", stored_as_text=True, since=V0_11_2)

    def highlights(self) -> Sequence[str]:
        return (self.direction,)

    def omitted(self, field: str, instruction: HloInstruction) -> bool:
        """Return true for the type and order of the operand's element type, which are not printed."""
        natural = natural_type(instruction.operands[0].shape.element_type)
        if field == "order":
            return natural != "FLOAT" or self.comparison_type == natural
        return field == "comparison_type" and self.comparison_type == natural

    def result_type(self, operand: ElementType) -> ElementType:
        return PRED

    def canonical(self, *operands: Shape) -> Operation:
        """Return the operation without its order; the type is empty if it is the element type's own.

        Raise ShapeError (``compare.order``) for an order that contradicts the type or the element type.
        """
        if not (self.comparison_type or self.order) or not operands[0].is_array:
            return self
        natural = natural_type(operands[0].element_type)
        kind = self.comparison_type
        if self.order:
            types = [natural] if (natural == "FLOAT") is (self.order == "PARTIAL") else []
            types += ["TOTALORDER"] if self.order == "TOTAL" else []
            kind = kind or "".join(types[:1])
            if kind not in types:
                type_text = f"{self.comparison_type} " * bool(self.comparison_type)
                message = f"{self.order} order of a {type_text}comparison of {operands[0].element_type.name}"
                raise ShapeError(message, rule="compare.order")
        return self.replace(comparison_type="" if kind == natural else kind, order="")

    def spelled_out(self, instruction: HloInstruction) -> Operation:
        """Add the comparison type and the order."""
        natural = natural_type(instruction.operands[0].shape.element_type)
        kind = self.comparison_type or natural
        if kind not in (natural, "TOTALORDER"):  # which the verifier refuses
            return self
        return self.replace(comparison_type=kind, order="PARTIAL" if kind == "FLOAT" else "TOTAL")

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """Check that the comparison type fits the element type and that complex numbers are not ordered."""
        shape = Elementwise.infer(self, *operands)
        element_type = operands[0].element_type
        if self.comparison_type not in ("", "TOTALORDER", natural_type(element_type)):
            message = f"{self.comparison_type} comparison of {element_type.name}"
            raise ShapeError(message, rule="compare.type")
        if element_type.is_complex and self.direction not in ("EQ", "NE"):
            raise ShapeError(
                f"{self.direction} of {element_type.name}, which has no order", rule="compare.complex-order"
            )
        return shape

    def errors(self, run: ErrorRun) -> Array:
        """Return 1 where two numbers are no farther apart than their errors, so that either is larger."""
        a, b = run.operands
        i = run.instruction
        if i.operands[0] is i.operands[1]:
            return np.zeros(run.value.shape)
        if self.direction in ("EQ", "NE"):
            extreme = _equality_with_extreme(i, a, b)
            if extreme is not None:
                return extreme
        error = a.spread + b.spread
        x, y = wide(a.value), wide(b.value)
        undecided = (error > 0) & ~(np.abs(x - y) > error) & ~np.isnan(x) & ~np.isnan(y)
        return undecided.astype(np.float64)

    def evaluate(self, run: Run, *operands: Any, **keywords: Any) -> Array:
        """Compare; for the total order compare integer keys, which tell the payloads of NaN apart."""
        lhs, rhs = operands
        if self.comparison_type == "TOTALORDER" and lhs.dtype == rhs.dtype:
            operands = (total_order_key(lhs), total_order_key(rhs))
        return Elementwise.evaluate(self, run, *operands)

    def compute(self, lhs: Array, rhs: Array) -> Array:
        """Compare; for the total order compare integer keys."""
        relation = _COMPARE[self.direction]
        if self.comparison_type == "TOTALORDER":
            common = np.result_type(lhs, rhs)
            lhs, rhs = total_order_key(lhs.astype(common)), total_order_key(rhs.astype(common))
        return relation(lhs, rhs)


def _equality_with_extreme(i: HloInstruction, a: Bounded, b: Bounded) -> Array | None:
    """Return where the equality of an array with its own maximum or minimum is undecided; None for others.

    The extreme is one of the elements, so an element is equal to it if no other is within its errors.
    """
    array, other = (i.operands[0], i.operands[1]) if a.error is not None else (i.operands[1], i.operands[0])
    elements, extreme = (a, b) if a.error is not None else (b, a)
    while isinstance(other.operation, Broadcast | Reshape | Copy):
        other = other.operands[0]
    if not isinstance(other.operation, Reduce) or other.operands[0] is not array or not other.shape.is_array:
        return None
    axes = other.operation.dimensions
    x, error = wide(elements.value), elements.spread
    for sign in (1, -1):
        most = np.max(sign * x, axes, keepdims=True)
        if np.array_equal(np.broadcast_to(most, x.shape), sign * wide(extreme.value)):
            near = sign * x + error >= np.max(sign * x - error, axes, keepdims=True)
            return (near & (near.sum(axes, keepdims=True) > 1)).astype(np.float64)
    return None


def natural_type(element_type: ElementType) -> str:
    """Return the comparison type that belongs to an element type."""
    if element_type.is_floating or element_type.is_complex:
        return "FLOAT"
    return "SIGNED" if element_type.is_signed else "UNSIGNED"


def total_order_key(array: Array) -> Array:
    """Return integers in the total order of floats, NaN by their payloads; integers unchanged."""
    kind = ElementType.from_dtype(array.dtype)
    if not kind.is_floating:
        return array
    value = widen(array)
    bits = np.asarray(value).view(f"i{value.dtype.itemsize}")
    if kind.bits == 8:  # whose payloads no conversion keeps
        payload = np.asarray(array).view(np.uint8).astype(bits.dtype) & 0x7F
        bits = np.where(np.isnan(value), (bits & ~0x7F) | payload, bits)
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


@operation("select", "pred on_true on_false")
class Select(Elementwise):
    """Elements of ``on_true`` where ``pred`` holds, else of ``on_false``; a scalar pred decides for all."""

    copied_operands: ClassVar[tuple[int, ...]] = (1, 2)
    roundoff: ClassVar[Roundoff] = Roundoff.NONE

    def flops(self, shape: Shape, *operands: Shape, applied: float = 0.0) -> float:
        """Return 0: selection is not arithmetic."""
        return 0.0

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """Return the shape of ``on_true`` and ``on_false``; pred has their dimensions or none."""
        pred, *cases = operands
        check_element_types(self.opcode, tuple(cases), ANY)
        if pred.element_type is not PRED:
            raise ShapeError(f"select takes a predicate, got {pred}", rule="select.pred-type")
        shape = same_dimensions(self.opcode, tuple(cases) if pred.is_scalar else (*cases, pred))
        return shape.with_element_type(joint_element_type(self.opcode, tuple(cases)))

    def errors(self, run: ErrorRun) -> Array:
        """Return the errors of the selected elements; where the predicate is undecided, allow either."""
        pred, a, b = run.operands
        errors = cast("Array", np.where(pred.value, a.spread, b.spread))
        return np.where(pred.spread > 0, apart(a, b), errors)

    def evaluate(self, run: Run, pred: Array, on_true: Array, on_false: Array) -> Array:
        """Copy values bit by bit."""
        return np.where(pred, on_true.astype(run.dtype, copy=False), on_false.astype(run.dtype, copy=False))


@operation("clamp", "min operand max")
class Clamp(Elementwise):
    """``operand`` limited to ``min`` to ``max``: minimum(maximum(operand, min), max); NaN stays NaN.

    The bounds have the operand's dimensions or are scalars.
    """

    copied_operands: ClassVar[tuple[int, ...]] = (0, 1, 2)
    layout_source: ClassVar[LayoutSource] = LayoutSource.SECOND_OPERAND
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    propagate = largest
    accepts: ClassVar[frozenset[ElementType]] = ANY

    def value_range(self, element_type: ElementType, *ranges: Range) -> Range | None:
        """Clamp the bounds."""
        (least, greatest), (a, b), (c, d) = ranges
        low = min(max(a, least), c)
        return low, min(max(b, greatest), d)

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """Return the operand's shape; bounds may be floats of another type."""
        check_element_types(self.opcode, operands, self.accepts)
        joint_element_type(self.opcode, operands)
        full = tuple(o for i, o in enumerate(operands) if i == 1 or not o.is_scalar)
        return same_dimensions(self.opcode, full).with_element_type(operands[1].element_type)

    def compute(self, minimum_: Array, operand: Array, maximum_: Array) -> Array:
        """Apply the lower bound, then the upper bound, which wins if they are out of order."""
        return minimum(maximum(operand, minimum_), maximum_)
