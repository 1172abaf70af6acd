"""Angles reduced to a quadrant: x = q π/2 + r with |r| <= π/4.

Usual angles are reduced by multiples of π/2 in three parts (Cody and Waite). The rare huge ones get their
bits of 2/π from a table, each lane by itself (Payne and Hanek, "Radian reduction for trigonometric
functions", SIGNUM Newsletter 18, 1983).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from hloom.cpu.llvm_text import F64, I64, PTR, Function, Module, Operand, Value, make_type
from hloom.cpu.vector_math.reals import Reals

TWO_OVER_PI: Final = 0.6366197723675814
_WORDS: Final = (
    # the bits of 2 / π behind the point
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d1921cfe1deb1c"
    "b129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f"
    "6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc20"
    "9af4361d"
)
_TABLE: Final = "two_over_pi"
_LARGE: Final = "large_angle"


class HalfPi(NamedTuple):
    """π/2 as a sum of three numbers, and up to which angle that is enough."""

    parts: tuple[float, float, float]
    limit: float


_HALF_PI: Final = {
    # by is_double, and whether products are fused: if not, the first parts must have few bits
    (False, True): HalfPi((1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15), 1e5),
    (False, False): HalfPi((1.5703125, 0.0004837512969970703, 7.549790126404332e-08), 1e4),
    (True, True): HalfPi((1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33), 1e9),
    (True, False): HalfPi((1.5707963267341256, 6.077100506506192e-11, 3.5215598651832e-27), 1e6),
}


def usual_limit(r: Reals) -> float:
    """The largest size of an angle for ``reduce_usual``."""
    return _HALF_PI[r.is_double, r.fuses].limit


def reduce_usual(r: Reals, x: Value) -> tuple[Value, Value, Value]:
    """(r, what r is short of, q as an integer) of an angle up to the limit."""
    first, second, third = _HALF_PI[r.is_double, r.fuses].parts
    n, quadrant = r.nearest_multiple(x, TWO_OVER_PI)
    rest = r.fma(n, -first, x)
    product, lost = r.two_product(n, r.constant(second))
    high, low = r.two_sum(rest, -product)
    return (*r.fast_two_sum(high, r.fma(n, -third, low - lost)), quadrant)


def reduce_roughly(r: Reals, x: Value) -> tuple[Value, Value]:
    """(r rounded, q as an integer) of an angle up to the limit."""
    first, second, third = _HALF_PI[r.is_double, r.fuses].parts
    n, quadrant = r.nearest_multiple(x, TWO_OVER_PI)
    return r.fma(n, -third, r.fma(n, -second, r.fma(n, -first, x))), quadrant


def of_large_angle(x: Value, name: str, evaluate: Callable[[Reals, Value, Value, Value], Value]) -> Value:
    """``evaluate(reals, r, low part of r, q)`` of f64 angles from about 1 up, however large, out of line.

    One function of the module serves all calls for vectors of one length.
    """
    module = x.function.module
    full_name = f"{name}.{x.type.suffix}"
    if full_name not in module.functions:
        module.functions[full_name] = ""
        _emit_large(module, full_name, x, evaluate)
    return x.function.call(x.type, full_name, x)


def _emit_large(
    module: Module, name: str, like: Value, evaluate: Callable[[Reals, Value, Value, Value], Value]
) -> None:
    _emit_reduction(module)
    f = module.function(name, [like.type], like.type)
    (x,) = f.parameters
    lanes = like.type.lanes
    count = max(lanes, 1)
    places = [f.allocate(F64, count), f.allocate(F64, count), f.allocate(I64, count)]
    angles = f.allocate(F64, count)
    f.store(x, angles)
    with f.loop(0, count) as loop:
        angle = f.load(F64, f.offset(angles, loop.index, F64))
        targets = [f.offset(p, loop.index, F64) for p in places]
        f.call(None, _LARGE, angle, *targets)
    r = Reals(x)
    high, low, quadrant = (
        f.load(t, p, align=8) for t, p in zip((x.type, x.type, r.integer), places, strict=True)
    )
    # infinity minus itself makes the result NaN where the angle is infinite
    f.finish(evaluate(r, high + (x - x), low, quadrant))


def _emit_reduction(module: Module) -> None:
    """The function (angle, high, low, quadrant: pointers to its results) of one f64 angle."""
    if _LARGE in module.functions:
        return
    words = bytes(8) + b"".join(
        int(_WORDS[k : k + 16], 16).to_bytes(8, "little") for k in range(0, len(_WORDS), 16)
    )
    table = module.constant_bytes(_TABLE, words)
    f = module.function(_LARGE, [F64, PTR, PTR, PTR])
    x, high_at, low_at, quadrant_at = f.parameters
    pattern = x.bitcast(I64)
    exponent = (pattern.logical_shift_right(52) & 0x7FF) - 1075
    significand = (pattern & ((1 << 52) - 1)) | (1 << 52)
    fraction, quadrant = _fraction_of_turn(f, Value(f, PTR, table), exponent, significand)
    r = Reals(x)
    high, low = _as_angle(r, fraction)
    f.store(r.from_bits(r.bits(high) ^ (pattern & -(1 << 63))), high_at)
    f.store(r.from_bits(r.bits(low) ^ (pattern & -(1 << 63))), low_at)
    f.store(pattern.compare("slt", 0).select(-quadrant, quadrant), quadrant_at)
    f.finish()


def _fraction_of_turn(f: Function, table: Value, exponent: Value, significand: Value) -> tuple[Value, Value]:
    """The turn m 2^e · 2/π as a fraction from -1/2 to 1/2, signed and of 128 bits, and the integer modulo 4.

    Of 2/π the 192 bits from weight 2^(1 - e) on are needed: those before give multiples of 4.
    """
    wide = make_type("i128")
    start = f.intrinsic("smax", exponent + 62, f.constant(I64, 0))
    first, shift = start.logical_shift_right(6), start & 63
    words = [f.load(I64, f.offset(table, first + k, I64)) for k in range(4)]
    bits = [f.intrinsic("fshl", words[k], words[k + 1], shift) for k in range(3)]

    def product(word: Value) -> Value:
        return significand.cast("zext", wide) * word.cast("zext", wide)

    lowest = product(bits[2])
    middle = product(bits[1]) + lowest.logical_shift_right(64)
    upper = middle.logical_shift_right(64).cast("trunc", I64) + significand * bits[0]
    whole = (upper.cast("zext", wide) << 64) | middle.cast("trunc", I64).cast("zext", wide)
    last = lowest.cast("trunc", I64).logical_shift_right(62).cast("zext", wide)
    fraction = (whole << 2) | last
    rounded_up = fraction.logical_shift_right(127).cast("trunc", I64)
    return fraction, (upper.logical_shift_right(62) + rounded_up) & 3


def _as_angle(r: Reals, fraction: Value) -> tuple[Value, Value]:
    """A signed fraction of 128 bits times π/2, as the sum of two f64 numbers."""
    f = r.function
    negative = fraction.compare("slt", 0)
    size = negative.select(-fraction, fraction)
    zeros = f.call(size.type, "llvm.ctlz.i128", size, Value(f, make_type("i1"), "false"))
    normalized = size << zeros
    upper = normalized.logical_shift_right(64).cast("trunc", I64)
    lower = normalized.logical_shift_right(11).cast("trunc", I64)
    head = (upper & -2048).cast("uitofp", F64) * 2.0**-64
    tail = lower.cast("uitofp", F64) * 2.0**-117
    unit = r.power_of_two(-zeros.cast("trunc", I64))
    signed = negative.select(-unit, unit)
    first, second, _ = _HALF_PI[True, True].parts
    product, lost = r.two_product(head, r.constant(first))
    high, low = r.fast_two_sum(product, r.fma(head, second, r.fma(tail, first, lost)))
    return high * signed, low * signed


def odd_quadrant(quadrant: Value) -> Value:
    """Whether sine and cosine change places."""
    return (quadrant & 1).compare("ne", 0)


def flipped_in_upper_half(r: Reals, x: Value, quadrant: Operand) -> Value:
    """x, its sign flipped in the quadrants 2 and 3."""
    assert isinstance(quadrant, Value)
    digits = 63 if r.is_double else 31
    return r.from_bits(r.bits(x) ^ ((quadrant & 2) << (digits - 1)))
