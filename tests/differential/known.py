"""Understood differences from XLA:CPU, as data: the operations concerned, and the reason of hloom's value.

A difference explains some elements of some results, and limits how far XLA's values may be off there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

import numpy as np

from error_analysis import exact
from floating import eps, same_bits, ulp, wide
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.module import HloModule
from hloom.operations.rounding import convert
from hloom.shape.element_type import ElementType
from normwise import batch_norm

from .case import Case, program
from .comparison import differs
from .draw import Array


@dataclass(frozen=True)
class Difference:
    """One result of a case that differs.

    Attributes:
        case: the case.
        ours, theirs: the result by hloom and by XLA.
        where: the elements that differ.
        again: hloom's value of this result for other arguments.
        bound: the rounding error of each element, where it is analysed.
    """

    case: Case
    ours: Array
    theirs: Array
    where: Array
    again: Callable[[Sequence[Array]], Array]
    bound: Array | None = None


@dataclass(frozen=True)
class KnownDifference:
    """A difference of values.

    Attributes:
        name: a short name.
        operations: patterns of the operations of cases that show it.
        reason: the cause, and the definition that hloom follows.
        explains: selects the differing elements that it explains.
        limit: selects values of XLA that are within the reach of the cause; none if ``explains`` tests XLA's
            values.
    """

    name: str
    operations: tuple[str, ...]
    reason: str
    explains: Callable[[Difference], Array]
    limit: Callable[[Difference], Array] | None = None

    def of(self, difference: Difference) -> Array:
        """Return the elements that it explains, within its limit."""
        found = self.explains(difference)
        return found if self.limit is None else found & self.limit(difference)

    def about(self, case: Case) -> bool:
        """Return whether a case may show it."""
        return any(fnmatch(case.operation, pattern) for pattern in self.operations)


def everywhere(difference: Difference) -> Array:
    """Select all elements."""
    return difference.where


def smallest_normal(array: Array) -> float:
    """Return the smallest normal number of the type in which XLA:CPU computes: f32 for narrower floats."""
    kind = ElementType.from_dtype(array.dtype).component
    return float(np.finfo(np.float64 if kind.bits == 64 else np.float32).tiny)


def flushed(array: Array) -> Array:
    """Zero, with its sign, for every subnormal number."""
    kind = ElementType.from_dtype(array.dtype)
    if kind.is_complex:
        result = array.copy()
        result.real, result.imag = flushed(array.real), flushed(array.imag)
        return result
    if not kind.is_floating:
        return array
    with np.errstate(all="ignore"):
        value = wide(array)
        small = (value != 0) & (np.abs(value) < smallest_normal(array))
        return np.where(small, np.copysign(0.0, value), value).astype(array.dtype)


def flushes(difference: Difference) -> Array:
    """Select elements that agree if subnormal arguments and results are zero."""
    ours = flushed(difference.again([flushed(a) for a in difference.case.arguments]))
    if ours.shape != difference.theirs.shape:
        return np.zeros_like(difference.where)
    theirs = flushed(difference.theirs)
    small = any(bool((flushed(a) != a).any()) for a in difference.case.arguments if a.dtype.kind != "b")
    zeros = (ours == 0) & (theirs == 0) & (small | (difference.ours != 0) | (difference.theirs != 0))
    return ~differs(ours, theirs, difference.case.tolerance, bound=difference.bound) | zeros


def subnormal_keys_in_f16(difference: Difference) -> Array:
    """Select all elements, if several of the first operand's are subnormal numbers of f16."""
    keys = np.abs(wide(difference.case.arguments[0]))
    return difference.where & (np.count_nonzero((keys > 0) & (keys < 2.0**-14)) > 1)


def six_bits_of_the_exponent(difference: Difference) -> Array:
    """Select integer powers with exponents beyond six bits, or negative ones."""
    exponent = difference.case.arguments[1]
    return (exponent < 0) | (exponent.astype(np.uint64) > 63)


