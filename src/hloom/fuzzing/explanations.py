"""Selectors of the elements of a differing result that a known difference from XLA:CPU explains.

The first half tests arguments and hloom's results, the second half XLA's results.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from hloom.debug.agreement import within
from hloom.error_bounds.bounded import exact, parts_of
from hloom.error_bounds.floating import eps, same_bits, ulp, wide
from hloom.errors import NoBound
from hloom.evaluate.evaluator import Evaluator
from hloom.fuzzing.flushing import FlushingEvaluator, flushed, smallest_normal
from hloom.fuzzing.generators.case import Case, program
from hloom.fuzzing.generators.draw import Array
from hloom.fuzzing.rounding import RoundingAnalysis
from hloom.ir.module import HloModule
from hloom.ir.operation import REGISTRY
from hloom.operations.rounding import convert
from hloom.records import dataclass
from hloom.shape.element_type import ElementType


@dataclass(frozen=True)
class Difference:
    """A result of a case that differs between hloom and XLA.

    Attributes:
        case: the case.
        ours, theirs: the result of hloom and of XLA.
        where: a mask of the elements that differ.
        again: computes hloom's value of this result for other arguments of the case.
        bound: the largest rounding error of each element.
        output: the index of the result among the case's results.
        device: the index of the device.
    """

    case: Case
    ours: Array
    theirs: Array
    where: Array
    again: Callable[[Sequence[Array]], Array]
    bound: Array
    output: int = 0
    device: int = 0


def everywhere(difference: Difference) -> Array:
    """Select all elements."""
    return difference.where


def flushes(difference: Difference) -> Array:
    """Select elements that agree if subnormal numbers are flushed to zero.

    They are flushed in arguments and results of the program, or of every operation.
    """
    case = difference.case
    theirs = flushed(difference.theirs)
    small = any(not same_bits(flushed(a), a).all() for a in case.arguments if a.dtype.kind != "b")
    agreeing = np.zeros_like(difference.where)
    for ours in (flushed(difference.again([flushed(a) for a in case.arguments])), _flushing(difference)):
        if ours is None or ours.shape != theirs.shape:
            continue
        zeros = (ours == 0) & (theirs == 0) & (small | (difference.ours != 0) | (difference.theirs != 0))
        agreeing |= within(theirs, ours, difference.bound) | zeros
    return agreeing


def _flushing(difference: Difference) -> Array | None:
    """Return the result of the program if every operation flushes subnormals; None for several devices."""
    case = difference.case.unfolded
    if case.devices > 1:
        return None
    results: Any = FlushingEvaluator().run(case.module.entry, case.arguments)
    return flushed(np.asarray(results[difference.output]))


def rounded_once_more(difference: Difference) -> Array:
    """Select elements within the rounding errors of fused and reordered operations, except equal ones."""
    bound = _bound_of_more_roundings(difference)
    if bound is None:
        return np.zeros_like(difference.where)
    return within(difference.theirs, difference.ours, bound) & (difference.ours != difference.theirs)


def without_bound(difference: Difference) -> Array:
    """Select all elements of inexact types, if the rounding errors of the program have no bound."""
    inexact = difference.ours.dtype.kind not in "biu" and difference.case.devices == 1
    return difference.where & inexact & (_bound_of_more_roundings(difference) is None)


def _bound_of_more_roundings(difference: Difference) -> Array | None:
    """Return the rounding errors of fused and reordered operations.

    Returns None where an operation has no bound, and for several devices.
    """
    case = difference.case.unfolded
    if case.devices > 1:
        return None
    try:
        _, bounds = RoundingAnalysis(case.module).run(case.arguments)
    except NoBound:
        return None
    return np.asarray(parts_of(bounds)[difference.output])


def within_the_square(difference: Difference) -> Array:
    """Select values 1 / d for which the divisors d of hloom and XLA differ by at most 64 eps."""
    with np.errstate(all="ignore"):
        distance = np.abs(wide(difference.ours) - wide(difference.theirs))
        return distance <= 64 * eps(difference.ours.dtype) * np.abs(wide(difference.ours)) ** 2


def within_the_roundings_of_a_sum(difference: Difference) -> Array:
    """Select sums that differ by at most one rounding, relative to the sum of magnitudes, per term."""
    magnitudes = [a if a.dtype.kind in "iub" else np.abs(a) for a in difference.case.arguments]
    total = np.abs(wide(difference.again(magnitudes)))
    terms = 1 + max(a.size for a in difference.case.arguments) / max(1, difference.ours.size)
    with np.errstate(all="ignore"):
        distance = np.abs(wide(difference.ours) - wide(difference.theirs))
        return distance <= terms * eps(difference.ours.dtype) * total


def subnormal_keys_in_f16(difference: Difference) -> Array:
    """Select all elements, if at least two elements of the first operand are subnormal in f16."""
    keys = np.abs(wide(difference.case.arguments[0]))
    return difference.where & (np.count_nonzero((keys > 0) & (keys < 2.0**-14)) > 1)


def six_bits_of_the_exponent(difference: Difference) -> Array:
    """Select integer powers whose exponents are negative or above 63."""
    exponent = difference.case.arguments[1]
    return (exponent < 0) | (exponent.astype(np.uint64) > 63)


def of_constants(difference: Difference) -> Array:
    """Select all elements, if the arguments are constants, which XLA folds."""
    return difference.where & difference.case.folded


def largest_number(difference: Difference) -> Array:
    """Select elements whose argument is the largest or lowest number of its type."""
    (argument,) = difference.case.arguments
    return np.abs(wide(argument)) == ElementType.from_dtype(argument.dtype).limits[1]


def below_zero(difference: Difference) -> Array:
    """Select elements whose argument is negative."""
    (argument,) = difference.case.arguments
    return wide(argument).real < 0


def ill_conditioned_power(case: Case, ours: Array, theirs: Array) -> Array:
    """Select complex powers x^y = exp(y log x) that differ by at most the rounding error of y log x."""
    x, y = (wide(a) for a in case.arguments)
    with np.errstate(all="ignore"):
        size = np.abs(y) * (np.abs(np.log(np.abs(x))) + np.pi)
        error = 32 * np.finfo(ours.dtype).eps * size
        distance = np.abs(wide(ours) - wide(theirs))
        value = np.abs(wide(ours))
        overflows = value * (1 + error) > np.finfo(ours.dtype).max
        return ~(error < 1) | (distance <= error * value) | overflows


def on_the_branch_cut(difference: Difference) -> Array:
    """Select elements whose argument is a negative number with the imaginary part -0."""
    (argument,) = difference.case.arguments
    return (argument.real < 0) & (argument.imag == 0) & np.signbit(argument.imag)


def conjugate(difference: Difference) -> Array:
    """Select elements in which XLA's value is the conjugate of hloom's, up to rounding errors."""
    return within(
        np.conj(difference.theirs), difference.ours, 4 * ulp(np.abs(difference.ours), difference.ours.dtype)
    )


def factors_out_of_range(difference: Difference) -> Array:
    """Select complex powers of which the factor |x|^(re y) or exp(-im y arg x) overflows or is subnormal."""
    x, y = (wide(a) for a in difference.case.arguments)
    limits = np.finfo(difference.ours.dtype)
    with np.errstate(all="ignore"):
        exponents = y.real * np.log(np.abs(x)), -y.imag * np.angle(x)
        low, high = np.log(float(limits.tiny)), np.log(float(limits.max))
        # The rounding of an exponent moves the ends of the range.
        return np.logical_or.reduce(
            [(e < low + 64 * limits.eps * abs(low)) | (e > high - 64 * limits.eps * high) for e in exponents]
        )


def squares_out_of_range(difference: Difference) -> Array:
    """Select elements of whose arguments a part is not finite, or has an infinite or subnormal square."""
    where = np.zeros_like(difference.where)
    for argument in difference.case.arguments:
        limits = np.finfo(argument.dtype)
        for part in (np.abs(argument.real), np.abs(argument.imag)):
            large, small = np.sqrt(limits.max) / 4, np.sqrt(limits.tiny) * 4
            where |= ~(part < large) | ((part > 0) & (part < small))
    return where


def near_the_poles(difference: Difference) -> Array:
    """Select complex angles atan2(y, x) within the rounding errors near the poles y = ±ix, modulo 2 π."""
    y, x = (wide(a) for a in difference.case.arguments)
    with np.errstate(all="ignore"):
        distance = np.minimum(np.abs(x + 1j * y), np.abs(x - 1j * y))
        condition = 1 + (np.abs(x) + np.abs(y)) / distance
        angle = wide(difference.ours) - wide(difference.theirs)
        off = np.minimum(np.abs(angle), np.abs(np.abs(angle) - 2 * np.pi))
        return np.asarray(off <= 64 * condition * np.finfo(difference.ours.dtype).eps)


def within_64_units_of_one(difference: Difference) -> Array:
    """Select values that differ, possibly modulo 2 π, by at most 64 units in the last place of 1."""
    with np.errstate(all="ignore"):
        angle = wide(difference.ours) - wide(difference.theirs)
        distance = np.minimum(np.abs(angle), np.abs(np.abs(angle) - 2 * np.pi))
    return distance <= 64 * np.finfo(difference.ours.dtype).eps


def within_64_units_of_the_largest_square(difference: Difference) -> Array:
    """Select values that differ by at most 64 units in the last place of the operand's largest square."""
    operand = wide(difference.case.arguments[0])
    square = max(1.0, float(np.max(np.abs(operand)) ** 2))
    distance = np.abs(wide(difference.ours) - wide(difference.theirs))
    return distance <= 64 * ulp(np.array(square), difference.ours.dtype)


