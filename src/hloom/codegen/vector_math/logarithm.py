"""log, log1p, asinh, acosh and atanh.

log(x) = e log 2 + log(1 + f) with x = 2^e (1 + f) and sqrt(1/2) <= 1 + f < sqrt(2).
"""

from __future__ import annotations

import math
from typing import Final

from hloom.codegen.llvm import F64, I32, I64, Value, make_type
from hloom.codegen.vector_math.exponential import LOG2_E, LOG_2
from hloom.codegen.vector_math.reals import (
    Pair,
    Reals,
    coefficients,
    in_double,
    in_registers,
    itself_if_negligible,
)

# (log(1 + f) - f + f²/2) / f³; relative error of log(1 + f): 2^-27.3
_LOG_SINGLE: Final = coefficients("""
    0.3333333134651184 -0.250008225440979 0.20001260936260223 -0.16623330116271973 0.14200925827026367
    -0.13159559667110443 0.12767383456230164 -0.07643689215183258
""")
# (2 atanh(s) / s - 2) / s² in s², s = f / (2 + f); relative error of 2 atanh(s): 2^-59.5
_LOG_DOUBLE: Final = coefficients("""
    0.6666666666666734 0.3999999999941652 0.28571428742072447 0.22222198599191276 0.1818356321226382
    0.15314074364331223 0.14795749275800713
""")
# the same; relative error 2^-44.9
LOG_SHORT: Final = coefficients("""
    0.6666666667580449 0.39999995620838236 0.28572109249162964 0.2217618538708322 0.19584193536519656
""")
# (2 atanh(s) / s - 2 - 2/3 s²) / s⁴ in s²; relative error of 2 atanh(s): 2^-73.5
_LOG_LONG: Final = coefficients("""
    0.3999999999999998 0.2857142857144384 0.22222222217789595 0.18181818844033085 0.15384558424257996
    0.13336264719198188 0.11675775216176087 0.11981806883469623
""")
_SQRT_HALF: Final = {False: 0x3F3504F3, True: 0x3FE6A09E667F3BCD}
"""The pattern of sqrt(1/2)."""
LOG2_E_TAIL: Final = {False: 1.925963033500e-08, True: 2.0355273740931033e-17}
"""1 / log 2 less its nearest number."""
EXPONENT_UNIT: Final = {False: 2.0**23, True: 2.0**20}
"""Factor of exponents kept as floats: the upper bits of the pattern in place."""
_LARGE: Final = 2.0**60
"""Argument above which 1 is negligible; squares do not overflow there."""


def logarithm(x: Value) -> Value:
    """log(x); NaN of negative numbers, -infinity of 0."""
    r = Reals(x)
    fraction, exponent = normalized(r, x)
    return _extended(x, x, log_parts(r, fraction, exponent))


def logarithm_base_2(x: Value) -> Value:
    """log2(x) = e + log(1 + f) / log 2, exact for powers of 2; NaN of negative numbers, -infinity of 0."""
    r = Reals(x)
    fraction, scaled = normalized(r, x)
    exponent = scaled * (1.0 / EXPONENT_UNIT[r.is_double])
    natural = log_parts(r, fraction, r.constant(0.0))
    high = natural * LOG2_E
    low = r.fma(natural, LOG2_E_TAIL[r.is_double], r.product_rest(natural, r.constant(LOG2_E), high))
    total, tail = r.two_sum(exponent, high)
    return _extended(x, x, total + (tail + low))


def _extended(argument: Value, infinite: Value, result: Value) -> Value:
    """Return the result for positive finite arguments, else ``infinite``, -infinity or NaN."""
    if Reals(argument).has_vector_instructions:
        return in_registers(_vfixupimm, result, argument)
    below = argument.compare("oeq", 0.0).select(result.function.constant(result.type, -math.inf), math.nan)
    upper = argument.compare("olt", math.inf).select(result, infinite)
    return argument.compare("ole", 0.0).select(below, upper)


_SPECIAL_LOGARITHMS: Final = 0x03530422
"""VFIXUPIMM's table, a digit for each kind of argument: positive numbers keep the result (0), infinity stays
(5), 0 gives -infinity (4), negative numbers NaN (3), and NaN itself (2)."""


