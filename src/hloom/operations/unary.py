"""Exact elementwise operations of one operand: abs, negate, sign, rounding to integers, bits ...

The page "Element-wise unary functions".
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hloom.error_bounds.bounded import is_inexact_type
from hloom.error_bounds.rules import added, monotone
from hloom.ir.operation import Array, ErrorRun, operation
from hloom.ir.traits import Roundoff
from hloom.operations import complex_functions
from hloom.operations.arithmetic import Logical, Patterned
from hloom.operations.elementwise import COMPLEX, FLOATING, SIGNED, Elementwise
from hloom.shape.element_type import PRED, ElementType


@operation("abs", "operand")
class Abs(Elementwise):
    """The absolute value; of a complex number its modulus, infinite if a part is. Integers wrap."""

    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    complex_roundoff: ClassVar[Roundoff | None] = Roundoff.FUNCTION
    propagate = added
    never_negative_zero: ClassVar[bool] = True
    accepts: ClassVar[frozenset[ElementType]] = FLOATING | SIGNED | COMPLEX

    def result_type(self, operand: ElementType) -> ElementType:
        return operand.component

    def compute(self, operand: Array) -> Array:
        """Compute the modulus of complex numbers without intermediate overflow."""
        return complex_functions.modulus(operand) if operand.dtype.kind == "c" else np.abs(operand)


@operation("negate", "operand")
class Negate(Elementwise):
    """``-operand``. Integers wrap, unsigned ones too; the sign of zeros and NaNs flips."""

    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    propagate = added

    compute = np.negative


@operation("sign", "operand")
class Sign(Elementwise):
    """-1, 0 or 1; -0, +0 and NaN stay. Of a complex number x / |x|, and (NaN, NaN) if a part is NaN."""

    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    complex_roundoff: ClassVar[Roundoff | None] = Roundoff.FUNCTION
    accepts: ClassVar[frozenset[ElementType]] = FLOATING | SIGNED | COMPLEX

    def propagate(self, run: ErrorRun) -> Array:
        """Return the change at both ends; for integers the operand's error."""
        return monotone(self, run) if is_inexact_type(run.value) else added(self, run)

    def compute(self, operand: Array) -> Array:
        """Return the sign; a zero keeps its own."""
        if operand.dtype.kind == "c":
            return complex_functions.sign(operand)
        if operand.dtype.kind == "f":
            return np.where(operand == 0, operand, np.sign(operand))
        return np.sign(operand)


@operation("not", "operand")
class Not(Logical):
    """The negation of a pred; all bits flipped of an integer."""

    compute = np.invert


class Rounding(Elementwise):
    """Operations that round floats to integral values."""

    __slots__ = ()
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    accepts: ClassVar[frozenset[ElementType]] = FLOATING

    def propagate(self, run: ErrorRun) -> Array:
        """Return the change at both ends; a type without 0 has NaN for it, which is no monotone result."""
        no_zero = np.isnan(run.value) & ~np.isnan(run.operands[0].value)
        return np.where(no_zero, np.inf, monotone(self, run))


@operation("floor", "operand")
class Floor(Rounding):
    """Rounds towards negative infinity to an integral value."""

    compute = np.floor


@operation("ceil", "operand")
class Ceil(Rounding):
    """Rounds towards positive infinity to an integral value."""

    compute = np.ceil


@operation("round-nearest-afz", "operand")
class RoundNearestAfz(Rounding):
    """Rounds to the nearest integral value, halves away from zero."""

    def compute(self, operand: Array) -> Array:
        """Round by the fraction, which is exact, so that 0.49999999999999994 is not rounded up."""
        truncated = np.trunc(operand)
        up = np.abs(operand - truncated) >= 0.5
        return np.where(up, truncated + np.copysign(operand.dtype.type(1), operand), truncated)


@operation("round-nearest-even", "operand")
class RoundNearestEven(Rounding):
    """Rounds to the nearest integral value, halves to the even one."""

    compute = np.rint


@operation("is-finite", "operand")
class IsFinite(Rounding):
    """True for elements that are neither infinite nor NaN, as pred."""

    def errors(self, run: ErrorRun) -> Array:
        """Return 1 where the error is infinite."""
        return np.isinf(run.operands[0].spread).astype(np.float64)

    def result_type(self, operand: ElementType) -> ElementType:
        return PRED

    compute = np.isfinite


class ComplexPart(Elementwise):
    """Operations that extract a part of a complex number."""

    __slots__ = ()
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    propagate = added
    accepts: ClassVar[frozenset[ElementType]] = FLOATING | COMPLEX

    def result_type(self, operand: ElementType) -> ElementType:
        """Return f32 for c64, f64 for c128."""
        return operand.component


@operation("real", "operand")
class Real(ComplexPart):
    """The real part of a complex number; a float itself."""

    def compute(self, operand: Array) -> Array:
        return operand.real


@operation("imag", "operand")
class Imag(ComplexPart):
    """The imaginary part of a complex number; 0 of a float."""

    def compute(self, operand: Array) -> Array:
        return operand.imag


@operation("popcnt", "operand")
class PopulationCount(Patterned):
    """The number of bits that are set."""

    def patterns(self, element_type: ElementType, operand: Array) -> Array:
        """Count the set bits of the pattern."""
        return np.bitwise_count(operand)


@operation("count-leading-zeros", "operand")
class CountLeadingZeros(Patterned):
    """The number of zero bits above the highest bit that is set; all bits for 0."""

    def patterns(self, element_type: ElementType, operand: Array) -> Array:
        """Set all bits below the highest set one and count."""
        shift = 1
        while shift < element_type.bits:
            operand = operand | (operand >> operand.dtype.type(shift))
            shift *= 2
        return np.uint8(element_type.bits) - np.bitwise_count(operand)
