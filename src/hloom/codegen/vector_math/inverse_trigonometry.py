"""asin, acos, atan2."""

from __future__ import annotations

import math
from typing import Final

from hloom.codegen.llvm import Value
from hloom.codegen.vector_math.reals import Reals, coefficients, itself_if_negligible

_ASIN: Final = {
    # (asin(s) - s) / s³ in s² for |s| <= 1/2; relative errors of asin(s): 2^-27.6, 2^-55.9
    False: coefficients("""
        0.16666753590106964 0.07495249062776566 0.04547666013240814 0.02414812333881855
        0.042219821363687515
    """),
    True: coefficients("""
        0.16666666666665375 0.07500000000344943 0.04464285682186155 0.03038195940002885
        0.02237175183252674 0.017359797183942913 0.013884335512802758 0.01217503951789015
        0.0065031008196754165 0.019595490729433694 -0.016328503400959756 0.03198293701460467
    """),
}
_ATAN: Final = {
    # (atan(t) - t) / t³ in t² for |t| <= 1; relative errors of atan(t): 2^-25.8, 2^-56.8
    False: coefficients("""
        -0.33333152532577515 0.19993767142295837 -0.14211000502109528 0.10665755718946457
        -0.07551614940166473 0.04320399835705757 -0.016362620517611504 0.0029192499350756407
    """),
    True: coefficients("""
        -0.3333333333333307 0.19999999999951756 -0.14285714282588594 0.1111111100735739
        -0.09090907008058108 0.07692279891689922 -0.06666404443680388 0.058805299153212656
        -0.052535272019320504 0.04722349619367385 -0.042192464809915335 0.036643212169899284
        -0.029905820428768028 0.021987156512155336 -0.01390264154023929 0.007197922429891927
        -0.002885624280957992 0.000831563346997725 -0.00015221167065916207 1.3230028088756393e-05
    """),
}
_PI: Final = {
    False: (3.1415927410125732, -8.742277657347586e-08),
    True: (3.141592653589793, 1.2246467991473532e-16),
}
"""π as a sum of two numbers; by is_double."""


def _arc_parts(r: Reals, size: Value) -> tuple[Value, Value, Value]:
    """Return (s, t, |x| > 1/2) with asin(s) = s + t, s = |x|, or s = sqrt((1 - |x|) / 2) for large |x|."""
    large = size.compare("ogt", 0.5)
    halved = r.fma(size, -0.5, 0.5)
    square = large.select(halved, size * size)
    root = r.sqrt(halved)
    sine = large.select(root, size)
    series = r.polynomial(square, _ASIN[r.is_double]) * square
    # the error term of the root
    lost = large.select(-r.product_rest(root, root, halved) / (root + root), 0.0)
    # sqrt(0) is exact
    lost = halved.compare("oeq", 0.0).select(0.0, lost)
    return sine, r.fma(series, sine, lost), large


@itself_if_negligible
def arc_sine(x: Value) -> Value:
    """Return asin(x), for large |x| as π/2 - 2 asin(sqrt((1 - |x|) / 2)); NaN beyond 1."""
    r = Reals(x)
    sine, error, large = _arc_parts(r, r.absolute(x))
    high, low = (part / 2 for part in _PI[r.is_double])
    turned = (high - (sine + sine)) + (low - (error + error))
    return r.copysign(large.select(turned, sine + error), x)


def arc_cosine(x: Value) -> Value:
    """Return acos(x): π/2 - asin(x), 2 asin(sqrt((1 - |x|) / 2)), or π minus that; NaN beyond 1."""
    r = Reals(x)
    sine, error, large = _arc_parts(r, r.absolute(x))
    high, low = _PI[r.is_double]
    negative = x.compare("olt", 0.0)
    # base - u - v for base, u, v that depend on the case
    doubled_sine, doubled_error = large.select(sine + sine, sine), large.select(error + error, error)
    flips = ~(negative ^ large)
    u, v = flips.select(doubled_sine, -doubled_sine), flips.select(doubled_error, -doubled_error)
    base_high = large.select(negative.select(r.constant(high), 0.0), high / 2)
    base_low = large.select(negative.select(r.constant(low), 0.0), low / 2)
    return (base_high - u) + (base_low - v)


def arc_tangent(y: Value, x: Value) -> Value:
    """Return the angle of (x, y): atan of the smaller coordinate over the larger, moved to its octant."""
    r = Reals(x)
    height, width = r.absolute(y), r.absolute(x)
    steep = height.compare("ogt", width)
    below, above = steep.select(height, width), steep.select(width, height)
    ratio = above / below
    ratio = below.compare("oeq", 0.0).select(0.0, ratio)
    ratio = above.compare("oeq", math.inf).select(1.0, ratio)
    square = ratio * ratio
    series = square * r.horner(square, _ATAN[r.is_double])
    negative = r.bits(x).compare("slt", 0)
    high, low = _PI[r.is_double]
    flips = steep ^ negative
    ratio = flips.select(-ratio, ratio)
    base_high = steep.select(r.constant(high / 2), negative.select(r.constant(high), 0.0))
    base_low = steep.select(r.constant(low / 2), negative.select(r.constant(low), 0.0))
    angle = r.copysign((base_high + ratio) + r.fma(ratio, series, base_low), y)
    return x.compare("uno", y).select(math.nan, angle)
