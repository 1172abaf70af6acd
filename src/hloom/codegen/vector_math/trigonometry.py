"""sin, cos and tan."""

from __future__ import annotations

from functools import partial
from typing import Final

from hloom.codegen.llvm import Value
from hloom.codegen.vector_math.angles import (
    flipped_in_upper_half,
    odd_quadrant,
    of_large_angle,
    reduce_roughly,
    reduce_usual,
    usual_limit,
)
from hloom.codegen.vector_math.reals import (
    Pair,
    Reals,
    coefficients,
    itself_if_negligible,
    quotient_of_sums,
    where_any,
    where_any_of,
)

_SINE: Final = {
    # (sin(r) - r) / r³ in r² for |r| <= π/4; relative errors of sin(r): 2^-28.0, 2^-58.0
    False: (-0.16666655242443085, 0.008332190103828907, -0.00019518405315466225),
    True: coefficients("""
        -0.16666666666666632 0.008333333333322455 -0.00019841269829813524 2.7557313687646975e-06
        -2.5050756730476693e-08 1.589668297647107e-10
    """),
}
_COSINE: Final = {
    # (cos(r) - 1 + r²/2) / r⁴ in r² for |r| <= π/4; relative errors of cos(r): 2^-33.0, 2^-63.9
    False: (0.04166664555668831, -0.0013887309469282627, 2.4432327336398885e-05),
    True: coefficients("""
        0.041666666666666595 -0.0013888888888873307 2.4801587288965315e-05 -2.755731420313679e-07
        2.0875703152062446e-09 -1.1358617889808062e-11
    """),
}


# (tan(r) - r) / r³ in r² for |r| <= π/4; relative error of tan(r): 2^-29.5
_TANGENT: Final = coefficients("""
    0.33333349227905273 0.1333267241716385 0.05405944585800171 0.021282769739627838 0.010837704874575138
    8.385602268390357e-05 0.004380372352898121
""")


@itself_if_negligible
def sine(x: Value) -> Value:
    """Return sin(x), reduced exactly for any magnitude; NaN for infinity."""
    return _circular(x, "sine", 0)


def cosine(x: Value) -> Value:
    """cos(x), exactly reduced however large x is; NaN at infinity."""
    return _circular(Reals(x).size_that_matters(x), "cosine", 1)


def _circular(x: Value, name: str, shift: int) -> Value:
    r = Reals(x)
    if r.is_double:
        usual = _rotated(r, *reduce_usual(r, x), shift)
    else:
        remainder, quadrant = reduce_roughly(r, x)
        usual = _in_quadrant(r, *_rough_kernels(r, remainder), quadrant, shift)
    large = r.absolute(x).compare("ogt", usual_limit(r))
    return where_any(large, usual, lambda: of_large_angle(x, name, partial(_rotated, shift=shift)))


def _rotated(r: Reals, rest: Value, low: Value, quadrant: Value, shift: int) -> Value:
    """Return the sine of r + l shifted by ``shift`` quadrants."""
    if not r.is_double:
        return _in_quadrant(r, *_rough_kernels(r, rest), quadrant, shift)
    (sine_head, sine_tail), (cosine_head, cosine_tail) = _kernels(r, rest, low)
    return _in_quadrant(r, sine_head + sine_tail, cosine_head + cosine_tail, quadrant, shift)


def _in_quadrant(r: Reals, sine_part: Value, cosine_part: Value, quadrant: Value, shift: int) -> Value:
    shifted = quadrant + shift if shift else quadrant
    return flipped_in_upper_half(r, odd_quadrant(shifted).select(cosine_part, sine_part), shifted)


def _rough_kernels(r: Reals, rest: Value) -> Pair:
    """Return sin(r) and cos(r) of f32 angles with |r| <= π/4."""
    square = rest * rest
    sine_part = r.fma(rest * square, r.polynomial(square, _SINE[False]), rest)
    series = r.fma(square, r.polynomial(square, _COSINE[False]), -0.5)
    return sine_part, r.fma(square, series, 1.0)


def _kernels(r: Reals, rest: Value, low: Value) -> tuple[Pair, Pair]:
    """Return sin(r + l) and cos(r + l) of f64 angles with |r| <= π/4, each as a sum.

    sin(r + l) = sin(r) + l (1 - r²/2) and cos(r + l) = cos(r) - r l.
    """
    square = rest * rest
    half = square * 0.5
    sine_tail = r.fma(rest * square, r.polynomial(square, _SINE[True]), r.fma(low, -half, low))
    head, lost = r.fast_two_sum(r.constant(1.0), -half)
    cosine_tail = r.fma(square * square, r.polynomial(square, _COSINE[True]), r.fma(rest, -low, lost))
    return (rest, sine_tail), (head, cosine_tail)


def sine_and_cosine_as_sums(x: Value) -> tuple[Pair, Pair]:
    """Return sin(x) and cos(x) of f64 angles with error terms, which are 0 for large angles."""
    r = Reals(x)
    remainder, low, quadrant = reduce_usual(r, x)
    sine_part, cosine_part = (r.fast_two_sum(*kernel) for kernel in _kernels(r, remainder, low))
    usual = [
        _in_quadrant(r, s, c, quadrant, shift)
        for shift in (0, 1)
        for s, c in zip(sine_part, cosine_part, strict=True)
    ]
    usual[0] = x.compare("oeq", 0.0).select(x, usual[0])

    def of_large() -> list[Value]:
        sin = of_large_angle(x, "sine", partial(_rotated, shift=0))
        cos = of_large_angle(x, "cosine", partial(_rotated, shift=1))
        return [sin, r.constant(0.0), cos, r.constant(0.0)]

    large = r.absolute(x).compare("ogt", usual_limit(r))
    sin, sin_short, cos, cos_short = where_any_of(large, usual, of_large)
    return (sin, sin_short), (cos, cos_short)


@itself_if_negligible
def tangent(x: Value) -> Value:
    """Return sin(x) / cos(x); NaN for infinity."""
    r = Reals(x)
    evaluate = _tangent_of_double if r.is_double else _tangent_of_single
    usual = evaluate(r, *reduce_usual(r, x))
    large = r.absolute(x).compare("ogt", usual_limit(r))
    return where_any(large, usual, lambda: of_large_angle(x, "tangent", evaluate))


def _tangent_of_single(r: Reals, rest: Value, low: Value, quadrant: Value) -> Value:
    """Return tan(r + l), or -1 / tan(r + l) in odd quadrants, of f32 angles; l is weighted by 1 + r²."""
    square = rest * rest
    tail = r.fma(rest * square, r.polynomial(square, _TANGENT), r.fma(low, square, low))
    near, short = r.fast_two_sum(rest, tail)
    reciprocal = -1.0 / near
    over = r.fma(reciprocal, short, r.product_rest(reciprocal, near, r.constant(-1.0)))
    return odd_quadrant(quadrant).select(r.fma(reciprocal, over, reciprocal), near)


def _tangent_of_double(r: Reals, rest: Value, low: Value, quadrant: Value) -> Value:
    (sine_part, sine_rest), (cosine_part, cosine_rest) = (
        r.fast_two_sum(*kernel) for kernel in _kernels(r, rest, low)
    )
    odd = odd_quadrant(quadrant)
    above, above_rest = odd.select(cosine_part, sine_part), odd.select(cosine_rest, sine_rest)
    below, below_rest = odd.select(sine_part, cosine_part), odd.select(sine_rest, cosine_rest)
    ratio = quotient_of_sums(r, (above, above_rest), (below, below_rest))
    return r.from_bits(r.bits(ratio) ^ ((quadrant & 1) << 63))