def infinite_arguments(difference: Difference) -> Array:
    """Select elements of which an argument has an infinite part."""
    where = np.zeros_like(difference.where)
    for argument in difference.case.arguments:
        where |= np.isinf(argument.real) | np.isinf(argument.imag)
    return where


def overflowing_hyperbolic_functions(difference: Difference) -> Array:
    """Select elements for whose complex argument x + iy the number exp(|y|) overflows."""
    (argument,) = difference.case.arguments
    return np.abs(argument.imag) > np.log(np.finfo(argument.dtype).max) * (1 - eps(argument.dtype))


def subnormal_parts(difference: Difference) -> Array:
    """Select elements of which an argument has a subnormal real or imaginary part."""
    where = np.zeros_like(difference.where)
    for argument in difference.case.arguments:
        for part in (np.abs(wide(argument).real), np.abs(wide(argument).imag)):
            where |= (part > 0) & (part < smallest_normal(argument))
    return where


def beyond_the_actual_size(difference: Difference) -> Array:
    """Select elements that are zero in hloom because the dynamic size of the operand is 0."""
    return (difference.ours == 0) & (difference.case.arguments[1] == 0)


def overflowing_exponential(difference: Difference) -> Array:
    """Select elements for whose argument x the number exp(-x) overflows in the type of x."""
    (argument,) = difference.case.arguments
    return wide(argument) < -np.log(float(np.finfo(argument.dtype).max))


