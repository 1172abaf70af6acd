"""Elementwise operations of two numbers: add, subtract, multiply, divide, remainder, power, shifts ...

The page "Element-wise binary arithmetic operations"; no operand values trap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from hloom.error_bounds.bounded import Bounded, is_inexact_type
from hloom.error_bounds.floating import wide
from hloom.error_bounds.rules import added, any_bits, largest, magnitude, monotone, multiplied
from hloom.ir.operation import Array, ErrorRun, Run, operation
from hloom.ir.traits import ElementCost, Range, Roundoff
from hloom.operations import complex_functions
from hloom.operations.elementwise import ANY, COMPLEX, COMPONENT, FLOATING, INTEGER, PREDICATE, Elementwise
from hloom.operations.rounding import double, narrow
from hloom.shape.element_type import C64, C128, F8E8M0FNU, F32, ElementType


@operation("add", "lhs rhs")
class Add(Elementwise):
    """The sum of ``lhs`` and ``rhs``. Integers wrap; for pred it is their disjunction."""

    roundoff: ClassVar[Roundoff] = Roundoff.ONCE
    commutative: ClassVar[bool] = True
    accepts: ClassVar[frozenset[ElementType]] = ANY

    def value_range(self, element_type: ElementType, *ranges: Range) -> Range | None:
        """Add the bounds; return None for pred, where addition is disjunction."""
        (a, b), (c, d) = ranges
        return None if element_type.is_predicate else (a + c, b + d)

    def neutral_element(self, element_type: ElementType) -> float | int | None:
        """Return -0 for floats (0 + -0 is 0, not -0), 0 for integers and predicates."""
        return -0.0 if element_type.is_floating else None if element_type.is_complex else 0

    propagate = added

    compute = np.add


@operation("subtract", "lhs rhs")
class Subtract(Elementwise):
    """The difference of ``lhs`` and ``rhs``. Integers wrap."""

    roundoff: ClassVar[Roundoff] = Roundoff.ONCE

    def value_range(self, element_type: ElementType, *ranges: Range) -> Range | None:
        """Subtract the bounds, crosswise."""
        (a, b), (c, d) = ranges
        return a - d, b - c

    propagate = added

    compute = np.subtract


@operation("multiply", "lhs rhs")
class Multiply(Elementwise):
    """The product of ``lhs`` and ``rhs``. Integers wrap; for pred it is their conjunction.

    (a + bi)(c + di) is (ac - bd) + (ad + bc)i, each operation rounded separately.
    """

    roundoff: ClassVar[Roundoff] = Roundoff.ONCE
    commutative: ClassVar[bool] = True
    accepts: ClassVar[frozenset[ElementType]] = ANY

    def value_range(self, element_type: ElementType, *ranges: Range) -> Range | None:
        """Take the extremes of the products of bounds."""
        first, second = ranges
        products = [a * b for a in first for b in second]
        return min(products), max(products)

    def neutral_element(self, element_type: ElementType) -> float | int | None:
        return None if element_type.is_complex else 1.0 if element_type.is_floating else 1

    propagate = multiplied

    def compute(self, lhs: Array, rhs: Array) -> Array:
        """Multiply complex numbers by parts, because numpy may contract to fused multiply-adds."""
        if lhs.dtype.kind != "c":
            return lhs * rhs
        a, b, c, d = lhs.real, lhs.imag, rhs.real, rhs.imag
        return complex_functions.compose(a * c - b * d, a * d + b * c)


@operation("divide", "lhs rhs")
class Divide(Elementwise):
    """The quotient of ``lhs`` and ``rhs``.

    Integer quotients are truncated towards zero; x / 0 has all bits set, and the smallest integer divided by
    -1 is itself.
    """

    element_cost: ClassVar[ElementCost] = ElementCost.MODERATE
    roundoff: ClassVar[Roundoff] = Roundoff.ONCE
    complex_roundoff: ClassVar[Roundoff | None] = Roundoff.FUNCTION

    def value_range(self, element_type: ElementType, *ranges: Range) -> Range | None:
        """Take the extremes of the quotients by positive divisors."""
        first, (least, greatest) = ranges
        if least <= 0 or any(abs(a) >= 1 << 50 for a in first):
            return None
        quotients = [int(a / b) for a in first for b in (least, greatest)]
        return min(quotients), max(quotients)

    def propagate(self, run: ErrorRun) -> Array:
        """Bound quotients by the divisor nearest to 0; quotients of undecided integers may be any."""
        if not is_inexact_type(run.value):
            return any_bits(self, run)
        x, y = run.operands
        least = magnitude(y) - y.spread
        errors = x.spread + magnitude(Bounded(run.value)) * y.spread
        return np.where(least > 0, errors / least, np.inf)

    def compute(self, lhs: Array, rhs: Array) -> Array:
        """Divide: integers truncating without traps, floats by IEEE 754, complex numbers by Annex G."""
        if lhs.dtype.kind in "iu":
            return np.where(rhs == 0, ~lhs.dtype.type(0), truncated_division(lhs, rhs)[0])
        if lhs.dtype.kind == "c":
            return complex_functions.divide(double(lhs), double(rhs))
        return lhs / rhs


@operation("remainder", "lhs rhs")
class Remainder(Elementwise):
    """The remainder of dividing ``lhs`` by ``rhs``; it has the sign of ``lhs``.

    For integers the remainder by 0 is ``lhs`` itself, for floats NaN.
    """

    element_cost: ClassVar[ElementCost] = ElementCost.MODERATE
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    propagate = any_bits
    accepts: ClassVar[frozenset[ElementType]] = FLOATING | INTEGER

    def value_range(self, element_type: ElementType, *ranges: Range) -> Range | None:
        """Return a range with the dividend's sign, less than a positive divisor."""
        (low, high), (least, greatest) = ranges
        if least <= 0:
            return None
        most = greatest - 1
        return max(low, -most) if low < 0 else 0, min(high, most) if high > 0 else 0

    def compute(self, lhs: Array, rhs: Array) -> Array:
        """Return the exact remainder, as fmod does."""
        if lhs.dtype.kind in "iu":
            return np.where(rhs == 0, lhs, truncated_division(lhs, rhs)[1])
        return np.fmod(lhs, rhs)


