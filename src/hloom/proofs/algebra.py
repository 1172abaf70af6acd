"""The laws by which fingerprints of elements are equal: over bits, or over the real numbers.

Over bits, the result of a rounded operation is an unknown function of its operands: equal operands give equal
results, and the operands of commutative operations may be exchanged. Integers form a ring, predicates are 0
and 1, and maximum, minimum, `and` and `or` do not depend on order and grouping. Over the reals, the
operations of f32, f64 and complex numbers are those of a field; a conversion to a narrower type, and every
operation of types narrower than f32, rounds by an unknown function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np

from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.ir.value import Array
from hloom.operations.arithmetic import (
    Add,
    And,
    Divide,
    Maximum,
    Minimum,
    Multiply,
    Or,
    Power,
    Remainder,
    ShiftLeft,
    ShiftRightLogical,
    Subtract,
    Xor,
)
from hloom.operations.comparison import Clamp, Compare, Select
from hloom.operations.conversion import Convert, Copy
from hloom.operations.transcendental import (
    Exponential,
    ExponentialMinusOne,
    Logarithm,
    LogarithmPlusOne,
    Logistic,
    ReciprocalSquareRoot,
    SquareRoot,
)
from hloom.operations.unary import Negate, Not
from hloom.proofs import field
from hloom.proofs.degrees import LARGEST_POWER, largest
from hloom.proofs.field import Residues, salt_of
from hloom.proofs.prints import Bag, Prints, residues_of
from hloom.proofs.ranges import compared_with_numbers, within_range
from hloom.records import dataclass
from hloom.shape.element_type import F32, F64, PRED, S32, S64, ElementType
from hloom.shape.float_format import float_format

_LARGEST_DENOMINATOR: Final = 4096
_MOST_FRACTIONS: Final = 4096
"""Maximum number of elements of a constant that is searched for fractions."""


MOST_EXPONENT: Final = 100
"""The reciprocal of a power of two with a smaller exponent is a normal number."""

_SIGNED: Final = {F32: S32, F64: S64}
"""The integers of the same width; the bits of narrower floats are ordered as f32's."""


Extreme: TypeAlias = Maximum | Minimum | And | Or
"""Operations that combine equal operands into their value, in any order."""