def overflowing_products(difference: Difference) -> Array:
    """Select complex products of finite numbers of which both terms of a part overflow."""
    x, y = difference.case.arguments
    with np.errstate(all="ignore"):
        real = np.isinf(x.real * y.real) & np.isinf(x.imag * y.imag)
        imaginary = np.isinf(x.real * y.imag) & np.isinf(x.imag * y.real)
    return np.isfinite(x) & np.isfinite(y) & (real | imaginary)


def within_the_terms_of_a_scaled_sum(difference: Difference) -> Array:
    """Select batch normalizations that differ by at most 4 units in the last place of the terms of a sum.

    The sum is x s + (offset - mean s), where s is the scale over the standard deviation.
    """
    case = difference.case
    axis = int(re.findall(r"feature_index=(\d+)", case.lines[0])[0])
    x, *columns = (wide(a) for a in case.arguments)
    sizes = [-1 if d == axis else 1 for d in range(x.ndim)]
    scale, offset, mean, variance = (c.reshape(sizes) for c in columns)
    (epsilon,) = map(float, re.findall(r"epsilon=([\d.e-]+)", case.lines[0]))
    factor = np.abs(scale) / np.sqrt(variance + epsilon)
    terms = np.abs(x) * factor + np.abs(mean) * factor + np.abs(offset)
    distance = np.abs(wide(difference.ours) - wide(difference.theirs))
    return np.asarray(distance <= 4 * eps(difference.ours.dtype) * terms)