def truncated_division(lhs: Array, rhs: Array) -> tuple[Array, Array]:
    """Return truncated quotient and remainder of integers; a divisor of 0 counts as 1, MIN / -1 wraps."""
    zero = rhs == 0
    overflow = (rhs == -1) if lhs.dtype.kind == "i" else np.zeros_like(zero)
    safe = np.where(zero | overflow, rhs.dtype.type(1), rhs)
    floor = lhs // safe
    inexact = (lhs - floor * safe != 0) & ((lhs < 0) != (safe < 0))
    quotient = np.where(overflow, -lhs, floor + inexact.astype(lhs.dtype))
    return quotient, np.where(overflow, lhs.dtype.type(0), lhs - quotient * safe)


class Extreme(Elementwise):
    """The larger or the smaller of two numbers."""

    __slots__ = ()
    copied_operands: ClassVar[tuple[int, ...]] = (0, 1)
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    propagate = largest
    commutative: ClassVar[bool] = True
    idempotent: ClassVar[bool] = True
    accepts: ClassVar[frozenset[ElementType]] = ANY


@operation("maximum", "lhs rhs")
class Maximum(Extreme):
    """The larger of ``lhs`` and ``rhs``: NaN if either is, +0 rather than -0; for pred their disjunction.

    Complex numbers are ordered by their real, then by their imaginary part.
    """

    def value_range(self, element_type: ElementType, *ranges: Range) -> Range | None:
        """Take the larger bounds."""
        (a, b), (c, d) = ranges
        return max(a, c), max(b, d)

    def neutral_element(self, element_type: ElementType) -> float | int | None:
        return lowest_value(element_type)

    def compute(self, lhs: Array, rhs: Array) -> Array:
        return maximum(lhs, rhs)


@operation("minimum", "lhs rhs")
class Minimum(Extreme):
    """The smaller of ``lhs`` and ``rhs``: NaN if either is, -0 rather than +0; for pred their conjunction.

    Complex numbers are ordered by their real, then by their imaginary part.
    """

    def value_range(self, element_type: ElementType, *ranges: Range) -> Range | None:
        """Take the smaller bounds."""
        (a, b), (c, d) = ranges
        return min(a, c), min(b, d)

    def neutral_element(self, element_type: ElementType) -> float | int | None:
        return highest_value(element_type)

    def compute(self, lhs: Array, rhs: Array) -> Array:
        return minimum(lhs, rhs)


def maximum(lhs: Array, rhs: Array) -> Array:
    """Return the larger number, NaN if either is NaN, and +0 rather than -0."""
    larger = np.maximum(lhs, rhs)
    return np.where((lhs == 0) & (rhs == 0), lhs + rhs, larger) if larger.dtype.kind == "f" else larger