@dataclass(frozen=True, kw_only=True)
class Algebra:
    """The rules by which the fingerprints of an operation's results follow from those of its operands.

    Attributes:
        reals: whether elements that are equal over the real numbers have equal fingerprints.
        has_fractions: whether 1 / x is the inverse in the field for unknown x. Otherwise it is a random
            function: x / x is not 1, but degrees stay small, while those of sums of fractions are large.
    """

    reals: bool
    has_fractions: bool = True

    def known(self, value: object) -> Prints:
        """Return the fingerprints of an array of known numbers, such as a constant."""
        array = np.asarray(value)
        residues = residues_of(array, signed_zeros=not self.reals)
        if self.reals and array.size <= _MOST_FRACTIONS and ElementType.from_dtype(array.dtype) in (F32, F64):
            residues = _fractions(array, residues)
        return Prints(residues, array)

    def forms_ring(self, element_type: ElementType) -> bool:
        """Return whether sums and products of a type obey the laws of a ring."""
        if element_type.is_integer:
            return True
        return self.reals and (element_type.is_floating or element_type.is_complex)

    def rounded(self, residues: Residues, element_type: ElementType) -> Prints:
        """Return the fingerprints of exact results as a type, rounded if the type is narrower than f32."""
        if not is_rounded(element_type):
            return Prints(np.asarray(residues))
        return Prints(np.asarray(field.mix(salt_of("round", element_type.name), residues)))

    def inverse(self, x: Prints) -> Residues:
        """Return the fingerprints of 1 / x; that of infinity where x is 0."""
        if self.has_fractions or x.value is not None:
            return np.where(x.residues == 0, field.INFINITY, field.inverse(x.residues))
        return field.mix(salt_of("inverse"), x.residues)

    def converted(self, x: Prints, before: ElementType, after: ElementType) -> Prints:
        """Return the fingerprints of elements converted from a type to another."""
        if before == after:
            return x
        if before.is_predicate or (before.is_integer and x.format == PRED):
            no, yes = self.known(np.asarray([False, True]).astype(after.numpy_dtype)).residues
            chosen = field.add(no, field.multiply(x.residues, field.subtract(yes, no)))
            return Prints(np.asarray(chosen), format=PRED if after.is_integer and after.bits > 1 else None)
        if before.is_floating and after.is_floating:
            source = x.format or before
            if contains(after, source):
                return Prints(x.residues, format=None if source == after else source)
            return Prints(field.mix(salt_of("round", after.name), x.residues))
        return Prints(field.mix(salt_of("convert", before.name, after.name), x.residues))

    def reinterpreted(self, x: Prints, before: ElementType, after: ElementType) -> Prints:
        """Return the fingerprints of elements whose bits are read as another type of the same width."""
        return Prints(self._bits(x.residues, before, after))

    @staticmethod
    def _bits(residues: Residues, before: ElementType, after: ElementType) -> Residues:
        return field.mix(salt_of("bits", before.name, after.name), residues)

    def elementwise(self, i: HloInstruction, operands: list[Prints]) -> Prints:
        """Return the results of an elementwise operation."""
        if isinstance(i.operation, Copy):
            return operands[0]
        kind, source = i.shape.element_type, i.operands[0].shape.element_type
        if isinstance(i.operation, Convert):
            return self.converted(operands[0], source, kind)
        selection = within_range(i.operation, kind, operands) or self._chosen(i, operands)
        if selection is not None:
            return selection
        residues = [x.residues for x in operands]
        if kind.is_predicate:
            residues = _against_bounds(i.operation, operands)
            operands = [replace(x, residues=r) for x, r in zip(operands, residues, strict=True)]
            in_range = compared_with_numbers(i.operation, source, operands)
            if in_range is not None:
                return in_range
            logical = self._logical(i, source, residues)
            if logical is not None:
                return Prints(np.asarray(logical))
        elif self.forms_ring(kind):
            ring = self._ring(i, kind, operands)
            if ring is not None:
                return self.rounded(ring, kind)
        if self.reals and kind.is_floating and kind == source:
            exact = _computed_in(kind)
            return self.rounded(self._function(i.operation, exact, exact, residues), kind)
        exact = self._exact(i, kind, operands) if kind.is_floating else None
        return Prints(exact if exact is not None else self._function(i.operation, source, kind, residues))

    def _exact(self, i: HloInstruction, kind: ElementType, operands: list[Prints]) -> Residues | None:
        """Return x + x as 2 x, and x / 2^n as a product: rounded alike, for all x. None for others."""
        a, b = np.broadcast_arrays(*(x.residues for x in operands)) if len(operands) == 2 else (None, None)
        if a is None or b is None:
            return None
        match i.operation:
            case Add() if (same := a == b).any():
                two = np.broadcast_to(field.number(2), a.shape)
                twice = self._commutative(Multiply(), kind, kind, a, two)
                return np.where(same, twice, self._function(i.operation, kind, kind, [a, b]))
            case Divide() if operands[1].value is not None and kind in (F32, F64):
                mantissas, exponents = np.frexp(np.asarray(operands[1].value))
                if (np.abs(mantissas) != 0.5).any() or (np.abs(exponents) > MOST_EXPONENT).any():
                    return None
                reciprocals = self.known(1 / np.asarray(operands[1].value)).residues
                return self._commutative(Multiply(), kind, kind, a, np.broadcast_to(reciprocals, a.shape))
            case _:
                return None

    def _chosen(self, i: HloInstruction, operands: list[Prints]) -> Prints | None:
        """Return the results of a select, clamp, maximum, minimum, or bitwise `and` or `or`; else None."""
        match i.operation:
            case Select():
                where, yes, no = operands
                if where.value is not None:
                    return either(where.value, yes, no)
                same = yes.residues == no.residues
                chosen = _selected(where.residues, yes.residues, no.residues)
                return Prints(np.asarray(np.where(same, yes.residues, chosen)))
            case Clamp():
                low, x, high = operands
                return self._extreme(Minimum, i, [self._extreme(Maximum, i, [low, x]), high])
            case Maximum() | Minimum():
                return self._extreme(type(i.operation), i, operands)
            case And() | Or() if not i.shape.element_type.is_predicate:
                return self._extreme(type(i.operation), i, operands)
            case _:
                return None

    def _extreme(self, operation: type[Extreme], i: HloInstruction, operands: list[Prints]) -> Prints:
        """Return the results of a maximum, minimum, `and` or `or`: order and grouping do not matter."""
        kind = i.shape.element_type
        if kind.is_complex:
            return Prints(np.asarray(self._function(i.operation, kind, kind, [x.residues for x in operands])))
        return self._joined(operation, kind, operands)

    def _joined(self, operation: type[Extreme], kind: ElementType, operands: list[Prints]) -> Prints:
        neutral = self.neutral(operation, kind)
        shape = np.broadcast_shapes(*(x.shape for x in operands))
        x, y = (each.moved(lambda array: np.broadcast_to(array, shape)) for each in operands)
        joined = Bag.of(operation.opcode, x, neutral).joined(Bag.of(operation.opcode, y, neutral))
        same = x.residues == y.residues
        result = joined.prints(operation.opcode, neutral)
        if not same.any():
            return result
        residues = np.asarray(np.where(same, x.residues, result.residues))
        return Prints(residues, bag=Bag.single(x).where(same, joined))

    def neutral(self, operation: type[Extreme], kind: ElementType) -> Residues | None:
        """Return the fingerprint of the neutral element of an operation on a type; None if it has none."""
        number = operation().neutral_element(kind)
        if number is None:
            return None
        return residues_of(np.asarray(number, kind.numpy_dtype), signed_zeros=not self.reals)

    def _logical(self, i: HloInstruction, source: ElementType, residues: list[Residues]) -> Residues | None:
        """Return the results of a logical operation or comparison as polynomials of 0 and 1; else None."""
        match i.operation:
            case Not():
                return field.subtract(field.ONE, residues[0])
            case And() | Multiply():
                a, b = np.broadcast_arrays(*residues)
                return np.where(a == b, a, field.multiply(a, b))
            case Or() | Add():
                a, b = (field.subtract(field.ONE, each) for each in np.broadcast_arrays(*residues))
                return field.subtract(field.ONE, np.where(a == b, a, field.multiply(a, b)))
            case Xor():
                return _comparison_of_predicates("NE", *residues)
            case Compare():
                return self.comparison(i.operation, source, *residues)
            case _:
                return None

    def comparison(self, operation: Compare, source: ElementType, a: Residues, b: Residues) -> Residues:
        """Return the results of a comparison: a function of its operands for "equal" and one for "less".

        Other directions are these functions of exchanged operands, or 1 minus them.
        """
        direction = operation.direction
        if source.is_floating and operation.comparison_type == "TOTALORDER":
            a, b = (self._in_total_order(x, source) for x in (a, b))
            source = _SIGNED[F64 if source == F64 else F32]
        if source.is_predicate:
            return _comparison_of_predicates(direction, a, b)
        exact = not (
            source.is_floating or source.is_complex
        )  # without NaN, which equals and precedes nothing

        def relation(word: str, a: Residues, b: Residues) -> Residues:
            return field.mix(salt_of(word, source.name), a, b)

        if direction in ("EQ", "NE"):
            equal = relation("equal", np.minimum(a, b), np.maximum(a, b))
            equal = np.where((a == b) & exact, field.ONE, equal)
            return equal if direction == "EQ" else field.subtract(field.ONE, equal)
        if direction in ("GT", "GE"):
            a, b = b, a
        if direction in ("LT", "GT"):
            return relation("less", a, b)
        # In a total order, a <= b is the opposite of b < a.
        return field.subtract(field.ONE, relation("less", b, a)) if exact else relation("at most", a, b)

    def _in_total_order(self, x: Residues, kind: ElementType) -> Residues:
        """Return integers in the total order of floats: their bits, below the sign inverted if negative."""
        kind = F64 if kind == F64 else F32
        signed = _SIGNED[kind]
        bits = self._bits(x, kind, signed)
        zero, largest = (field.of_integers(n) for n in (0, signed.limits[1]))
        is_negative = field.mix(salt_of("less", signed.name), bits, np.broadcast_to(zero, bits.shape))
        inverted = self._commutative(Xor(), signed, signed, bits, largest)
        return _selected(is_negative, inverted, bits)

    def _ring(self, i: HloInstruction, kind: ElementType, operands: list[Prints]) -> Residues | None:
        """Return the results of an operation that the field has, or None for other operations.

        These are sums and products, and over the reals also quotients, powers, and functions that are
        expressed by others, such as `exponential-minus-one`.
        """
        residues = [x.residues for x in operands]
        match i.operation:
            case Add():
                return field.add(*residues)
            case Subtract():
                return field.subtract(*residues)
            case Multiply():
                return field.multiply(*residues)
            case Negate():
                return field.negate(residues[0])
            case ShiftLeft():
                return _shifted(operands, kind)
            case ShiftRightLogical():
                return self._shifted_right(operands, kind)
            case Divide() | Remainder() if kind.is_integer:
                return self._of_magnitude(i.operation, operands, kind)
            case _:
                return self._fraction(i, operands) if kind.is_floating and self.reals else None

    def _shifted_right(self, operands: list[Prints], kind: ElementType) -> Residues | None:
        """Return x >> n as a function of x and 2^n, for known n."""
        powers = _powers_of_two(operands[1], kind)
        if powers is None:
            return None
        x, powers = np.broadcast_arrays(operands[0].residues, powers)
        return field.mix(salt_of("shifted right", kind.name), x, powers)

    def _of_magnitude(
        self, operation: Divide | Remainder, operands: list[Prints], kind: ElementType
    ) -> Residues | None:
        """Return quotients by known powers of two, shifted magnitudes, or remainders, their low bits."""
        x, divisor = operands[0].residues, operands[1].value
        if divisor is None or (divisor <= 0).any() or (divisor & (divisor - 1)).any():
            return None
        is_negative = field.number(0)
        if kind.is_signed:
            zero = np.broadcast_to(field.number(0), x.shape)
            is_negative = field.mix(salt_of("less", kind.name), x, zero)
        magnitude = _selected(is_negative, field.negate(x), x)
        if isinstance(operation, Remainder):
            result = self._joined(And, kind, [Prints(magnitude), self.known(divisor - 1)]).residues
        else:
            powers = np.broadcast_to(field.of_integers(divisor), magnitude.shape)
            result = field.mix(salt_of("shifted right", kind.name), magnitude, powers)
        return _selected(is_negative, field.negate(result), result)

    def _fraction(self, i: HloInstruction, operands: list[Prints]) -> Residues | None:
        x = operands[0].residues
        kind = _computed_in(i.shape.element_type)

        def function(name: str, argument: Residues) -> Residues:
            return field.mix(salt_of(name, kind.name), argument)

        match i.operation:
            case Divide():
                return field.multiply(x, self._reciprocal(operands[1]))
            case Power():
                return self._power(i, operands, function)
            case SquareRoot():
                return function(SquareRoot.opcode, x)
            case ReciprocalSquareRoot():
                return self.inverse(Prints(function(SquareRoot.opcode, x)))
            case Exponential():
                return function(Exponential.opcode, x)
            case ExponentialMinusOne():
                return field.subtract(function(Exponential.opcode, x), field.ONE)
            case Logarithm():
                return function(Logarithm.opcode, x)
            case LogarithmPlusOne():
                return function(Logarithm.opcode, field.add(x, field.ONE))
            case Logistic():
                exponential = function(Exponential.opcode, field.negate(x))
                return self.inverse(Prints(field.add(field.ONE, exponential)))
            case _:
                return None

    def _reciprocal(self, divisor: Prints) -> Residues:
        """Return the fingerprints of 1 / x; of a known x, the same for all elements, of 1 / x rounded.

        By this constant compilers multiply in place of dividing by x.
        """
        values: Array = np.asarray(divisor.value).reshape(-1)[:1]
        if divisor.value is None or values.dtype not in (np.float32, np.float64) or not values.size:
            return self.inverse(divisor)
        with np.errstate(all="ignore"):
            rounded = np.reciprocal(values)
        is_normal = np.isfinite(rounded) & (np.abs(rounded) >= np.finfo(values.dtype).tiny)
        if not is_normal.all() or (divisor.value != values).any():
            return self.inverse(divisor)
        return self.known(rounded[0]).residues

    def _power(
        self, i: HloInstruction, operands: list[Prints], function: Callable[[str, Residues], Residues]
    ) -> Residues | None:
        """Return x to the power of a known multiple of 1/2, the same for all elements, if it is small.

        Returns None for other exponents. x^(3/2) is x times its square root, except that of -inf, infinity.
        """
        base, exponents = operands[0], operands[1].value
        if exponents is None or not np.size(exponents):
            return None
        exponent = float(np.asarray(exponents).reshape(-1)[0])
        is_small = abs(exponent) < LARGEST_POWER and 2 * exponent == int(2 * exponent)
        if not is_small or not (np.asarray(exponents) == exponent).all():
            return None
        result = field.power(base.residues, int(abs(exponent)))
        if exponent == int(exponent):
            return result if exponent >= 0 else self.inverse(Prints(result))
        result = field.multiply(result, function(SquareRoot.opcode, base.residues))
        kind = i.operands[0].shape.element_type
        lowest = np.broadcast_to(field.negate(field.INFINITY), result.shape)
        is_lowest = self.comparison(Compare(direction="EQ"), kind, base.residues, lowest)
        if exponent > 0:
            return _selected(is_lowest, field.INFINITY, result)
        return _selected(is_lowest, field.number(0), self.inverse(Prints(result)))

    def _function(
        self, operation: Operation, source: ElementType, kind: ElementType, residues: list[Residues]
    ) -> Residues:
        """Return the results of an unknown function of the operands, which commutes if the operation does."""
        if operation.commutative and len(residues) == 2:
            return self._commutative(operation, source, kind, *residues)
        shape = np.broadcast_shapes(*(x.shape for x in residues))
        salt = salt_of(repr(operation), source.name, kind.name)
        return field.mix(salt, *(np.broadcast_to(x, shape) for x in residues))

    @staticmethod
    def _commutative(
        operation: Operation, source: ElementType, kind: ElementType, a: Residues, b: Residues
    ) -> Residues:
        """Return the results of an unknown function of two exchangeable operands."""
        salt = salt_of(repr(operation), source.name, kind.name)
        return field.mix(salt, np.minimum(a, b), np.maximum(a, b))


