"""erf."""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import Value
from hloom.codegen.vector_math.exponential import exponential_parts
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
