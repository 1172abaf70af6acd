"""Changing types: convert, reduce-precision, stochastic-convert; complex numbers and their parts."""

from __future__ import annotations

import math

from hloom.codegen.elementwise.registry import LoweringContext, lowering
from hloom.codegen.llvm import F32, F64, I32, I64, Value
from hloom.codegen.small_floats import quiet_nan
from hloom.codegen.types import Element, is_small, register_type, round_to, wrap
from hloom.codegen.vector_math.reals import Reals
from hloom.operations.conversion import ReducePrecision
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType
from hloom.shape.float_format import float_format


@lowering("copy", exact=True)
def _copy(c: LoweringContext, a: Element) -> Element:
    return a


@lowering("complex", exact=True)
def _complex(c: LoweringContext, real: Value, imag: Value) -> Element:
    return real, imag


@lowering("real", exact=True)
def _real(c: LoweringContext, a: Element) -> Element:
    return a[0] if isinstance(a, tuple) else a


@lowering("imag", exact=True)
def _imag(c: LoweringContext, a: Element) -> Element:
    return a[1] if isinstance(a, tuple) else a.function.constant(a.type, 0.0)


# -- convert


@lowering("convert", exact=True)
def _convert(c: LoweringContext, a: Element) -> Element:
    return convert(a, c.kind, c.result_type)


def convert(a: Element, source: ElementType, target: ElementType) -> Element:
    """Convert a value to another element type, rounding once.

    Floats are truncated to integers, saturating, with NaN as 0; integers wrap; nonzero is true; imaginary
    parts are dropped or 0.
    """
    if source is target:
        return a
    if isinstance(a, tuple):
        if target.is_complex:
            return _resized(a[0], target), _resized(a[1], target)
        if target is et.PRED:
            return a[0].compare("une", 0.0) | a[1].compare("une", 0.0)
        return convert(a[0], source.component, target)
    if target.is_complex:
        real = convert(a, source, target.component)
        assert isinstance(real, Value)
        return real, real.function.constant(real.type, 0.0)
    if target is et.PRED:
        return a.compare("une" if source.is_floating else "ne", 0)
    if source.is_floating:
        return _float_to_integer(a, target) if target.is_integer else _float_to_float(a, source, target)
    return _integer_to_float(a, source, target) if target.is_floating else _to_integer(a, source, target)


def _resized(part: Value, target: ElementType) -> Value:
    if target is et.C128:
        return part.cast("fpext", F64)
    return part.cast("fptrunc", F32) if part.type.scalar is F64 else part


def _float_to_float(a: Value, source: ElementType, target: ElementType) -> Value:
    if is_small(source) and source not in (et.F16, et.F8E8M0FNU) and float_format(source).has_infinity:
        a = a.compare("ord", a).select(a, quiet_nan(a))
    if target is et.F32 and source is not et.F64:
        return a
    rounded = round_to(a, target)
    if is_small(target) and target is not et.F8E8M0FNU and not float_format(target).has_nan:
        # without NaN, the 0 that replaces it takes the other sign
        f = rounded.function
        zero = f.intrinsic("copysign", f.constant(a.type, 0.0), -a).cast("fptrunc", F32)
        return a.compare("ord", a).select(rounded, zero)
    return rounded


def _to_integer(a: Value, source: ElementType, target: ElementType) -> Value:
    """Convert integers and predicates: extend by their own signedness, or wrap."""
    register = register_type(target)
    if source is et.PRED:
        widened = a.cast("zext", register)
        return wrap(widened, target)
    if register.bits > a.type.bits:
        widened = a.cast("sext" if source.is_signed else "zext", register)
    else:
        widened = a if register.bits == a.type.bits else a.cast("trunc", register)
    narrower = target.bits < 8 and (source.bits, source.is_signed) != (target.bits, target.is_signed)
    return wrap(widened, target) if narrower else widened


def _integer_to_float(a: Value, source: ElementType, target: ElementType) -> Value:
    """Convert with one rounding: for types narrower than f32 the low bits set the last kept one."""
    if source is et.PRED:
        return round_to(a.cast("uitofp", register_type(target).scalar), target)
    word = "sitofp" if source.is_signed else "uitofp"
    if target in (et.F32, et.F64):
        return a.cast(word, register_type(target).scalar)
    if source.bits <= 16:
        return round_to(a.cast(word, F32), target)
    if source.bits == 32:
        return round_to(_odd(a, 8, 24, source.is_signed).cast(word, F32), target)
    return round_to(_odd(a, 11, 53, source.is_signed).cast(word, F64), target)