def _vfixupimm(result: Value, argument: Value) -> Value:
    """Emit VFIXUPIMM: replace results of special arguments."""
    f, kind = result.function, result.type
    bits = 8 * kind.size * kind.lanes
    name = f"llvm.x86.avx512.mask.fixupimm.{'pd' if kind.scalar is F64 else 'ps'}.{bits}"
    table = f.constant((I64 if kind.scalar is F64 else I32).vector(kind.lanes), _SPECIAL_LOGARITHMS)
    everywhere = f.constant(make_type(f"i{max(8, kind.lanes)}"), -1)
    rounding = [f.constant(I32, 4)] if bits == 512 else []
    return f.call(kind, name, result, argument, table, f.constant(I32, 0), everywhere, *rounding)


def normalized(r: Reals, x: Value, *, subnormal: bool = True) -> tuple[Value, Value]:
    """Return (f, e) of positive numbers; e is scaled. Subnormal numbers are handled unless excluded."""
    if not subnormal:
        shift = exponent_of(r, x)
        return r.from_bits(r.bits(x) - shift) - 1.0, exponent_as_float(r, shift)
    digits = r.mantissa_bits
    tiny = x.compare("olt", 2.0 ** (1 - r.bias))
    scaled = tiny.select(r.subnormal_as_integer(x), x)
    shift = exponent_of(r, scaled)
    exponent = exponent_as_float(r, shift)
    smallest = r.bias - 1 + digits
    exponent = tiny.select(exponent - smallest * EXPONENT_UNIT[r.is_double], exponent)
    return r.from_bits(r.bits(scaled) - shift) - 1.0, exponent


def exponent_of(r: Reals, x: Value) -> Value:
    """Return the exponent e of x = 2^e m with sqrt(1/2) <= m < sqrt(2), shifted to the exponent's bits."""
    return (r.bits(x) - _SQRT_HALF[r.is_double]) & -(1 << r.mantissa_bits)


def exponent_as_float(r: Reals, shift: Value) -> Value:
    """Convert an exponent, shifted to the exponent's bits, to a scaled float."""
    if r.is_double:
        # not every target converts 64-bit integers; the lower half of these is 0
        shift = (shift >> 32).cast("trunc", I32)
    return shift.cast("sitofp", r.type.scalar)


def log_parts(
    r: Reals, fraction: Value, exponent: Value, *, coefficients: tuple[float, ...] = _LOG_DOUBLE
) -> Value:
    """log(1 + f) + e log 2; the exponent e is scaled."""
    high, low = (part / EXPONENT_UNIT[r.is_double] for part in LOG_2[r.is_double])
    square = fraction * fraction
    if r.is_double:
        half = square * 0.5
        ratio = fraction / (fraction + 2.0)
        z = ratio * ratio
        series = ratio * r.fma(z, r.polynomial(z, coefficients), half)
        correction = r.fma(exponent, low, series) - half
    else:
        series = r.fma(r.polynomial(fraction, _LOG_SINGLE), fraction, -0.5)
        correction = r.fma(exponent, low, series * square)
    return r.fma(exponent, high, fraction + correction)


@itself_if_negligible
def logarithm_plus_one(x: Value) -> Value:
    """Return log(1 + x), also for x so small that 1 + x is 1."""
    r = Reals(x)
    total = x + 1.0
    return _extended(total, x, log_of_one_plus(r, x, total))


def log_of_one_plus(r: Reals, x: Value, total: Value, more: Value | None = None) -> Value:
    """log(1 + x) for x > -1, of which ``total`` is 1 + x rounded; plus ``more`` times log 2.

    1 + x = 2^e (1 + f) with f = 2^-e x + (2^-e - 1), which is rounded once only.
    """
    shift = exponent_of(r, total)
    # 4 * 2^-e is a normal number for every e
    quadruple = r.from_bits(r.function.constant(r.integer, r.pattern_of(4.0)) - shift)
    fraction = r.from_bits(r.bits(x) - shift) + r.fma(quadruple, 0.25, -1.0)
    exponent = exponent_as_float(r, shift)
    if more is not None:
        exponent = r.fma(more, EXPONENT_UNIT[r.is_double], exponent)
    return log_parts(r, fraction, exponent)


# -- inverse hyperbolic functions: f32 by logarithms in f64, whose range and precision suffice


