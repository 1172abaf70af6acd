"""The reciprocal square root and the cube root."""

from __future__ import annotations

import math

from hloom.codegen.llvm import F32, F64, I32, I64, Value, make_type
from hloom.codegen.vector_math.reals import Reals, in_registers


def reciprocal_square_root(x: Value) -> Value:
    """Return 1 / sqrt(x); infinity for 0, NaN for negative numbers."""
    r = Reals(x)
    if not r.has_vector_instructions or x.function.target.reproducible:
        return 1.0 / r.sqrt(x)
    first = estimate = in_registers(_estimate, x)
    if r.is_double:
        estimate = r.fma(estimate, _excess(r, x, estimate) * 0.5, estimate)
    # Newton's step of third order: the remaining error of the estimate is negligible against rounding
    excess = _excess(r, x, estimate)
    result = r.fma(estimate * r.fma(excess, 0.375, 0.5), excess, estimate)
    # at 0 and at infinity the estimate is exact, and the excess NaN
    return excess.compare("uno", excess).select(first, result)


def _excess(r: Reals, x: Value, estimate: Value) -> Value:
    """Return 1 - x y²."""
    return r.fma(-(x * estimate), estimate, 1.0)


def _estimate(x: Value) -> Value:
    """Emit VRSQRT14, an estimate with a relative error below 2^-14."""
    f, lanes, bits = x.function, x.type.lanes, 8 * x.type.size * x.type.lanes
    name = f"llvm.x86.avx512.rsqrt14.{'pd' if x.type.scalar is F64 else 'ps'}.{bits}"
    everywhere = f.constant(make_type(f"i{max(8, lanes)}"), -1)
    return f.call(x.type, name, x, f.constant(x.type, 0), everywhere)


def cube_root(x: Value) -> Value:
    """Return the real cube root, also of negative numbers.

    An estimate of |x|^(-1/3) from the pattern of x, whose exponent is divided by -3, is improved twice; then
    |x|^(1/3) = |x| (|x|^(-1/3))² by one step of Newton's method with an exact remainder.
    """
    r = Reals(x)
    size = r.absolute(x)
    third = 3 * (r.mantissa_bits // 3 + 1)
    tiny = size.compare("olt", 2.0 ** (1 - r.bias))
    scaled = tiny.select(size * 2.0**third, size)
    y = _reciprocal_estimate(r, scaled)
    for coefficients in ((1 / 3, 2 / 9, 14 / 81), (1 / 3, 2 / 9, 14 / 81) if r.is_double else (1 / 3, 2 / 9)):
        excess = r.fma(-(scaled * y * y), y, 1.0)
        y = r.fma(y * excess, r.polynomial(excess, coefficients), y)
    root = scaled * y * y
    square, lost = r.two_product(root, root)
    residual = r.fma(-root, lost, -r.product_rest(square, root, scaled))
    root = r.fma(residual, y * y * (1 / 3), root)
    root = tiny.select(root * 2.0 ** -(third // 3), root)
    special = scaled.compare("olt", math.inf) & scaled.compare("ogt", 0.0)
    return r.copysign(special.select(root, size), x)


def _reciprocal_estimate(r: Reals, x: Value) -> Value:
    """Return x^(-1/3) to 3 % for normal x: the pattern, nearly a logarithm, divided by -3."""
    pattern = r.bits(x)
    if r.is_double:
        pattern = pattern.logical_shift_right(32).cast("trunc", I32)
    digits = 20 if r.is_double else 23
    offset = (4 / 3 * r.bias - 0.0450466) * 2.0**digits
    divided = (offset - pattern.cast("sitofp", F32) * (1 / 3)).cast("fptosi", I32)
    if r.is_double:
        return r.from_bits(divided.cast("zext", I64) << 32)
    return r.from_bits(divided)
