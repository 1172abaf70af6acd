"""Argument reduction of angles to a quadrant: x = q π/2 + r with |r| <= π/4.

Usual angles are reduced by multiples of π/2 in three parts (Cody and Waite). For the rare larger ones, 2/π
modulo 4 comes from a table with an entry per sixteenth exponent (after Payne and Hanek, "Radian reduction for
trigonometric functions", SIGNUM Newsletter 18, 1983).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

from hloom.codegen.llvm import F32, F64, I32, Function, Value
from hloom.codegen.llvm.memory import gather
from hloom.codegen.vector_math.reals import Pair, Reals

TWO_OVER_PI: Final = 0.6366197723675814
_BITS: Final = (
    # the fractional bits of 2 / π
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d1921cfe1deb1c"
    "b129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f"
    "6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc20"
    "9af4361d"
)
_STEP: Final = 16
_FIRST: Final = -48
"""The smallest exponent in the table: that of the last bit of an f64 number of 2^4."""
_ROWS: Final = (1024 - 53 - _FIRST) // _STEP + 1
_TABLE: Final = "two_over_pi"


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
    """Return the largest magnitude of an angle for ``reduce_usual`` and ``reduce_roughly``."""
    return _HALF_PI[r.is_double, r.fuses].limit


def reduce_usual(r: Reals, x: Value) -> tuple[Value, Value, Value]:
    """Return (r, error term of r, q as an integer) of an angle up to the limit."""
    first, second, third = _HALF_PI[r.is_double, r.fuses].parts
    n, quadrant = r.nearest_multiple(x, TWO_OVER_PI)
    remainder = r.fma(n, -first, x)
    product, lost = r.two_product(n, r.constant(second))
    high, low = r.two_sum(remainder, -product)
    return (*r.fast_two_sum(high, r.fma(n, -third, low - lost)), quadrant)


def reduce_roughly(r: Reals, x: Value) -> tuple[Value, Value]:
    """Return (r rounded, q as an integer) of an angle up to the limit."""
    first, second, third = _HALF_PI[r.is_double, r.fuses].parts
    n, quadrant = r.nearest_multiple(x, TWO_OVER_PI)
    return r.fma(n, -third, r.fma(n, -second, r.fma(n, -first, x))), quadrant


def of_large_angle(x: Value, name: str, evaluate: Callable[[Reals, Value, Value, Value], Value]) -> Value:
    """Return ``evaluate(reals, r, error term of r, q)`` for angles of any magnitude above 2^4, out of line.

    One function of the module serves all calls for vectors of one type.
    """
    module = Function.of(x).module
    full_name = f"{name}.{x.type.suffix}"
    if full_name not in module.functions:
        f = module.function(full_name, [x.type], x.type)
        r = Reals(f.parameters[0])
        f.finish(evaluate(r, *_reduce_large(r, f.parameters[0])))
    return x.function.call(x.type, full_name, x)


def _reduce_large(r: Reals, x: Value) -> tuple[Value, Value, Value]:
    """Reduce as ``reduce_usual``, for any magnitude; NaN for infinity."""
    wide = x if r.is_double else x.cast("fpext", F64)
    d = Reals(wide)
    size = d.absolute(wide)
    integer, row = _integer_part(d, size, r.precision)
    high, low, quarters = (_long_turn if r.is_double else _short_turn)(d, integer, row)
    # inf - inf is NaN
    high = high + (size - size)
    shifter = 1.5 * 2.0**d.mantissa_bits
    quadrant = d.bits(quarters + shifter) - d.pattern_of(shifter)
    negative = wide.compare("olt", 0.0)
    quadrant = negative.select(-quadrant, quadrant)
    remainder, short = (negative.select(-part, part) for part in _times_half_pi(d, high, low))
    if r.is_double:
        return remainder, short, quadrant
    single = remainder.cast("fptrunc", F32)
    short = (remainder - single.cast("fpext", F64)) + short
    return single, short.cast("fptrunc", F32), quadrant.cast("trunc", I32)


def _integer_part(d: Reals, size: Value, digits: int) -> Pair:
    """Return (m 2^j, row) with size = m 2^j 2^e: m an integer, e the exponent of the row, j < 16."""
    f = d.function
    bits = d.bits(size)
    exponent = bits.logical_shift_right(d.mantissa_bits) - (d.bias + digits - 1 + _FIRST)
    row = f.intrinsic("smax", exponent, f.constant(exponent.type, 0)).logical_shift_right(4)
    row = f.intrinsic("smin", row, f.constant(row.type, _ROWS - 1))
    return d.from_bits(bits - (((row << 4) + _FIRST) << d.mantissa_bits)), row


def _entry(d: Reals, row: Value, column: int) -> Value:
    """Load a column of the table for the row of each lane."""
    f = d.function
    if _TABLE not in f.module.globals:
        f.module.constant_bytes(_TABLE, _rows())
    table = f.address(_TABLE)
    index = (row << 2) + column
    if not d.type.lanes:
        return f.load(F64, f.offset(table, index, F64))
    return gather(d.type, f.offset(table, index, F64))


@cache
def _rows() -> bytes:
    """Return 2^e · 2/π modulo 4 as the sum of four f64 numbers, for the exponent e of every row."""
    digits = 4 * len(_BITS) - _FIRST
    rows: list[float] = []
    for row in range(_ROWS):
        digits_left = (int(_BITS, 16) << (row * _STEP)) % (4 << digits)
        for _ in range(4):
            dropped = max(digits_left.bit_length() - 53, 0)
            rows.append(math.ldexp(digits_left >> dropped, dropped - digits))
            digits_left &= (1 << dropped) - 1
    return struct.pack(f"<{len(rows)}d", *rows)


def _modulo_4(d: Reals, x: Value) -> Value:
    return d.fma(d.round_even(x * 0.25), -4.0, x)


def _short_turn(d: Reals, integer: Value, row: Value) -> tuple[Value, Value, Value]:
    """Return (fraction, 0, whole quarters) of an angle with 24 significant bits."""
    product, lost = d.two_product(integer, _entry(d, row, 0))
    turn = _modulo_4(d, product)
    quarters = d.round_even(turn)
    return (turn - quarters) + d.fma(integer, _entry(d, row, 1), lost), d.constant(0.0), quarters


def _long_turn(d: Reals, integer: Value, row: Value) -> tuple[Value, Value, Value]:
    """Return (fraction, its error term, whole quarters) of an angle with 53 significant bits."""
    products = [d.two_product(integer, _entry(d, row, column)) for column in range(3)]
    (first, first_low), (second, second_low), (third, third_low) = products
    total, carry = d.two_sum(_modulo_4(d, first), _modulo_4(d, first_low))
    total, other_carry = d.two_sum(total, _modulo_4(d, second))
    quarters = d.round_even(total)
    tail = d.fma(integer, _entry(d, row, 3), third_low)
    high = total - quarters
    for part in (carry, other_carry, second_low, third):
        high, lost = d.two_sum(high, part)
        tail = tail + lost
    return (*d.fast_two_sum(high, tail), quarters)


def _times_half_pi(d: Reals, high: Value, low: Value) -> Pair:
    first, second, _ = _HALF_PI[True, True].parts
    product, lost = d.two_product(high, d.constant(first))
    return d.fast_two_sum(product, d.fma(high, second, d.fma(low, first, lost)))


def odd_quadrant(quadrant: Value) -> Value:
    """Return whether sine and cosine are exchanged."""
    return (quadrant & 1).compare("ne", 0)


def flipped_in_upper_half(r: Reals, x: Value, quadrant: Value) -> Value:
    """Negate x in the quadrants 2 and 3."""
    digits = 63 if r.is_double else 31
    return r.from_bits(r.bits(x) ^ ((quadrant & 2) << (digits - 1)))
