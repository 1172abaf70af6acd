"""The differences from XLA:CPU that are understood, as data: what they are about, and what hloom goes by.

A difference of values explains some elements of some results; a refusal, some of XLA's messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

import numpy as np

from hloom.shape.element_type import ElementType

from .case import Case
from .comparison import differs, unit, wide
from .draw import Array


@dataclass(frozen=True)
class Difference:
    """One result of a case that differs.

    Attributes:
        case: the case.
        ours, theirs: the result by hloom and by XLA.
        where: the elements that differ.
        again: hloom's value of this result for other arguments.
    """

    case: Case
    ours: Array
    theirs: Array
    where: Array
    again: Callable[[Sequence[Array]], Array]


@dataclass(frozen=True)
class KnownDifference:
    """A difference of values.

    Attributes:
        name: a short name.
        operations: patterns of the operations of cases that show it.
        reason: whose doing it is, and what hloom goes by.
        explains: which of the elements that differ it explains.
    """

    name: str
    operations: tuple[str, ...]
    reason: str
    explains: Callable[[Difference], Array]

    def about(self, case: Case) -> bool:
        """Whether a case may show it."""
        return any(fnmatch(case.operation, pattern) for pattern in self.operations)


@dataclass(frozen=True)
class KnownRefusal:
    """A case that XLA does not run.

    Attributes:
        message: a regular expression for what XLA says, or for the last words of its process.
        operations, reason: as of a difference of values.
    """

    name: str
    operations: tuple[str, ...]
    message: str
    reason: str

    def explains(self, case: Case, message: str) -> bool:
        """Whether this is it."""
        about = any(fnmatch(case.operation, pattern) for pattern in self.operations)
        return about and re.search(self.message, message, re.DOTALL) is not None


def everywhere(difference: Difference) -> Array:
    """All elements."""
    return difference.where


def smallest_normal(array: Array) -> float:
    """Of the type in which XLA:CPU computes with an array: f32 for narrower floats."""
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
    """The elements that agree if subnormal arguments and results are zero."""
    ours = flushed(difference.again([flushed(a) for a in difference.case.arguments]))
    if ours.shape != difference.theirs.shape:
        return np.zeros_like(difference.where)
    theirs = flushed(difference.theirs)
    zeros = (ours == 0) & (theirs == 0)
    return ~differs(ours, theirs, difference.case.tolerance) | zeros


def subnormal_keys_in_f16(difference: Difference) -> Array:
    """All elements, if several of the first operand's are subnormal numbers of f16."""
    keys = np.abs(wide(difference.case.arguments[0]))
    return difference.where & (np.count_nonzero((keys > 0) & (keys < 2.0**-14)) > 1)


def six_bits_of_the_exponent(difference: Difference) -> Array:
    """Integer powers with exponents that six bits do not hold, or negative ones."""
    exponent = difference.case.arguments[1]
    return (exponent < 0) | (exponent.astype(np.uint64) > 63)


def of_constants(difference: Difference) -> Array:
    """All elements, where the arguments are constants."""
    return difference.where & difference.case.folded


def largest_number(difference: Difference) -> Array:
    """Where the argument is the largest number of its type, or the lowest."""
    (argument,) = difference.case.arguments
    return np.abs(wide(argument)) == ElementType.from_dtype(argument.dtype).limits[1]


def below_zero(difference: Difference) -> Array:
    """Where the argument is negative."""
    (argument,) = difference.case.arguments
    return wide(argument).real < 0


def ill_conditioned_power(case: Case, ours: Array, theirs: Array) -> Array:
    """Where x^y = exp(y log x) is farther off by the error of y log x, a few units of its size."""
    x, y = (wide(a) for a in case.arguments)
    with np.errstate(all="ignore"):
        size = np.abs(y) * (np.abs(np.log(np.abs(x))) + np.pi)
        error = 32 * np.finfo(ours.dtype).eps * size
        distance = np.abs(wide(ours) - wide(theirs))
        value = np.abs(wide(ours))
        overflows = value * (1 + error) > np.finfo(ours.dtype).max
        return ~(error < 1) | (distance <= error * value) | overflows


def squares_out_of_range(difference: Difference) -> Array:
    """Where the square of a part of an argument is infinite or subnormal, or a part is no number at all."""
    where = np.zeros_like(difference.where)
    for argument in difference.case.arguments:
        limits = np.finfo(argument.dtype)
        for part in (np.abs(argument.real), np.abs(argument.imag)):
            large, small = np.sqrt(limits.max) / 4, np.sqrt(limits.tiny) * 4
            where |= ~(part < large) | ((part > 0) & (part < small))
    return where