def of_constants(difference: Difference) -> Array:
    """Select all elements, if the arguments are constants."""
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
    """Select powers x^y = exp(y log x) with the error of y log x, a few units of its magnitude."""
    x, y = (wide(a) for a in case.arguments)
    with np.errstate(all="ignore"):
        size = np.abs(y) * (np.abs(np.log(np.abs(x))) + np.pi)
        error = 32 * np.finfo(ours.dtype).eps * size
        distance = np.abs(wide(ours) - wide(theirs))
        value = np.abs(wide(ours))
        overflows = value * (1 + error) > np.finfo(ours.dtype).max
        return ~(error < 1) | (distance <= error * value) | overflows


def squares_out_of_range(difference: Difference) -> Array:
    """Select elements with an argument part that is infinite, NaN, or has an infinite or subnormal square."""
    where = np.zeros_like(difference.where)
    for argument in difference.case.arguments:
        limits = np.finfo(argument.dtype)
        for part in (np.abs(argument.real), np.abs(argument.imag)):
            large, small = np.sqrt(limits.max) / 4, np.sqrt(limits.tiny) * 4
            where |= ~(part < large) | ((part > 0) & (part < small))
    return where


def within_64_units_of_one(difference: Difference) -> Array:
    """Select angles that differ by little, measured against 1, possibly modulo 2 π."""
    with np.errstate(all="ignore"):
        angle = wide(difference.ours) - wide(difference.theirs)
        distance = np.minimum(np.abs(angle), np.abs(np.abs(angle) - 2 * np.pi))
    return distance <= 64 * np.finfo(difference.ours.dtype).eps


def within_64_units_of_the_largest_square(difference: Difference) -> Array:
    """Select values that differ by little, measured against the square of the operand's largest number."""
    operand = wide(difference.case.arguments[0])
    square = max(1.0, float(np.max(np.abs(operand)) ** 2))
    distance = np.abs(wide(difference.ours) - wide(difference.theirs))
    return distance <= 64 * ulp(np.array(square), difference.ours.dtype)


def infinite_arguments(difference: Difference) -> Array:
    """Select elements whose argument has an infinite part."""
    where = np.zeros_like(difference.where)
    for argument in difference.case.arguments:
        where |= np.isinf(argument.real) | np.isinf(argument.imag)
    return where


def infinite_parts(difference: Difference) -> Array:
    """Select elements in which hloom's result has an infinite part."""
    return np.isinf(difference.ours.real) | np.isinf(difference.ours.imag)


def subnormal_parts(difference: Difference) -> Array:
    """Select elements whose argument has a subnormal part."""
    where = np.zeros_like(difference.where)
    for argument in difference.case.arguments:
        tiny = np.finfo(argument.dtype).tiny
        for part in (np.abs(argument.real), np.abs(argument.imag)):
            where |= (part > 0) & (part < tiny)
    return where


def beyond_the_actual_size(difference: Difference) -> Array:
    """Select hloom's zeros where the actual size is 0."""
    return (difference.ours == 0) & (difference.case.arguments[1] == 0)


def rounded_at_every_step(difference: Difference) -> Array:
    """Select normalizations that differ by rounding every step to the operands' type."""
    case = difference.case
    module = HloModule.from_text(program([case]))
    (instruction,) = [i for i in module.entry.instructions if i.opcode.startswith("batch-norm")]
    given = [exact(a) for a in case.arguments]
    value = Evaluator().run(module.entry, case.arguments)
    bounds = batch_norm(instruction, given, tuple(value), eps(difference.ours.dtype))
    distance = np.abs(wide(difference.ours) - wide(difference.theirs))
    for output, bound in zip(value, bounds, strict=True):
        if output.shape == difference.ours.shape and same_bits(output, difference.ours).all():
            return np.asarray(distance <= bound)
    return np.zeros_like(difference.where)


# -- how far off XLA's values may be


def among_the_arguments(difference: Difference) -> Array:
    """Select elements for which XLA's value occurs in an argument of its type."""
    given = [a.reshape(-1) for a in difference.case.arguments if a.dtype == difference.theirs.dtype]
    flat = difference.theirs.reshape(-1)[:, None]
    found = [same_bits(flat, a[None, :].repeat(flat.size, 0)).any(axis=1) for a in given if a.size]
    return np.logical_or.reduce(found, initial=False).reshape(difference.theirs.shape) if found else (
        np.zeros_like(difference.where)
    )  # fmt: skip