def is_rounded(kind: ElementType) -> bool:
    """Return whether exact results are rounded to a type over the reals."""
    return kind.is_floating and kind not in (F32, F64)


def _against_bounds(operation: Operation, operands: list[Prints]) -> list[Residues]:
    """Return the operands of an operation; of max(x, y) > y and min(x, y) < y, and their opposites, x and y.

    This holds of NaN too, but not in a total order, where NaN are greater than numbers.
    """
    residues = [x.residues for x in operands]
    if not isinstance(operation, Compare) or operation.comparison_type == "TOTALORDER":
        return residues
    is_above = {"GT": True, "LE": True, "LT": False, "GE": False}.get(operation.direction)
    for n, x in enumerate(operands):
        if x.bag is not None and is_above is not None:
            extreme = Maximum if is_above == (n == 0) else Minimum
            rest, contains_bound = x.bag.without(extreme.opcode, operands[1 - n].residues)
            residues[n] = np.where(contains_bound, rest, residues[n])
            if contains_bound.any():
                break
    return residues


def _comparison_of_predicates(direction: str, a: Residues, b: Residues) -> Residues:
    """Return the results of a comparison of predicates as polynomials of 0 and 1."""
    if direction in ("GT", "GE"):
        a, b = b, a
    product = field.multiply(a, b)
    if direction in ("LT", "GT"):
        return field.subtract(b, product)
    if direction in ("LE", "GE"):
        return field.subtract(field.ONE, field.subtract(a, product))
    differ = field.subtract(field.add(a, b), field.add(product, product))
    return differ if direction == "NE" else field.subtract(field.ONE, differ)