def minimum(lhs: Array, rhs: Array) -> Array:
    """Return the smaller number, NaN if either is NaN, and -0 rather than +0."""
    smaller = np.minimum(lhs, rhs)
    return np.where((lhs == 0) & (rhs == 0), -(-lhs - rhs), smaller) if smaller.dtype.kind == "f" else smaller


@operation("power", "lhs rhs")
class Power(Elementwise):
    """``lhs`` to the power of ``rhs``, with IEEE 754's special cases for floats.

    Integer powers wrap. A negative integer exponent gives the truncated fraction: 1 for the base 1, 1 or -1
    for the base -1, 0 for all others.
    """

    element_cost: ClassVar[ElementCost] = ElementCost.TRANSCENDENTAL
    roundoff: ClassVar[Roundoff] = Roundoff.FUNCTION
    transcendental: ClassVar[bool] = True

    def propagate(self, run: ErrorRun) -> Array:
        """Take floats at the corners of both intervals; powers of undecided integers may be any."""
        return monotone(self, run) if is_inexact_type(run.value) else any_bits(self, run)

    def errors(self, run: ErrorRun) -> Array:
        """Bound nothing where ``rhs log(lhs)``, of which complex powers are the exponential, is off by 1."""
        errors = Elementwise.errors(self, run)
        if run.value.dtype.kind != "c":
            return errors
        base, exponent = (np.abs(wide(o.value)) for o in run.operands)
        with np.errstate(all="ignore"):
            logarithm = exponent * (np.abs(np.log(base)) + np.pi)
        numbers = (base > 0) & np.isfinite(base) & np.isfinite(exponent)
        return np.where(numbers & (logarithm * np.finfo(np.float64).eps >= 1), np.inf, errors)

    def compute(self, lhs: Array, rhs: Array) -> Array:
        """Square repeatedly for integers, compute floats in f64, complex numbers by the logarithm."""
        if lhs.dtype.kind in "iu":
            return integer_power(lhs, rhs)
        if lhs.dtype.kind == "c":
            return complex_functions.power(double(lhs), double(rhs))
        return np.power(double(lhs), double(rhs))

    def evaluate(self, run: Run, *operands: Any, **keywords: Any) -> Array:
        """Replace results that underflow in a type without zero by the type's smallest number."""
        result = Elementwise.evaluate(self, run, *operands)
        if run.dtype == F8E8M0FNU.dtype:
            vanished = np.isnan(result) & ~np.isnan(operands[0]) & ~np.isnan(operands[1])
            vanished &= operands[0] < operands[0].dtype.type(1)
            result = np.where(vanished, run.dtype.type(2.0**-127), result)
        return result


def integer_power(base: Array, exponent: Array) -> Array:
    """Return the power modulo the type's range; every bit of the exponent counts."""
    base, exponent = np.broadcast_arrays(base, exponent)
    result = np.ones_like(base)
    square = base
    remaining = exponent
    for _ in range(8 * base.dtype.itemsize):
        result = np.where(remaining & 1 != 0, result * square, result)
        square = square * square
        remaining = remaining >> 1
    of_minus_one = np.where(exponent & 1 != 0, base, base * base)
    fraction = np.where(np.isin(base, (1, -1)), of_minus_one, base.dtype.type(0))
    return np.where(exponent < 0, fraction, result)


@operation("atan2", "lhs rhs")
class Atan2(Elementwise):
    """The angle of the point with ordinate ``lhs`` and abscissa ``rhs``, in radians from -pi to pi.

    For complex numbers it is -i log((rhs + lhs i) / sqrt(rhs² + lhs²)).
    """

    element_cost: ClassVar[ElementCost] = ElementCost.TRANSCENDENTAL
    roundoff: ClassVar[Roundoff] = Roundoff.FUNCTION
    propagate = monotone
    transcendental: ClassVar[bool] = True
    accepts: ClassVar[frozenset[ElementType]] = FLOATING | COMPLEX

    def widen(self, operand: Array) -> Array:
        return double(operand)

    def compute(self, lhs: Array, rhs: Array) -> Array:
        return complex_functions.atan2(lhs, rhs) if lhs.dtype.kind == "c" else np.arctan2(lhs, rhs)


@operation("complex", "real imag")
class Complex(Elementwise):
    """The complex number with the given real and imaginary part."""

    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    propagate = added
    accepts: ClassVar[frozenset[ElementType]] = COMPONENT

    def result_type(self, operand: ElementType) -> ElementType:
        """Return c64 for f32, c128 for f64."""
        return C64 if operand is F32 else C128

    def compute(self, real: Array, imag: Array) -> Array:
        """Combine both parts bit by bit."""
        return complex_functions.compose(real, imag)