def rounded_at_every_step(difference: Difference) -> Array:
    """Select batch normalizations that differ by at most the errors of rounding each step to the type."""
    case = difference.case
    module = HloModule.from_text(program([dataclasses.replace(case, folded=False)]))
    (instruction,) = [i for i in module.entry.instructions if i.opcode.startswith("batch-norm")]
    operands = [exact(a) for a in case.arguments]
    value: Any = Evaluator().run(module.entry, case.arguments)
    operation: Any = instruction.operation
    bounds = operation.errors_in(eps(difference.ours.dtype), operands, tuple(value))
    distance = np.abs(wide(difference.ours) - wide(difference.theirs))
    for output, bound in zip(value, bounds, strict=True):
        if output.shape == difference.ours.shape and same_bits(output, difference.ours).all():
            return np.asarray(distance <= bound)
    return np.zeros_like(difference.where)


# -- how far off XLA's values may be


def among_the_arguments(difference: Difference) -> Array:
    """Select elements for which XLA's value is an element of an argument of the same type."""
    same_type = [a.reshape(-1) for a in difference.case.arguments if a.dtype == difference.theirs.dtype]
    flat = difference.theirs.reshape(-1)[:, None]
    equal = [same_bits(flat, a[None, :].repeat(flat.size, 0)).any(axis=1) for a in same_type if a.size]
    return np.logical_or.reduce(equal, initial=False).reshape(difference.theirs.shape) if equal else (
        np.zeros_like(difference.where)
    )  # fmt: skip


def rearranged(one: Array, other: Array) -> bool:
    """Return whether two arrays have the same elements, bit for bit, in any order."""
    first, second = (
        np.sort(np.ascontiguousarray(a).reshape(-1).view(f"u{a.itemsize}")) for a in (one, other)
    )
    return bool((first == second).all())


def in_another_order(difference: Difference) -> Array:
    """Select all elements, if XLA's result has the same elements as hloom's in another order."""
    return np.full(difference.where.shape, rearranged(difference.ours, difference.theirs))