def contains(wide: ElementType, narrow: ElementType) -> bool:
    """Return whether a float type, f32 or f64 if the types differ, represents all numbers of another."""
    if wide == narrow:
        return True
    a, b = float_format(wide), float_format(narrow)
    return (
        a.mantissa_bits >= b.mantissa_bits
        and a.largest >= b.largest
        and a.smallest_exponent - a.mantissa_bits <= b.smallest_exponent - b.mantissa_bits
        and wide in (F32, F64)
    )


def _computed_in(kind: ElementType) -> ElementType:
    """Return the type in which functions of a float type are computed, before they are rounded to it."""
    return F32 if contains(F32, kind) else kind


def _fractions(array: Array, residues: Residues) -> Residues:
    """Return residues of constants: a float nearest to a fraction such as 1 / 3 has that of the fraction."""
    result = residues.copy()
    for number in np.unique(array[np.isfinite(array)]):
        residue = _fraction(number)
        if residue is not None:
            result[array == number] = residue
    return result


@lru_cache(1 << 14)
def _fraction(number: np.floating[Any]) -> int | None:
    """Return the residue of the fraction that a float is nearest to; None for other floats, and integers."""
    fraction = Fraction(float(number)).limit_denominator(_LARGEST_DENOMINATOR)
    numerator, denominator = fraction.numerator, fraction.denominator
    if denominator == 1 or type(number)(numerator / denominator) != number:
        return None
    return numerator * pow(denominator, -1, field.PRIME) % field.PRIME