def rearranged(difference: Difference) -> Array:
    """Select all elements, if the numbers are the same in another order."""
    bits = [np.sort(np.ascontiguousarray(a).reshape(-1).view(f"u{a.itemsize}")) for a in (
        difference.ours, difference.theirs
    )]  # fmt: skip
    return np.full(difference.where.shape, bool((bits[0] == bits[1]).all()))


def six_bit_power(difference: Difference) -> Array:
    """Select powers for which XLA uses the lower six bits of the exponent; 0 or 1 for negative ones."""
    base, exponent = (a.astype(object) for a in difference.case.arguments)
    modulus = 1 << ElementType.from_dtype(difference.theirs.dtype).bits
    powers = np.frompyfunc(lambda b, e: int(b == 1) if e < 0 else pow(int(b), int(e) & 63, modulus), 2, 1)
    return np.asarray(difference.theirs.astype(object) % modulus == powers(base, exponent) % modulus, bool)


def bits_of_the_byte(difference: Difference) -> Array:
    """Select counts for which XLA counts the bits of the sign-extended byte, in the result's type."""
    (argument,) = difference.case.arguments
    octets = argument.astype(np.int8).view(np.uint8)
    count = np.unpackbits(octets.reshape(-1, 1), axis=1).sum(axis=1).reshape(octets.shape)
    modulus = 1 << ElementType.from_dtype(difference.theirs.dtype).bits
    return np.asarray((difference.theirs.astype(np.int64) - count) % modulus == 0)


def as_infinity(difference: Difference) -> Array:
    """Select elements in which XLA's value is that of an infinite argument."""
    (argument,) = difference.case.arguments
    infinite = convert(np.copysign(np.inf, wide(argument)), difference.theirs.dtype)
    return same_bits(infinite, difference.theirs)


def without_sign(difference: Difference) -> Array:
    """Select elements in which XLA's value is that of the absolute value, to half a power of two."""
    (argument,) = difference.case.arguments
    size, theirs = np.abs(wide(argument)), wide(difference.theirs)
    return (theirs >= size / 2) & (theirs <= size * 2) | (size > 2.0**127) | (size < 2.0**-126)


def with_nan(difference: Difference) -> Array:
    """Select elements whose argument is NaN."""
    return np.logical_or.reduce([np.isnan(wide(a)) for a in difference.case.arguments])


def in_a_wider_type(difference: Difference) -> Array:
    """Select negative arguments for which XLA's value is the width less that of a wider type."""
    (argument,) = difference.case.arguments
    bits = ElementType.from_dtype(argument.dtype).bits
    return (argument < 0) & np.isin(wide(difference.theirs), [bits - n for n in (8, 16, 32, 64)])


def of_one_update(difference: Difference) -> Array:
    """Select elements in which XLA's value combines the operand with at most one of the updates."""
    opcode, theirs = difference.case.operation.split()[1], difference.theirs
    combine: Callable[[Array, Array], Array] = {
        "add": np.add, "multiply": np.multiply, "subtract": np.subtract, "maximum": np.maximum,
        "minimum": np.minimum, "replace": lambda old, new: new,
    }[opcode]  # fmt: skip
    given = [a for a in difference.case.arguments if a.dtype == theirs.dtype]
    found = np.zeros(theirs.shape, bool)
    for operand in (a for a in given if a.shape == theirs.shape):
        found |= same_bits(operand, theirs)
        for update in np.concatenate([a.reshape(-1) for a in given]):
            with np.errstate(all="ignore"):
                found |= same_bits(combine(operand, update).astype(theirs.dtype), theirs)
    return found


def no_larger_than_computed(difference: Difference) -> Array:
    """Select elements in which XLA's value is at most the one that two additions give."""
    largest = max(float(np.nanmax(np.abs(wide(a)), initial=0)) for a in difference.case.arguments)
    return np.abs(wide(difference.theirs)) <= 4 * largest


def same_total(difference: Difference) -> Array:
    """Select all elements, if all of them together have the same sum, product or maximum."""
    total = {"add": np.sum, "multiply": np.prod, "maximum": np.max}[difference.case.operation.split()[2]]
    values = (difference.ours, difference.theirs)
    kind = ElementType.from_dtype(difference.ours.dtype)
    if kind.is_integer:
        one, other = (int(total(v.astype(object))) % (1 << kind.bits) for v in values)
        return np.full(difference.where.shape, one == other)
    one, other = (float(total(wide(v))) for v in values)
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
    """Select elements in which XLA's value has a NaN part."""
    return np.isnan(difference.theirs.real) | np.isnan(difference.theirs.imag)


