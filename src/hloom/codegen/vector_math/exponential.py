"""exp, expm1, logistic, sinh, cosh and tanh.

exp(x) = 2^n exp(r), r = x - n log 2 with |r| <= log(2) / 2, and exp(r) = 1 + r + r² q(r) with a minimax
polynomial q.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from hloom.codegen.llvm import Value
from hloom.codegen.vector_math.reals import Pair, Reals, coefficients, itself_if_negligible, quotient_of_sums

LOG2_E: Final = 1.4426950408889634
LOG_2: Final = {False: (0.693359375, -2.12194440e-4), True: (6.93145751953125e-1, 1.42860682030941723212e-6)}
"""log 2 as a sum whose first term has few enough bits that small multiples of it are exact; by is_double."""

_EXP: Final = {
    # relative errors of exp(r): 2^-28.2, 2^-57.9
    False: coefficients("""
        0.4999999403953552 0.16666516661643982 0.04166810214519501 0.00836916547268629
        0.0013838006416335702
    """),
    True: coefficients("""
        0.5000000000000011 0.16666666666666435 0.04166666666652577 0.008333333333475756
        0.0013888888944862366 0.00019841269555315413 2.4801491761560904e-05 2.755753612889772e-06
        2.763073977085302e-07 2.5017849389348052e-08
    """),
}
_SINH: Final = {
    # (sinh(x) - x) / x³ in x² for |x| <= 1; relative errors of sinh(x): 2^-31.5, 2^-61.7
    False: (0.1666666716337204, 0.008333311416208744, 0.00019842635083477944, 2.783925765470485e-06),
    True: coefficients("""
        0.16666666666666669 0.008333333333332915 0.00019841269841589253 2.7557319108480516e-06
        2.5052130676488366e-08 1.6056687032486915e-10 7.775693040794591e-13
    """),
}
_TANH: Final = {
    # (tanh(x) - x) / x³ in x² for |x| <= 0.5494; relative errors of tanh(x): 2^-24.8, 2^-55.5
    False: (-0.33332958817481995, 0.13320963084697723, -0.052685193717479706, 0.016460387036204338),
    True: coefficients("""
        -0.3333333333333233 0.13333333333171446 -0.05396825387743226 0.021869486007379778
        -0.008863194945532157 0.00359172329430399 -0.0014532347410060598 0.0005791910123944424
        -0.00021039170779144878 5.10839993038263e-05
    """),
}
TANH_HALF: Final = 0.5493
"""Argument at which tanh is about 1/2."""


class Range(NamedTuple):
    """Bounds between which exp is neither 0 nor infinite, and above which exp(-x) is negligible against 1.

    Attributes:
        vanishing: exp is 0 below it: its exact value is less than half of the smallest number.
    """

    lowest: float
    highest: float
    negligible: float
    vanishing: float


RANGE: Final = {False: Range(-104.0, 89.0, 20.0, -103.98), True: Range(-746.0, 710.0, 40.0, -745.14)}


RANGE_2: Final = {False: (-150.0, 129.0), True: (-1075.0, 1025.0)}
"""Bounds below which 2^x is 0 (at them, half of the smallest number rounds to 0), above which infinite."""
LOG_2_TAIL: Final = {False: -1.9046543250e-09, True: 2.3190468138462996e-17}
"""log 2 less its nearest number."""
_SQUARED_AWAY: Final = {False: 2.0**-60, True: 2.0**-500}
"""The square of smaller numbers is nearly subnormal."""


def exponential(x: Value) -> Value:
    """Return e^x; lanes whose result is 0 are masked, since underflow takes some processors 100 cycles."""
    r = Reals(x)
    limits = RANGE[r.is_double]
    lasts = x.compare("uge", limits.vanishing)
    series, multiple = _series(r, lasts.select(r.at_most(x, limits.highest), 0.0), None)
    return lasts.select(r.scale_one_plus_gradually(series, multiple), 0.0)


def exponential_base_2(x: Value) -> Value:
    """Return 2^x = 2^n e^(r log 2), r = x - n, of which only the product with log 2 is rounded."""
    r = Reals(x)
    limits = RANGE_2[r.is_double]
    lasts = x.compare("uge", limits[0])
    bounded = lasts.select(r.at_most(x, limits[1]), 0.0)
    multiple = r.nearest_multiple(bounded, 1.0)
    fraction = bounded - multiple[0]
    product = fraction * math.log(2)
    low = r.fma(fraction, LOG_2_TAIL[r.is_double], r.product_rest(fraction, r.constant(math.log(2)), product))
    tail = r.fma(product * product, r.polynomial(product, _EXP[r.is_double]), low)
    return lasts.select(r.scale((tail + product) + 1.0, multiple), 0.0)


def exponential_parts(r: Reals, x: Value, low: Value | None = None) -> tuple[Value, Pair]:
    """Return (p, n) with e^(x + low) = p * 2^n and p in about [0.7, 1.42]; n as by `nearest_multiple`."""
    series, multiple = _series(r, x, low)
    return series + 1.0, multiple


def exponential_as_sum(r: Reals, x: Value) -> tuple[Pair, Pair]:
    """Return the parts with an error term of p."""
    series, multiple = _series(r, x, None)
    return r.fast_two_sum(r.constant(1.0), series), multiple


def exponential_terms(r: Reals, x: Value, low: Value) -> tuple[Pair, Pair]:
    """Return ((s, t), n) with e^(x + low) = (1 + s + t) * 2^n, |s| < 0.35 and |t| < 0.08.

    The numbers n are those of `nearest_multiple`.
    """
    remainder, multiple = _reduced(r, x, low)
    return (remainder, remainder * remainder * r.polynomial(remainder, _EXP[r.is_double])), multiple


def _series(r: Reals, x: Value, low: Value | None) -> tuple[Value, Pair]:
    remainder, multiple = _reduced(r, x, low)
    return r.fma(remainder * remainder, r.polynomial(remainder, _EXP[r.is_double]), remainder), multiple


def _reduced(r: Reals, x: Value, low: Value | None = None) -> tuple[Value, Pair]:
    multiple = r.nearest_multiple(x, LOG2_E)
    high, rest = LOG_2[r.is_double]
    near = r.fma(multiple[0], -high, x)  # exact
    return r.fma(multiple[0], -rest, near) if low is None else near + r.fma(multiple[0], -rest, low), multiple


def exponential_minus_one(x: Value) -> Value:
    """Return e^x - 1, computed as twice a half, which does not overflow."""
    r = Reals(x)
    limits = RANGE[r.is_double]
    matters = r.matters(x)
    bounded = matters.select(r.at_least(r.at_most(x, limits.highest), -limits.negligible), 0.0)
    remainder, (_, n) = _reduced(r, bounded)
    tail = remainder * remainder * r.polynomial(remainder, _EXP[r.is_double])
    power = r.power_of_two(n - 1)
    # r is added to 2^n - 1 first: their sum is exact near 0
    half = r.fma(tail, power, r.fma(remainder, power, power - 0.5))
    return matters.select(half + half, x)


def logistic(x: Value) -> Value:
    """Return 1 / (1 + e^-x), by e^-|x|, which does not overflow and keeps small results exact."""
    r = Reals(x)
    decay = exponential(-r.size_that_matters(x))
    is_negative = r.bits(x).compare("slt", 0)
    total, lost = r.fast_two_sum(r.constant(1.0), decay)
    # negligible against 1: the quotient is the decay, and products with it would be subnormal
    matters = decay.compare("uge", _SQUARED_AWAY[r.is_double])
    lost = matters.select(lost, 0.0)
    numerator = r.apart(~(is_negative & matters), 1.0, decay)
    quotient = quotient_of_sums(r, (numerator, r.constant(0.0)), (total, lost))
    return matters.select(quotient, is_negative.select(decay, 1.0))


def tanh(x: Value) -> Value:
    """Return a polynomial up to tanh = 1/2, beyond it 1 - 2 / (e^2|x| + 1) with the sign of x."""
    r = Reals(x)
    matters = r.absolute(x).compare("oge", r.negligible)  # NaN is itself too
    counted = matters.select(x, 0.0)
    square = counted * counted
    near = r.fma(square * counted, r.polynomial(square, _TANH[r.is_double]), counted)
    near = matters.select(near, x)
    size = r.absolute(counted)
    bounded = r.at_most(size, RANGE[r.is_double].negligible)
    multiple, n = r.nearest_multiple(bounded, 2.0 * LOG2_E)
    # log 2 needs no second part: n is small, and the result less wrong than the exponential
    remainder = r.fma(multiple, -0.5 * math.log(2), bounded)
    quadratic = [c * 2.0 ** (k + 2) for k, c in enumerate(_EXP[r.is_double])]
    series = r.fma(remainder * remainder, r.polynomial(remainder, quadratic), remainder + remainder)
    power = r.power_of_two(n)
    far = 1.0 - 2.0 / r.fma(series, power, power + 1.0)
    return size.compare("olt", TANH_HALF).select(near, r.with_sign_of(far, x))


def hyperbolic_parts(r: Reals, size: Value) -> tuple[Value, Value]:
    """Return (e^x / 2, e^-x / 2) for x >= 0."""
    fraction, multiple = exponential_parts(r, r.at_most(size, RANGE[r.is_double].highest + 2.0))
    grown = r.scale(fraction * 0.5, multiple)
    return grown, 0.25 / grown


def cosh(x: Value) -> Value:
    """Return (e^x + e^-x) / 2."""
    r = Reals(x)
    grown, decayed = hyperbolic_parts(r, r.size_that_matters(x))
    return grown + decayed


@itself_if_negligible
def sinh(x: Value) -> Value:
    """Return (e^x - e^-x) / 2; a polynomial near 0."""
    r = Reals(x)
    size = r.absolute(x)
    grown, decayed = hyperbolic_parts(r, size)
    return r.copysign(size.compare("olt", 1.0).select(small_sinh(r, size), grown - decayed), x)


def small_sinh(r: Reals, x: Value) -> Value:
    """Return sinh(x) for |x| <= 1."""
    square = x * x
    return r.fma(square * x, r.polynomial(square, _SINH[r.is_double]), x)


def small_sinh_as_sum(r: Reals, x: Value) -> Pair:
    """Return sinh(x) for |x| <= 1 with an error term."""
    square = x * x
    return r.fast_two_sum(x, square * x * r.polynomial(square, _SINH[r.is_double]))
