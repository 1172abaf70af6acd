"""The base class of elementwise operations: accepted element types, shape rule, evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from hloom.error_bounds.bounded import is_inexact_type
from hloom.error_bounds.rules import no_bound, rounding, wrapped
from hloom.errors import ShapeError
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, ErrorRun, Operation, ProgramShape, Run
from hloom.ir.traits import ElementCost, Family, LayoutSource, Roundoff, shape_elements
from hloom.operations.rounding import narrow, widen
from hloom.shape.element_type import C64, C128, F32, F64, PRED, ElementType
from hloom.shape.float_format import float_format
from hloom.shape.shape import Shape

FLOATING = frozenset(t for t in ElementType.all() if t.is_floating)
INTEGER = frozenset(t for t in ElementType.all() if t.is_integer)
SIGNED = frozenset(t for t in INTEGER if t.is_signed)
COMPLEX = frozenset((C64, C128))
PREDICATE = frozenset((PRED,))
COMPONENT = frozenset((F32, F64))
NUMERIC = FLOATING | INTEGER | COMPLEX
ANY = NUMERIC | PREDICATE


class Elementwise(Operation):
    """An operation whose result element depends on the operand elements of the same index only."""

    layout_source: ClassVar[LayoutSource] = LayoutSource.OPERANDS
    family: ClassVar[Family] = Family.ELEMENTWISE
    element_cost: ClassVar[ElementCost] = ElementCost.CHEAP
    roundoff: ClassVar[Roundoff] = Roundoff.UNKNOWN
    complex_roundoff: ClassVar[Roundoff | None] = None
    """The roundoff for complex operands, if it differs."""
    __slots__ = ()
    elementwise: ClassVar[bool] = True
    accepts: ClassVar[frozenset[ElementType]] = NUMERIC
    """Element types of the operands."""

    compute: ClassVar[Callable[..., Any]]
    """A method or ufunc: the result on numpy arrays of at least f32 or s8, which numpy broadcasts."""

    def flops(self, shape: Shape, *operands: Shape, applied: float = 0.0) -> float:
        """Return one flop per element, or 0 for a transcendental function, which is counted separately."""
        return 0.0 if self.transcendental else float(shape_elements(shape))

    def roundoff_of(self, instruction: HloInstruction) -> Roundoff:
        """Return the roundoff for the operands' types."""
        is_complex = any(o.shape.element_type.is_complex for o in instruction.operands)
        return (self.complex_roundoff if is_complex else None) or self.roundoff

    def propagate(self, run: ErrorRun) -> Array:
        """Return the errors of the operands carried to the result, without its own rounding."""
        raise no_bound(run)

    def errors(self, run: ErrorRun) -> Array:
        """Add the errors of the operands and the rounding; integers may wrap around."""
        if not is_inexact_type(run.value):
            return self.integer_errors(run)
        roundoff = self.roundoff_of(run.instruction)
        if roundoff is Roundoff.UNKNOWN:
            raise no_bound(run, "has no error rule")
        errors = self.propagate(run) if run.inexact else np.zeros(run.value.shape)
        return errors + rounding(roundoff, run.value, errors, inexact=run.inexact)

    def integer_errors(self, run: ErrorRun) -> Array:
        """Return the errors of integers or predicates."""
        return wrapped(run.value, self.propagate(run))

    def widen(self, operand: Array) -> Array:
        """Convert the operand to the type in which ``compute`` works."""
        return widen(operand)

    def result_type(self, operand: ElementType) -> ElementType:
        """Return the element type of the result for operands of one type."""
        return operand

    @classmethod
    def operand_of(cls, result: Shape) -> Shape | None:
        """Return the result's shape, unless the operation changes element types or dimensions."""
        keeps = cls.infers and cls.result_type is Elementwise.result_type and cls.infer is Elementwise.infer
        return result if keeps and result.is_array else None

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """Require equal dimensions and one element type; a float may be mixed with a wider one."""
        check_element_types(self.opcode, operands, self.accepts)
        merged = same_dimensions(self.opcode, operands)
        return merged.with_element_type(self.result_type(joint_element_type(self.opcode, operands)))

    def evaluate(self, run: Run, *operands: Any, **keywords: Any) -> Array:
        """Widen, compute, round to the result's type."""
        with np.errstate(all="ignore"):
            return narrow(self.compute(*map(self.widen, operands)), run.dtype)


def check_element_types(opcode: str, operands: tuple[Shape, ...], accepted: frozenset[ElementType]) -> None:
    """Refuse operands that are not arrays or whose element type is not accepted."""
    for operand in operands:
        if not operand.is_array:
            raise ShapeError(f"{opcode} takes arrays, got {operand}", rule=f"{opcode}.operand-arrays")
        if operand.element_type not in accepted:
            names = ", ".join(t.name for t in ElementType.all() if t in accepted)
            message = f"{opcode} does not take {operand.element_type.name}, only {names}"
            raise ShapeError(message, rule=f"{opcode}.element-type")


def same_dimensions(opcode: str, operands: tuple[Shape, ...]) -> Shape:
    """Return the common dimensions of operands, with default layout.

    Sizes are equal; nothing is broadcast. A size is dynamic if it is so anywhere, and an unbounded one takes
    the size of its counterpart.
    """
    first = operands[0]
    if any(operand.rank != first.rank for operand in operands):
        raise _different(opcode, operands)
    sizes: list[int] = []
    dynamic: list[bool] = []
    for number in range(first.rank):
        bounded = [o for o in operands if o.dimensions[number] != Shape.UNBOUNDED]
        if any(o.dimensions[number] != bounded[0].dimensions[number] for o in bounded[1:]):
            raise _different(opcode, operands)
        sizes.append(bounded[0].dimensions[number] if bounded else Shape.UNBOUNDED)
        dynamic.append(not bounded or any(o.dynamic_dimensions[number] for o in bounded))
    return Shape(first.element_type, tuple(sizes), tuple(dynamic))


def _different(opcode: str, operands: tuple[Shape, ...]) -> ShapeError:
    message = f"{opcode} takes operands of equal dimensions, got {', '.join(map(str, operands))}"
    return ShapeError(message, rule=f"{opcode}.same-dimensions")


def joint_element_type(opcode: str, operands: tuple[Shape, ...]) -> ElementType:
    """Return the common element type: equal types, or of several floats that of largest range, then width."""
    types = [operand.element_type for operand in operands]
    if all(t is types[0] for t in types):
        return types[0]
    if all(t.is_floating for t in types):
        return max(types, key=_range_and_width)
    message = f"{opcode} takes operands of one element type, got {', '.join(t.name for t in types)}"
    raise ShapeError(message, rule=f"{opcode}.same-element-type")


def _range_and_width(element_type: ElementType) -> tuple[int, int, int]:
    number = float_format(element_type)
    return number.largest_exponent, -number.smallest_exponent, element_type.bits