def neither_finite_nor_far(difference: Difference) -> Array:
    """Select elements in which XLA's value is not finite, or at most the largest angle or logarithm."""
    theirs = wide(difference.theirs)
    with np.errstate(all="ignore"):
        distance = np.abs(wide(difference.ours) - theirs)
    return ~np.isfinite(theirs) | (distance <= 2 * np.pi + np.log(np.finfo(difference.ours.dtype).max))


def on_the_other_side(difference: Difference) -> Array:
    """Select elements in which XLA's value has other signs, is on another branch, or is not finite."""
    ours, theirs = wide(difference.ours), wide(difference.theirs)
    with np.errstate(all="ignore"):
        size = np.abs(ours) + 2 * np.pi
        mirrored = np.abs(np.abs(theirs) - np.abs(ours)) <= 64 * ulp(np.abs(ours), difference.ours.dtype)
    return mirrored | ~(np.abs(theirs - ours) > size) | ~np.isfinite(theirs)


def zeros(difference: Difference) -> Array:
    """Select elements that are equal except for the signs of zeros."""
    return difference.ours == difference.theirs


DIFFERENCES: tuple[KnownDifference, ...] = (
    KnownDifference(
        "subnormals",
        ("*",),
        "XLA:CPU runs with flush-to-zero, of arguments and results; hloom keeps subnormal numbers.",
        flushes,
    ),
    KnownDifference(
        "subnormals of f16",
        ("sort f8e5m2fnuz*",),
        "XLA:CPU compares these numbers in f16, and takes those that are subnormal there for equal.",
        subnormal_keys_in_f16,
        rearranged,
    ),
    KnownDifference(
        "which of equals is selected",
        ("select-and-scatter * tied",),
        "hloom goes through a window in the order of the indices, XLA:CPU in that of a layout of its own.",
        everywhere,
        same_total,
    ),
    KnownDifference(
        "scatter without index",
        ("scatter * without index",),
        "Every update lands on the same window; XLA:CPU applies one of them.",
        everywhere,
        of_one_update,
    ),
    KnownDifference(
        "slices of what is not there",
        ("dynamic * slice",),
        "A slice of fixed size out of nothing: hloom gives zero, XLA:CPU what lies beyond the actual size.",
        beyond_the_actual_size,
        no_larger_than_computed,
    ),
    KnownDifference(
        "signs of sums that are zero",
        ("dot *", "convolution *", "reduce* add *"),
        "A sum of negative zeros is -0, but +0 if it starts with 0; the order of a sum is free.",
        zeros,
    ),
    KnownDifference(
        "integer power",
        ("power [su]*",),
        "XLA:CPU reads six bits of the exponent and takes -1 to a negative power for 0; hloom wraps exactly.",
        six_bits_of_the_exponent,
        six_bit_power,
    ),
    KnownDifference(
        "bits of narrow integers",
        ("popcnt s2", "popcnt s4"),
        "XLA:CPU counts the bits of the byte that holds the number, copies of the sign included.",
        everywhere,
        bits_of_the_byte,
    ),
    KnownDifference(
        "the largest f4e2m1fn as an integer",
        ("convert f4e2m1fn *",),
        "XLA:CPU takes 6, the largest number, for infinite.",
        largest_number,
        as_infinity,
    ),
    KnownDifference(
        "negative numbers as f8e8m0fnu",
        ("convert * f8e8m0fnu",),
        "The type has no sign. XLA:CPU drops it; ml_dtypes and hloom give NaN.",
        below_zero,
        without_sign,
    ),
    KnownDifference(
        "total order of constants",
        ("compare total f8*",),
        "XLA's folding of constants orders NaN of 8-bit floats otherwise than the code it compiles.",
        of_constants,
        with_nan,
    ),
    KnownDifference(
        "leading zeros of constants",
        ("count-leading-zeros s*",),
        "XLA's folding of constants counts the bits of negative numbers in a wider type.",
        of_constants,
        in_a_wider_type,
    ),
    KnownDifference(
        "integer convolutions of constants",
        ("convolution s*", "convolution u*"),
        "XLA's folding of constants saturates; hloom wraps, as compiled code does.",
        of_constants,
        saturated,
    ),
    KnownDifference(
        "unsigned indices that are constants",
        ("gather u*", "scatter * u[0-9]*", "dynamic-slice u*", "dynamic-update-slice u*"),
        "XLA's folding of constants takes large unsigned indices for negative ones.",
        of_constants,
        among_the_arguments,
    ),
    KnownDifference(
        "subnormal constants of reduced precision",
        ("reduce-precision f16", "reduce-precision bf16"),
        "XLA's folding of constants makes subnormal numbers 0, also where no exponent bit is taken away.",
        of_constants,
        vanished,
    ),
    KnownDifference(
        "NaN without mantissa",
        ("reduce-precision *",),
        "A format without mantissa bits has no NaN; hloom gives infinity, as XLA does for constants.",
        lambda difference: np.isinf(wide(difference.ours)) & np.isnan(wide(difference.theirs)),
    ),
    KnownDifference(
        "variance",
        ("batch-norm-training *", "batch-norm-grad *"),
        "XLA computes the variance as a difference of the means of squares and of the mean's square.",
        within_64_units_of_the_largest_square,
    ),
    KnownDifference(
        "narrow normalizations",
        ("batch-norm-* f16", "batch-norm-* bf16"),
        "XLA:CPU rounds every step to the operands' own type; hloom rounds the results.",
        rounded_at_every_step,
    ),
    KnownDifference(
        "condition of complex powers",
        ("power c*",),
        "XLA:CPU computes y log x in the operands' precision, hloom in c128.",
        lambda d: ill_conditioned_power(d.case, d.ours, d.theirs),
    ),
    KnownDifference(
        "range of complex atan2",
        ("atan2 c*",),
        "XLA:CPU squares in the operands' precision, hloom computes c64 in c128.",
        squares_out_of_range,
        neither_finite_nor_far,
    ),
    KnownDifference(
        "rounding in complex atan2",
        ("atan2 c*",),
        "-i log((x + iy) / sqrt(x² + y²)) is right to some units of 1: small results and the side of the "
        "branch are at the mercy of rounding.",
        within_64_units_of_one,
    ),
    KnownDifference(
        "infinite complex quotients",
        ("divide c*",),
        "hloom follows C's Annex G, in which an infinite number has an infinite quotient; XLA gives NaN for "
        "some.",
        infinite_arguments,
        no_number,
    ),
    KnownDifference(
        "overflow of complex circular functions",
        ("sine c*", "cosine c*", "tan c*"),
        "sinh and cosh of the imaginary part overflow; XLA:CPU then makes NaN of infinity times 0.",
        infinite_parts,
        no_number,
    ),
    KnownDifference(
        "small parts of complex circular functions",
        ("sine c*", "cosine c*", "tan c*"),
        "XLA:CPU computes sinh as a difference of exponentials, which for small numbers cancel each other.",
        within_64_units_of_one,
    ),
    KnownDifference(
        "range of complex logarithms",
        ("log c*", "log-plus-one c*"),
        "XLA:CPU squares in the operands' precision.",
        squares_out_of_range,
        neither_finite_nor_far,
    ),
    KnownDifference(
        "complex numbers with NaN",
        ("* c64", "* c128"),
        "Where one part is NaN the other one may be, too: hloom goes by C's Annex G, XLA by its formulas.",
        lambda difference: np.isnan(difference.ours) & np.isnan(difference.theirs),
    ),
    KnownDifference(
        "overflow of narrow sums",
        ("reduce* add f8*", "reduce* add f4*", "scatter add f8*", "scatter add f4*"),
        "XLA:CPU rounds every partial sum to the narrow type, and what has overflowed stays so.",
        lambda difference: ~np.isfinite(wide(difference.theirs)),
    ),
    KnownDifference(
        "subnormal parts",
        ("log c*", "log-plus-one c*", "power c*", "sqrt c*", "rsqrt c*", "divide c*", "atan2 c*"),
        "Flushed to zero, a part loses its sign now and then, and with it the side of the branch.",
        subnormal_parts,
        on_the_other_side,
    ),
)