def within_64_units_of_one(difference: Difference) -> Array:
    """Where the angles differ by little, measured against 1, or by the whole circle besides."""
    with np.errstate(all="ignore"):
        angle = wide(difference.ours) - wide(difference.theirs)
        distance = np.minimum(np.abs(angle), np.abs(np.abs(angle) - 2 * np.pi))
    return distance <= 64 * np.finfo(difference.ours.dtype).eps


def within_64_units_of_the_largest_square(difference: Difference) -> Array:
    """Where the values differ by little, measured against the square of the largest number of the operand."""
    operand = wide(difference.case.arguments[0])
    square = max(1.0, float(np.max(np.abs(operand)) ** 2))
    distance = np.abs(wide(difference.ours) - wide(difference.theirs))
    return distance <= 64 * unit(np.array(square), ElementType.from_dtype(difference.ours.dtype))


def infinite_arguments(difference: Difference) -> Array:
    """Where a part of an argument is infinite."""
    where = np.zeros_like(difference.where)
    for argument in difference.case.arguments:
        where |= np.isinf(argument.real) | np.isinf(argument.imag)
    return where


def infinite_parts(difference: Difference) -> Array:
    """Where a part of hloom's result is infinite."""
    return np.isinf(difference.ours.real) | np.isinf(difference.ours.imag)


def subnormal_parts(difference: Difference) -> Array:
    """Where a part of an argument is subnormal."""
    where = np.zeros_like(difference.where)
    for argument in difference.case.arguments:
        tiny = np.finfo(argument.dtype).tiny
        for part in (np.abs(argument.real), np.abs(argument.imag)):
            where |= (part > 0) & (part < tiny)
    return where


def beyond_the_actual_size(difference: Difference) -> Array:
    """Zeros of hloom's where the actual size is 0."""
    return (difference.ours == 0) & (difference.case.arguments[1] == 0)


def zeros(difference: Difference) -> Array:
    """Where values are equal but for the signs of zeros."""
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
    ),
    KnownDifference(
        "which of equals is selected",
        ("select-and-scatter * tied",),
        "hloom goes through a window in the order of the indices, XLA:CPU in that of a layout of its own.",
        everywhere,
    ),
    KnownDifference(
        "scatter without index",
        ("scatter * without index",),
        "Every update lands on the same window; XLA:CPU writes none.",
        everywhere,
    ),
    KnownDifference(
        "slices of what is not there",
        ("dynamic * slice",),
        "A slice of fixed size out of nothing: hloom gives zero, XLA:CPU what lies beyond the actual size.",
        beyond_the_actual_size,
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
    ),
    KnownDifference(
        "bits of narrow integers",
        ("popcnt s2", "popcnt s4"),
        "XLA:CPU counts the bits of the byte that holds the number, copies of the sign included.",
        everywhere,
    ),
    KnownDifference(
        "the largest f4e2m1fn as an integer",
        ("convert f4e2m1fn *",),
        "XLA:CPU takes 6, the largest number, for infinite.",
        largest_number,
    ),
    KnownDifference(
        "negative numbers as f8e8m0fnu",
        ("convert * f8e8m0fnu",),
        "The type has no sign. XLA:CPU drops it; ml_dtypes and hloom give NaN.",
        below_zero,
    ),
    KnownDifference(
        "total order of constants",
        ("compare total f8*",),
        "XLA's folding of constants orders NaN of 8-bit floats otherwise than the code it compiles.",
        of_constants,
    ),
    KnownDifference(
        "leading zeros of constants",
        ("count-leading-zeros s*",),
        "XLA's folding of constants counts the bits of negative numbers in a wider type.",
        of_constants,
    ),
    KnownDifference(
        "integer convolutions of constants",
        ("convolution s*", "convolution u*"),
        "XLA's folding of constants saturates; hloom wraps, as compiled code does.",
        of_constants,
    ),
    KnownDifference(
        "unsigned indices that are constants",
        ("gather u*", "scatter * u[0-9]*", "dynamic-slice u*", "dynamic-update-slice u*"),
        "XLA's folding of constants takes large unsigned indices for negative ones.",
        of_constants,
    ),
    KnownDifference(
        "subnormal constants of reduced precision",
        ("reduce-precision f16", "reduce-precision bf16"),
        "XLA's folding of constants makes subnormal numbers 0, also where no exponent bit is taken away.",
        of_constants,
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
    ),
    KnownDifference(
        "overflow of complex circular functions",
        ("sine c*", "cosine c*", "tan c*"),
        "sinh and cosh of the imaginary part overflow; XLA:CPU then makes NaN of infinity times 0.",
        infinite_parts,
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
    ),
)

REFUSALS: tuple[KnownRefusal, ...] = ()