class Logical(Elementwise):
    """Operations on pred and on the bits of integers."""

    __slots__ = ()
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    accepts: ClassVar[frozenset[ElementType]] = INTEGER | PREDICATE

    def propagate(self, run: ErrorRun) -> Array:
        """Bits of an undecided integer may be any; a predicate is undecided where `undecided` says so."""
        if run.value.dtype != np.bool_:
            return any_bits(self, run)
        true = [o.value | (o.spread > 0) for o in run.operands]
        false = [~o.value | (o.spread > 0) for o in run.operands]
        return np.asarray(self.undecided(true, false), np.float64)

    def integer_errors(self, run: ErrorRun) -> Array:
        """Return the errors as they are: bits do not wrap around."""
        return self.propagate(run)

    def undecided(self, true: Sequence[Array], false: Sequence[Array]) -> Array:
        """Return where the result may be either, from where each operand may be true and may be false."""
        return np.logical_or.reduce([t & f for t, f in zip(true, false, strict=True)])


@operation("and", "lhs rhs")
class And(Logical):
    """The conjunction of ``lhs`` and ``rhs``, bit by bit for integers."""

    commutative: ClassVar[bool] = True
    idempotent: ClassVar[bool] = True

    def value_range(self, element_type: ElementType, *ranges: Range) -> Range | None:
        """Return a range with no more bits than a non-negative operand has."""
        bounds = [high for low, high in ranges if low >= 0]
        return (0, min(bounds)) if bounds else None

    def neutral_element(self, element_type: ElementType) -> float | int | None:
        """Return the pattern with all bits set."""
        return all_ones(element_type)

    def undecided(self, true: Sequence[Array], false: Sequence[Array]) -> Array:
        """Return where both may be true and one may be false."""
        return (true[0] & true[1]) & (false[0] | false[1])

    compute = np.bitwise_and


@operation("or", "lhs rhs")
class Or(Logical):
    """The disjunction of ``lhs`` and ``rhs``, bit by bit for integers."""

    commutative: ClassVar[bool] = True
    idempotent: ClassVar[bool] = True

    def neutral_element(self, element_type: ElementType) -> float | int | None:
        """Return 0, the pattern with no bit set."""
        return 0

    def undecided(self, true: Sequence[Array], false: Sequence[Array]) -> Array:
        """Return where both may be false and one may be true."""
        return (true[0] | true[1]) & (false[0] & false[1])

    compute = np.bitwise_or


@operation("xor", "lhs rhs")
class Xor(Logical):
    """The exclusive or of ``lhs`` and ``rhs``, bit by bit for integers."""

    commutative: ClassVar[bool] = True

    def neutral_element(self, element_type: ElementType) -> float | int | None:
        """Return 0, the pattern with no bit set."""
        return 0

    compute = np.bitwise_xor


class Patterned(Elementwise):
    """Operations on the bit patterns of integers: shifts, bit counts, the high half of a product."""

    __slots__ = ()
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    propagate = any_bits
    accepts: ClassVar[frozenset[ElementType]] = INTEGER

    patterns: ClassVar[Callable[..., Any]]
    """A method: the result for an element type and operands as unsigned patterns of the type's width."""

    def evaluate(self, run: Run, *operands: Array) -> Array:
        """Compute on the bit patterns and keep the low bits of the type's width."""
        element_type = ElementType.from_dtype(operands[0].dtype)
        with np.errstate(all="ignore"):
            return narrow(self.patterns(element_type, *(pattern(o) for o in operands)), run.dtype)


def pattern(array: Array) -> Array:
    """Return the bits of integers as unsigned integers of at least a byte."""
    element_type = ElementType.from_dtype(array.dtype)
    unsigned = array.astype(np.dtype(f"u{element_type.bytes}"))
    if element_type.bits < 8:
        unsigned = unsigned & np.uint8((1 << element_type.bits) - 1)
    return unsigned


def signed(array: Array, bits: int) -> Array:
    """Return the integers that patterns of ``bits`` bits represent in two's complement."""
    surplus = array.dtype.type(8 * array.dtype.itemsize - bits)
    shifted = np.asarray(array << surplus)
    kind = np.dtype(f"i{array.dtype.itemsize}")
    return shifted.view(kind) >> kind.type(surplus)