def either(where: Array, yes: Prints, no: Prints) -> Prints:
    """Return the elements that known predicates select from two arrays."""
    if where.all() and yes.shape == np.broadcast_shapes(where.shape, yes.shape):
        return yes
    if not where.any() and no.shape == np.broadcast_shapes(where.shape, no.shape):
        return no
    both_known = yes.value is not None and no.value is not None
    value: Any = np.where(where, yes.value, no.value) if both_known else None
    return Prints(np.where(where, yes.residues, no.residues), value, degree=largest([yes.degree, no.degree]))


def _selected(where: Residues, yes: Residues, no: Residues) -> Residues:
    """Return the elements that unknown predicates select from two arrays, as polynomials."""
    return field.add(field.multiply(where, yes), field.multiply(field.subtract(field.ONE, where), no))


def _shifted(operands: list[Prints], kind: ElementType) -> Residues | None:
    """Return x << n as x * 2^n for known n."""
    powers = _powers_of_two(operands[1], kind)
    return None if powers is None else field.multiply(operands[0].residues, powers)


def _powers_of_two(exponents: Prints, kind: ElementType) -> Residues | None:
    """Return 2^n for known n in [0, the type's width); else None."""
    count = exponents.value
    if count is None or (np.asarray(count).astype(np.int64) < 0).any() or (count >= kind.bits).any():
        return None
    return field.of_integers(field.ONE << np.asarray(count).astype(np.uint64))
