"""Elementwise functions with rounded results: roots, exponentials, logarithms, trigonometry ...

All are computed in double precision, so that results of f32 and of narrower types are nearly always correctly
rounded. ``result_accuracy`` allows less; the evaluator ignores it.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from hloom.error_bounds.rules import monotone, no_bound
from hloom.ir.accuracy import ResultAccuracy, result_accuracy
from hloom.ir.operation import Array, ErrorRun, operation
from hloom.ir.traits import ElementCost, Roundoff
from hloom.operations import complex_functions
from hloom.operations.elementwise import COMPLEX, FLOATING, Elementwise
from hloom.operations.rounding import double
from hloom.records import dataclass
from hloom.shape.element_type import ElementType


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcendental(Elementwise):
    """A function of a float or complex number, in double precision."""

    element_cost: ClassVar[ElementCost] = ElementCost.TRANSCENDENTAL
    roundoff: ClassVar[Roundoff] = Roundoff.FUNCTION
    propagate = monotone
    transcendental: ClassVar[bool] = True
    accepts: ClassVar[frozenset[ElementType]] = FLOATING | COMPLEX
    result_accuracy: ResultAccuracy = result_accuracy()

    def widen(self, operand: Array) -> Array:
        return double(operand)


@operation("sqrt", "operand")
class SquareRoot(Transcendental):
    """The square root; NaN of negative numbers, the root with non-negative real part of complex ones."""

    element_cost: ClassVar[ElementCost] = ElementCost.MODERATE
    roundoff: ClassVar[Roundoff] = Roundoff.ONCE
    complex_roundoff: ClassVar[Roundoff | None] = Roundoff.FUNCTION

    compute = np.sqrt


@operation("rsqrt", "operand")
class ReciprocalSquareRoot(Transcendental):
    """The reciprocal of the square root."""

    element_cost: ClassVar[ElementCost] = ElementCost.MODERATE

    def compute(self, operand: Array) -> Array:
        """Compute 1 / sqrt; infinite at 0."""
        if operand.dtype.kind == "c":
            return complex_functions.reciprocal_square_root(operand)
        return 1 / np.sqrt(operand)


@operation("cbrt", "operand")
class CubeRoot(Transcendental):
    """The real cube root."""

    accepts: ClassVar[frozenset[ElementType]] = FLOATING

    compute = np.cbrt


@operation("exponential", "operand")
class Exponential(Transcendental):
    """e to the power of the operand."""

    often_underflows: ClassVar[bool] = True
    never_negative_zero: ClassVar[bool] = True

    compute = np.exp


@operation("exponential-minus-one", "operand")
class ExponentialMinusOne(Transcendental):
    """e to the power of the operand, minus 1, exact also near 0."""

    def compute(self, operand: Array) -> Array:
        """Compute complex numbers by parts."""
        return complex_functions.expm1(operand) if operand.dtype.kind == "c" else np.expm1(operand)


@operation("exp2", "operand")
class ExponentialBase2(Transcendental):
    """2 to the power of the operand."""

    never_negative_zero: ClassVar[bool] = True

    def compute(self, operand: Array) -> Array:
        """Compute complex numbers as e to the power of the operand times log 2."""
        return np.exp(operand * math.log(2)) if operand.dtype.kind == "c" else np.exp2(operand)


@operation("log", "operand")
class Logarithm(Transcendental):
    """The natural logarithm."""

    compute = np.log


@operation("log-plus-one", "operand")
class LogarithmPlusOne(Transcendental):
    """The natural logarithm of 1 plus the operand, exact also near 0."""

    def compute(self, operand: Array) -> Array:
        """Compute complex numbers by parts."""
        return complex_functions.log1p(operand) if operand.dtype.kind == "c" else np.log1p(operand)


@operation("log2", "operand")
class LogarithmBase2(Transcendental):
    """The logarithm to base 2."""

    def compute(self, operand: Array) -> Array:
        """Compute complex numbers as the natural logarithm divided by log 2."""
        return np.log(operand) / math.log(2) if operand.dtype.kind == "c" else np.log2(operand)


@operation("logistic", "operand")
class Logistic(Transcendental):
    """1 / (1 + exp(-operand))."""

    often_underflows: ClassVar[bool] = True
    never_negative_zero: ClassVar[bool] = True

    def compute(self, operand: Array) -> Array:
        """Compute by exp(-|x|), which does not overflow and keeps small results exact."""
        if operand.dtype.kind == "c":
            return complex_functions.logistic(operand)
        decay = np.exp(-np.abs(operand))
        return np.where(operand < 0, decay, 1.0) / (1.0 + decay)


def oscillating(self: Transcendental, run: ErrorRun) -> Array:
    """Bound a real sine or cosine: its slope is at most 1, and two values differ by at most 2."""
    if run.value.dtype.kind == "c":
        raise no_bound(run)
    return np.minimum(run.operands[0].spread, 2.0)


@operation("sine", "operand")
class Sine(Transcendental):
    """The sine of an angle in radians."""

    propagate = oscillating

    compute = np.sin


@operation("cosine", "operand")
class Cosine(Transcendental):
    """The cosine of an angle in radians."""

    propagate = oscillating

    compute = np.cos


@operation("tan", "operand")
class Tangent(Transcendental):
    """The tangent of an angle in radians."""

    compute = np.tan


@operation("asin", "operand")
class ArcSine(Transcendental):
    """The angle whose sine the operand is."""

    compute = np.arcsin


@operation("acos", "operand")
class ArcCosine(Transcendental):
    """The angle whose cosine the operand is."""

    compute = np.arccos


@operation("sinh", "operand")
class HyperbolicSine(Transcendental):
    """The hyperbolic sine."""

    compute = np.sinh


@operation("cosh", "operand")
class HyperbolicCosine(Transcendental):
    """The hyperbolic cosine."""

    compute = np.cosh


@operation("tanh", "operand")
class HyperbolicTangent(Transcendental):
    """The hyperbolic tangent."""

    compute = np.tanh


@operation("asinh", "operand")
class InverseHyperbolicSine(Transcendental):
    """The number whose hyperbolic sine the operand is."""

    compute = np.arcsinh


@operation("acosh", "operand")
class InverseHyperbolicCosine(Transcendental):
    """The non-negative number whose hyperbolic cosine the operand is; NaN below 1."""

    compute = np.arccosh


@operation("atanh", "operand")
class InverseHyperbolicTangent(Transcendental):
    """The number whose hyperbolic tangent the operand is; NaN outside [-1, 1]."""

    compute = np.arctanh


@operation("erf", "operand")
class ErrorFunction(Transcendental):
    """The error function, 2 / sqrt(pi) times the integral of exp(-t²) from 0 to the operand."""

    accepts: ClassVar[frozenset[ElementType]] = FLOATING

    def compute(self, operand: Array) -> Array:
        return np.asarray(np.frompyfunc(math.erf, 1, 1)(operand), np.float64)


@operation("erfc", "operand")
class ComplementaryErrorFunction(Transcendental):
    """1 minus the error function, exact also where that vanishes.

    XLA has no such operation: programs of JAX name it by composite calls of ``chlo.erfc``.
    """

    accepts: ClassVar[frozenset[ElementType]] = FLOATING

    def compute(self, operand: Array) -> Array:
        return np.asarray(np.frompyfunc(math.erfc, 1, 1)(operand), np.float64)