@operation("shift-left", "lhs rhs")
class ShiftLeft(Patterned):
    """``lhs`` shifted left by ``rhs`` bits, a count read as unsigned; 0 if nothing is left."""

    def patterns(self, element_type: ElementType, lhs: Array, rhs: Array) -> Array:
        """Shift zeros in from the right."""
        return np.where(rhs < element_type.bits, lhs << in_range(rhs, element_type.bits), lhs.dtype.type(0))


@operation("shift-right-arithmetic", "lhs rhs")
class ShiftRightArithmetic(Patterned):
    """``lhs`` shifted right by ``rhs`` bits, a count read as unsigned, with copies of the sign bit coming in.

    That holds for unsigned types too. If nothing is left, the result is 0 or has all bits set, by the sign.
    """

    def value_range(self, element_type: ElementType, *ranges: Range) -> Range | None:
        """Return the range of the quotients, rounded down, of numbers that are the same with a sign."""
        (low, high), (least, most) = ranges
        if least < 0 or high >= 1 << element_type.bits - 1:
            return None
        least, most = min(least, element_type.bits - 1), min(most, element_type.bits - 1)
        return min(low >> least, low >> most), max(high >> least, high >> most)

    def patterns(self, element_type: ElementType, lhs: Array, rhs: Array) -> Array:
        """Clamp the count to the type's width less 1."""
        return signed(lhs, element_type.bits) >> in_range(rhs, element_type.bits).astype(
            f"i{lhs.dtype.itemsize}"
        )


@operation("shift-right-logical", "lhs rhs")
class ShiftRightLogical(Patterned):
    """``lhs`` shifted right by ``rhs`` bits, a count read as unsigned; zeros come in."""

    def value_range(self, element_type: ElementType, *ranges: Range) -> Range | None:
        """Return the range of the quotients, rounded down, of numbers that are not negative."""
        (low, high), (least, most) = ranges
        return (low >> most, high >> least) if low >= 0 and least >= 0 else None

    def patterns(self, element_type: ElementType, lhs: Array, rhs: Array) -> Array:
        """Shift zeros in from the left."""
        return np.where(rhs < element_type.bits, lhs >> in_range(rhs, element_type.bits), lhs.dtype.type(0))


def in_range(count: Array, bits: int) -> Array:
    """Return shift counts clamped to ``bits`` - 1."""
    return np.minimum(count, count.dtype.type(bits - 1))


@operation("mulhi", "lhs rhs")
class MultiplyHigh(Patterned):
    """The high half of the double-width product of two integers."""

    accepts: ClassVar[frozenset[ElementType]] = INTEGER

    def patterns(self, element_type: ElementType, lhs: Array, rhs: Array) -> Array:
        """Compute the unsigned high half by 32-bit limbs, then subtract 2^bits for each negative factor."""
        bits = element_type.bits
        if bits == 64:
            high = high_half(lhs, rhs)
        else:
            high = ((lhs.astype(np.uint64) * rhs.astype(np.uint64)) >> np.uint64(bits)).astype(lhs.dtype)
        if not element_type.is_signed:
            return high
        zero = lhs.dtype.type(0)
        negative = [signed(factor, bits) < 0 for factor in (lhs, rhs)]
        return high - np.where(negative[0], rhs, zero) - np.where(negative[1], lhs, zero)


def high_half(lhs: Array, rhs: Array) -> Array:
    """Return the upper 64 bits of the product of u64 numbers."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a, b, c, d = lhs >> half, lhs & low, rhs >> half, rhs & low
    middle = a * d + ((b * d) >> half)
    return a * c + (middle >> half) + ((b * c + (middle & low)) >> half)


def lowest_value(element_type: ElementType) -> float | int | None:
    """Return the least value of a type, -infinity where it has one; None for complex types."""
    return _extreme_value(element_type, 0)


def highest_value(element_type: ElementType) -> float | int | None:
    """Return the greatest value of a type, infinity where it has one; None for complex types."""
    return _extreme_value(element_type, 1)


def _extreme_value(element_type: ElementType, side: int) -> float | int | None:
    if element_type.is_complex:
        return None
    finite = element_type.limits[side]
    if not element_type.is_floating:
        return int(finite)
    infinity = np.asarray([-np.inf, np.inf][side]).astype(element_type.numpy_dtype)
    return float(infinity) if np.isinf(infinity) else float(finite)


def all_ones(element_type: ElementType) -> int:
    """Return the integer whose bits are all set."""
    return -1 if element_type.is_integer and element_type.is_signed else int(element_type.limits[1])