def _odd(a: Value, dropped: int, kept: int, signed: bool) -> Value:
    """Replace integers of more than ``kept`` bits: the lowest kept bit becomes its OR with all dropped ones.

    Rounded to a few bits, these give the same result as the originals (round to odd).
    """
    tail = (a & ((1 << dropped) - 1)).compare("ne", 0).cast("zext", a.type.scalar)
    head = (a >> dropped) if signed else a.logical_shift_right(dropped)
    marked = (head | tail) << dropped
    small = (a + (1 << kept)).compare("ult", 2 << kept) if signed else a.compare("ult", 1 << kept)
    return small.select(a, marked)


def _float_to_integer(a: Value, target: ElementType) -> Value:
    """Truncate and saturate; NaN becomes 0. Lanes for which LLVM's result is undefined are replaced."""
    signed, bits = target.is_signed, target.bits
    low = -(1 << (bits - 1)) if signed else 0
    high = (1 << (bits - 1 if signed else bits)) - 1
    number = a.compare("ord", a)
    if bits <= 16:
        # the bounds are floats: clamp before converting
        bounded = a.compare("olt", float(low)).select(float(low), a)
        bounded = bounded.compare("ogt", float(high)).select(float(high), bounded)
        integer = number.select(bounded, 0.0).cast("fptosi", I32)
        return integer.cast("trunc", register_type(target))
    register = I64 if bits == 64 else I32
    integer = a.cast("fptosi" if signed else "fptoui", register)
    integer = a.compare("oge", float(high + 1)).select(high, integer)
    integer = a.compare("olt", float(low)).select(low, integer)
    return number.select(integer, 0)


# -- reduce-precision


@lowering("reduce-precision")
def _reduce_precision(c: LoweringContext, a: Value) -> Value:
    """Round the mantissa in the operand's own format, then handle the exponent's range."""
    r = Reals(a)
    source = float_format(c.kind)
    assert isinstance(c.operation, ReducePrecision)
    mantissa_bits, exponent_bits = c.operation.mantissa_bits, c.operation.exponent_bits
    size = value = r.absolute(a)
    if mantissa_bits < source.mantissa_bits:
        value = _round_pattern(r, size, mantissa_bits, 2.0 ** (1 - r.bias - source.smallest_exponent))
    if exponent_bits < source.exponent_bits:
        bias = (1 << (exponent_bits - 1)) - 1
        vanishes = value.compare("olt", 2.0 ** (1 - bias))
        value = value.compare("oge", 2.0 ** (bias + 1)).select(math.inf, value)
        value = vanishes.select(0.0, value)
    return r.copysign(size.compare("olt", math.inf).select(value, size), a)


def _round_pattern(r: Reals, size: Value, bits: int, scale: float) -> Value:
    """Round positive numbers to a number of mantissa bits, ties to the even pattern.

    After the scaling, the format's biased exponents and its subnormal numbers coincide with those of the
    register's type, so that patterns are rounded as integers; a carry increments the exponent.
    """
    dropped = r.mantissa_bits - bits
    pattern = r.bits(size * scale if scale != 1.0 else size)
    last = pattern.logical_shift_right(dropped) & 1
    rounded = r.from_bits((pattern + last + ((1 << (dropped - 1)) - 1)) & -(1 << dropped))
    return rounded * (1.0 / scale) if scale != 1.0 else rounded


# -- stochastic-convert


@lowering("stochastic-convert", exact=True)
def _stochastic_convert(c: LoweringContext, a: Value, random: Value) -> Element:
    """Choose the neighbor farther from 0 if the random number is below the fraction of the way to it."""
    source, target = c.operand_types[0], c.result_type
    x = a.cast("fpext", F64)
    r = Reals(x)
    near, far = _neighbors(r, r.absolute(x), target)
    inexact = r.absolute(x).compare("olt", math.inf) & far.compare("one", near)
    fraction = (r.absolute(x) - near) / (far - near) * 2.0**source.bits
    threshold = inexact.select(fraction, 0.0).cast("fptoui", I64)
    pattern = random.cast("zext", I64)
    if source.bits < 8:
        pattern = pattern & ((1 << source.bits) - 1)
    up = inexact & pattern.compare("ult", threshold)
    return convert(r.copysign(up.select(far, near), x), et.F64, target)


def _neighbors(r: Reals, size: Value, target: ElementType) -> tuple[Value, Value]:
    """Return the neighbors in a type of positive f64 numbers: the largest one not above, and the next."""
    if target.is_integer:
        near = r.truncate(size)
        return near, near + 1.0
    number = float_format(target)
    f = r.function
    power = r.bits(size) & (0x7FF << 52)
    smallest = f.constant(r.integer, (number.smallest_exponent + r.bias) << 52)
    step = r.from_bits(f.intrinsic("umax", power, smallest)) * 2.0**-number.mantissa_bits
    near = r.truncate(size / step) * step
    far = near + step
    near, far = (v.compare("ogt", number.largest).select(number.largest, v) for v in (near, far))
    return size.compare("olt", math.inf).select(near, size), far
