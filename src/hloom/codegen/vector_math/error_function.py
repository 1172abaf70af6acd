"""erf and erfc."""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import Value
from hloom.codegen.vector_math.exponential import exponential_parts, exponential_terms
from hloom.codegen.vector_math.reals import Reals, coefficients, where_any

_BOUND: Final = {False: 0.84375, True: 1.0}
"""Upper limit of the first polynomial."""
_ONE_FROM: Final = {False: 3.95, True: 5.95}
"""Lower limit above which the result is 1."""
_NEAR: Final = {
    # erf(x) / x - 1 in x²; errors 2^-27.3, 2^-55.8
    False: coefficients("""
        0.12837916612625122 -0.3761259615421295 0.11282952129840851 -0.026811229065060616
        0.00506469514220953 -0.0006391101633198559
    """),
    True: coefficients("""
        0.12837916709551256 -0.3761263890318334 0.11283791670936526 -0.026866170641864716
        0.005223977595778744 -0.000854832543186931 0.00012055278728814339 -1.4924428857495866e-05
        1.6443668231236055e-06 -1.6180119538275624e-07 1.3599331351812158e-08 -7.574464251010099e-10
    """),
}
_FAR: Final = {
    # -log(1 - erf(x)); relative errors of erf(x): 2^-28.8, 2^-57.0
    False: coefficients("""
        9.786828013602644e-05 1.1280899047851562 0.6364679336547852 0.10457272082567215
        -0.022542575374245644 0.003123994916677475 -0.00020432726887520403
    """),
    True: coefficients("""
        5.03240424423408e-07 1.1283740857954598 0.6366436441944162 0.10270339604896242
        -0.018990097815185635 -0.0004107386696368073 0.0019160583091671487 -0.0007707357798543521
        0.00013510889572652138 2.0237448689348733e-05 -2.28109956294341e-05 8.663607213102263e-06
        -2.134824925498291e-06 3.7314770268059897e-07 -4.6402168276656546e-08 3.932348356554593e-09
        -2.0438751147598932e-10 4.9257479649528435e-12
    """),
}
_COMPLEMENT_ZERO_FROM: Final = {False: 10.0542, True: 27.22602}
"""Lower limit above which erfc(x) is less than half of the smallest number."""
_CENTER: Final = 2.0
"""The k of the quotient m = -2k / (x + k), in which erfc(x) has a short series at x = k."""
_SLOPE: Final = -0.157
"""m P(1 + m) is proportional to about m to the power of 2k (1 / 2k + m slope) next to any m."""
_COMPLEMENT_AT_CENTER: Final = {False: -0.25539568066596985, True: -0.25539567631050575}
_COMPLEMENT: Final = {
    # e^x² erfc(x) / m in 1 + m, less the number above; relative errors 2^-27.53, 2^-57.995
    False: coefficients("""
        3.5169414047686587e-09 0.17179016768932343 -0.06986793875694275 0.009110561572015285
        0.005376404616981745 -0.0016196228098124266 -0.0007657295209355652 0.00020952796330675483
        0.00014875936903990805 -1.2982529369764961e-05 -1.8168682800023817e-05
    """),
    True: coefficients("""
        3.7614514703262446e-18 0.17179017110345265 -0.0698680231390135 0.00911055787671936
        0.005377665472359492 -0.0016197962669264084 -0.0007726530145061818 0.00020932401549834812
        0.00016576837271075874 -8.592857583716295e-06 -3.611765985465409e-05 -8.537235416817128e-06
        5.423913192167824e-06 4.030276787990668e-06 2.819376872986222e-07 -9.110306933264645e-07
        -5.020395881754325e-07 -6.003428641014075e-10 1.4591191209703622e-07 8.180189639555721e-08
        -3.2678573135677898e-09 -2.9011329193645016e-08 -1.1088609165424584e-08 3.99499810235442e-09
        3.2240482284961166e-09 -1.0311935829653251e-11 -2.5522672286486403e-10
    """),
}


def error_function(x: Value) -> Value:
    """Return erf(x) = x + x P(x²) near 0, beyond it 1 - exp(-Q(|x|)) with the sign of x."""
    r = Reals(x)
    size = r.absolute(x)
    # neither the square nor the products of the series are subnormal
    counted = r.at_least(size, r.negligible)
    safe = r.at_least(size, 2.0 ** (1 - r.bias))
    near = r.fma(safe, r.polynomial(counted * counted, _NEAR[r.is_double]), safe)
    near = where_any(size.compare("olt", 2.0 ** (1 - r.bias)), near, lambda: _of_subnormal(r, size))
    bounded = r.at_most(size, _ONE_FROM[r.is_double])
    fraction, (_, n) = exponential_parts(r, -r.polynomial(bounded, _FAR[r.is_double]))
    far = 1.0 - r.scale_between(fraction, n)
    return r.with_sign_of(size.compare("ult", _BOUND[r.is_double]).select(near, far), x)


def _of_subnormal(r: Reals, size: Value) -> Value:
    """Return the first term of the series for subnormal numbers, in integer arithmetic."""
    scaled = r.subnormal_as_integer(size) * _NEAR[r.is_double][0]
    return r.from_bits(r.bits(size) + r.rounded_integer(scaled))


def complementary_error_function(x: Value) -> Value:
    """Return erfc(x) = m P(1 + m) exp(-x²), m = -2k / (x + k), for x >= 0, and 2 - erfc(-x) for others.

    The effect of the rounding error of m and that of x² are added to the exponent. Large terms are kept with
    their rounding errors, so that only the last addition rounds to the precision of the result.
    """
    r = Reals(x)
    size = r.size_that_matters(x)
    lasts = size.compare("ult", _COMPLEMENT_ZERO_FROM[r.is_double])
    size = lasts.select(size, 0.0)
    square, square_error = r.two_product(size, size)
    total = size + _CENTER
    m = -2.0 * _CENTER / total
    over = r.fma(m, size - (total - _CENTER), r.product_rest(m, total, r.constant(-2.0 * _CENTER)))
    power = r.fma(m, _SLOPE, 1.0 / (2.0 * _CENTER))
    (large, small), multiple = exponential_terms(r, -square, r.fma(over, power, -square_error))
    q = m + 1.0
    first, *others = _COMPLEMENT[r.is_double]
    evaluate = r.horner if r.is_double else r.polynomial  # in f64, even and odd powers nearly cancel
    rest = r.fma(q, evaluate(q, others), first)
    value, value_error = r.fast_two_sum(r.constant(_COMPLEMENT_AT_CENTER[r.is_double]), rest)
    factor, factor_error = r.two_product(m, value)
    small = r.fma(factor, small, r.fma(m, value_error, factor_error))
    tail = lasts.select(r.scale(factor + r.fma(factor, large, small), multiple), 0.0)
    return r.bits(x).compare("slt", 0).select(2.0 - tail, tail)