def _short_logarithm(x: Value) -> Value:
    """log(x) to 40 bits, for f64 numbers that are 0 or not tiny."""
    r = Reals(x)
    return _extended(x, x, log_parts(r, *normalized(r, x, subnormal=False), coefficients=LOG_SHORT))


def log_as_sum(r: Reals, fraction: Value, exponent: Value) -> Pair:
    """log(1 + f) + e log 2 of f64 numbers as the sum of two, with an error of about 2^-65; e is scaled.

    log(1 + f) = 2 s + s³ (2/3 + s² Q(s²)), s = f / (2 + f); all but Q to twice the precision.
    """
    total, lost = r.fast_two_sum(r.constant(2.0), fraction)
    inverse = 1.0 / total
    s = fraction * inverse
    s_low = -r.fma(s, lost, r.product_rest(s, total, fraction)) * inverse
    z, z_low = r.two_product(s, s)
    z_low = r.fma(s + s, s_low, z_low)
    factor, factor_low = r.fast_two_sum(
        r.constant(2 / 3), r.fma(z, r.polynomial(z, _LOG_LONG), 3.700743415417188e-17)
    )
    cube, cube_low = _product(r, (s, s_low), (z, z_low))
    series, series_low = _product(r, (cube, cube_low), (factor, factor_low))
    head, tail = r.fast_two_sum(s + s, series)
    tail = tail + r.fma(s_low, 2.0, series_low)
    high, low = (part / EXPONENT_UNIT[True] for part in LOG_2[True])
    head, between = r.fast_two_sum(exponent * high, head)
    return r.fast_two_sum(head, between + r.fma(exponent, low, tail))


def _product(r: Reals, a: Pair, b: Pair) -> Pair:
    head, tail = r.two_product(a[0], b[0])
    return head, r.fma(a[1], b[0], r.fma(a[0], b[1], tail))


@itself_if_negligible
def asinh(x: Value) -> Value:
    """log(|x| + sqrt(x² + 1)), with the sign of x."""
    r = Reals(x)
    size = r.absolute(x)
    if not r.is_double:
        result = in_double(lambda a: _short_logarithm(a + Reals(a).sqrt(a * a + 1.0)), size)
        return _small_is_itself(r, x, result)
    square = size * size
    near = size + square / (r.sqrt(square + 1.0) + 1.0)
    return r.copysign(_log_of_sum(r, near, size), x)


def acosh(x: Value) -> Value:
    """log(x + sqrt(x² - 1)); NaN below 1."""
    r = Reals(x)
    if not r.is_double:
        result = in_double(lambda a: _short_logarithm(a + Reals(a).sqrt((a - 1.0) * (a + 1.0))), x)
    else:
        less = x - 1.0
        result = _log_of_sum(r, less + r.sqrt(less * (less + 2.0)), x)
    return x.compare("olt", 1.0).select(math.nan, result)


def _log_of_sum(r: Reals, near: Value, size: Value) -> Value:
    """Return log(1 + near), or log(2 size) if ``size`` is so large that they are equal."""
    large = size.compare("ogt", _LARGE)
    argument = large.select(size, near)
    doubled = large.select(r.constant(1.0), 0.0)
    total = argument + 1.0
    return _extended(total, argument, log_of_one_plus(r, argument, total, doubled))


@itself_if_negligible
def atanh(x: Value) -> Value:
    """log((1 + x) / (1 - x)) / 2; infinite at 1, NaN beyond."""
    r = Reals(x)
    size = r.absolute(x)
    if not r.is_double:
        return _small_is_itself(
            r, x, in_double(lambda a: _short_logarithm((a + 1.0) / (1.0 - a)) * 0.5, size)
        )
    twice = size + size
    argument = twice + twice * size / (1.0 - size)
    total = argument + 1.0
    result = _extended(total, argument, log_of_one_plus(r, argument, total)) * 0.5
    return r.copysign(size.compare("ogt", 1.0).select(math.nan, result), x)


def _small_is_itself(r: Reals, x: Value, result: Value) -> Value:
    """Return x where x³ is negligible against x, elsewhere the result with the sign of x."""
    return r.absolute(x).compare("olt", 2.0**-12).select(x, r.copysign(result, x))