def six_bit_power(difference: Difference) -> Array:
    """Select powers that XLA computes with the exponent modulo 64.

    For negative ones, 1 if the base is 1, else 0.

    An unsigned exponent with its upper bit set may count as negative, too.
    """
    base, exponent = (a.astype(object) for a in difference.case.arguments)
    modulus = 1 << ElementType.from_dtype(difference.theirs.dtype).bits
    theirs = difference.theirs.astype(object) % modulus
    low_bits = np.frompyfunc(lambda b, e: pow(int(b), int(e) & 63, modulus), 2, 1)(base, exponent)
    negative = (exponent < 0) | (exponent >= modulus // 2)
    one = np.asarray(base == 1, object) * 1
    return np.asarray((exponent >= 0) & (theirs == low_bits) | negative & (theirs == one), bool)


def bits_of_the_byte(difference: Difference) -> Array:
    """Select bit counts for which XLA counts the bits of the operand sign-extended to a byte."""
    (argument,) = difference.case.arguments
    octets = argument.astype(np.int8).view(np.uint8)
    count = np.unpackbits(octets.reshape(-1, 1), axis=1).sum(axis=1).reshape(octets.shape)
    modulus = 1 << ElementType.from_dtype(difference.theirs.dtype).bits
    return np.asarray((difference.theirs.astype(np.int64) - count) % modulus == 0)


def as_infinity(difference: Difference) -> Array:
    """Select elements in which XLA's value is the converted infinity of the argument's sign."""
    (argument,) = difference.case.arguments
    infinite = convert(np.copysign(np.inf, wide(argument)), difference.theirs.dtype)
    return same_bits(infinite, difference.theirs)


def without_sign(difference: Difference) -> Array:
    """Select elements for which XLA converts the argument's absolute value, within a factor of 2.

    For constants the sign may have become the upper bit of the exponent.
    """
    (argument,) = difference.case.arguments
    size, theirs = np.abs(wide(argument)), wide(difference.theirs)
    magnitude = (theirs >= size / 2) & (theirs <= size * 2) | (size > 2.0**127) | (size < 2.0**-126)
    spoiled = (theirs / 2.0**128 >= size / 2) & (theirs / 2.0**128 <= size * 2)
    return magnitude | spoiled & difference.case.folded


def nan_or_zeros(difference: Difference) -> Array:
    """Select elements of which an argument is NaN, or both are zeros."""
    arguments = [wide(a) for a in difference.case.arguments]
    nan = np.logical_or.reduce([np.isnan(a) for a in arguments])
    return nan | np.logical_and.reduce([a == 0 for a in arguments])


def in_a_wider_type(difference: Difference) -> Array:
    """Select negative arguments whose bits XLA counts in a type of 8, 16, 32 or 64 bits."""
    (argument,) = difference.case.arguments
    bits = ElementType.from_dtype(argument.dtype).bits
    half = 1 << (bits - 1)
    counts = [(bits - n + half) % (2 * half) - half for n in (8, 16, 32, 64)]
    return (argument < 0) & np.isin(wide(difference.theirs), counts)


def of_one_update(difference: Difference) -> Array:
    """Select elements of a scatter in which XLA combines the operand with one update or with none."""
    opcode, theirs = difference.case.operation.split()[1], difference.theirs
    operation: Any = REGISTRY[opcode]() if opcode in REGISTRY else None
    same_type = [a for a in difference.case.arguments if a.dtype == theirs.dtype]
    combinations = np.zeros(theirs.shape, bool)
    for operand in (a for a in same_type if a.shape == theirs.shape):
        combinations |= same_bits(operand, theirs)
        for update in np.concatenate([a.reshape(-1) for a in same_type]):
            with np.errstate(all="ignore"):
                combined = operation.compute(operand, update) if operation is not None else update
                combinations |= same_bits(np.asarray(combined).astype(theirs.dtype), theirs)
    return combinations


def no_larger_than_computed(difference: Difference) -> Array:
    """Select elements for which XLA's value is at most four times the largest magnitude of an argument.

    Values of an unsigned type near its upper limit count as small negative numbers.
    """
    largest = max(float(np.nanmax(np.abs(wide(a)), initial=0)) for a in difference.case.arguments)
    kind, size = ElementType.from_dtype(difference.theirs.dtype), np.abs(wide(difference.theirs))
    if kind.is_unsigned:
        size = np.minimum(size, 2.0**kind.bits - size)
    return size <= 4 * largest


def same_total(difference: Difference) -> Array:
    """Select all elements, if the sum, product or maximum of all elements of the result is the same."""
    operation: Any = REGISTRY[difference.case.operation.split()[2]]()
    compute = operation.compute
    values = (difference.ours, difference.theirs)
    kind = ElementType.from_dtype(difference.ours.dtype)
    if kind.is_integer:
        one, other = (int(reduce(compute, v.astype(object).flat)) % (1 << kind.bits) for v in values)
        return np.full(difference.where.shape, one == other)
    one, other = (float(reduce(compute, wide(v).flat)) for v in values)
    return np.full(difference.where.shape, abs(one - other) <= eps(difference.ours.dtype) * abs(one))


def saturated(difference: Difference) -> Array:
    """Select elements in which XLA's value is the largest or the lowest number of the type."""
    return np.isin(
        wide(difference.theirs), [float(x) for x in ElementType.from_dtype(difference.theirs.dtype).limits]
    )


def vanished(difference: Difference) -> Array:
    """Select elements in which XLA's value is 0 and hloom's a subnormal number of f16 or bf16."""
    least = 2.0**-14 if difference.ours.dtype == np.float16 else 2.0**-126
    return (wide(difference.theirs) == 0) & (np.abs(wide(difference.ours)) < least)


def no_number(difference: Difference) -> Array:
    """Select complex elements in which a part of XLA's value is NaN."""
    return np.isnan(difference.theirs.real) | np.isnan(difference.theirs.imag)


def not_a_number(difference: Difference) -> Array:
    """Select real elements in which XLA's value is NaN."""
    return np.isnan(wide(difference.theirs))


def infinity_for_no_number(difference: Difference) -> Array:
    """Select complex elements in which XLA has infinite parts where hloom has NaN, and other parts agree."""
    explained = np.ones(difference.where.shape, bool)
    for ours, theirs in (
        (difference.ours.real, difference.theirs.real),
        (difference.ours.imag, difference.theirs.imag),
    ):
        fused = np.isnan(ours) & np.isinf(theirs)
        explained &= fused | within(ours, theirs, np.max(difference.bound, initial=0.0))
    return explained


def zero_or_not_finite(difference: Difference) -> Array:
    """Select complex elements in which XLA's value is 0, or a part of it infinite or NaN."""
    return not_finite(difference) | (difference.theirs == 0)


def not_finite(difference: Difference) -> Array:
    """Select complex elements in which a part of XLA's value is infinite or NaN."""
    return ~(np.isfinite(difference.theirs.real) & np.isfinite(difference.theirs.imag))


def neither_finite_nor_far(difference: Difference) -> Array:
    """Select elements in which XLA's value is not finite, or near hloom's.

    The distance is at most the logarithm of the type's largest number, plus 2 π.
    """
    theirs = wide(difference.theirs)
    with np.errstate(all="ignore"):
        distance = np.abs(wide(difference.ours) - theirs)
    return ~np.isfinite(theirs) | (distance <= 2 * np.pi + np.log(np.finfo(difference.ours.dtype).max))


def on_the_other_side(difference: Difference) -> Array:
    """Select elements in which XLA's value is not finite, or that of another branch.

    It has the magnitude of hloom's value, or differs from it by at most that magnitude plus 2 π.
    """
    ours, theirs = wide(difference.ours), wide(difference.theirs)
    with np.errstate(all="ignore"):
        size = np.abs(ours) + 2 * np.pi
        mirrored = np.abs(np.abs(theirs) - np.abs(ours)) <= 64 * ulp(np.abs(ours), difference.ours.dtype)
        return mirrored | ~(np.abs(theirs - ours) > size) | ~np.isfinite(theirs)


def zeros(difference: Difference) -> Array:
    """Select elements that are equal except for the signs of zeros."""
    return difference.ours == difference.theirs


def no_number_in_f32(difference: Difference) -> Array:
    """Select zeros, in a type without NaN, for which the same program has NaN in f32."""
    case = difference.case
    text = program([dataclasses.replace(case, folded=False)])
    for name in ("f4e2m1fn", "f6e2m3fn", "f6e3m2fn"):
        text = text.replace(name, "f32")
    with np.errstate(all="ignore"):
        arguments = [wide(a).astype(np.float32) for a in case.arguments]
    results: Any = Evaluator().run(HloModule.from_text(text).entry, arguments)
    values = parts_of(results) if isinstance(results, tuple) else (results,)
    of_shape = [np.isnan(wide(v)) for v in values if v.shape == difference.ours.shape]
    return np.logical_or.reduce(of_shape) & (difference.ours == 0)
