"""Arithmetic on f32 and f64 values, scalars or vectors, from which the elementary functions are composed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from hloom.codegen.llvm import F32, F64, I32, I64, Function, Operand, Value, make_type
from hloom.codegen.target import fuses, has_avx512, is_slow_with_subnormals, rounds

Pair: TypeAlias = tuple[Value, Value]
"""An unevaluated sum of a value and a much smaller one, or a complex number."""

_SHORTEST_SPLIT: Final = 5
"""Minimum number of coefficients of a polynomial that is evaluated in two independent halves."""


SHIFT: Final = 64
"""Exponent of the power of two by which subnormal numbers are multiplied to be normal."""


def coefficients(text: str) -> tuple[float, ...]:
    """Return the coefficients of a polynomial from their decimals, the constant term first."""
    return tuple(map(float, text.split()))


class Reals:
    """The numbers of one type in one function.

    Attributes:
        type: f32 or f64, or a vector of them.
        integer: the integer type of the same width and as many lanes.
        precision: bits of the significand, including the implicit one.
        mantissa_bits: stored bits of it.
        bias: of the exponent, which is the largest exponent too.
        has_avx512: whether the target has AVX-512.
        fuses: whether the target multiplies and adds with one rounding.
        is_slow_with_subnormals: whether subnormal products take the target 100 cycles.
    """

    def __init__(self, like: Value) -> None:
        self.function = Function.of(like)
        self.type = like.type
        double = like.type.scalar is F64
        self.is_double = double
        self.integer = (I64 if double else I32).vector(like.type.lanes)
        self.mantissa_bits = 52 if double else 23
        self.precision = self.mantissa_bits + 1
        self.bias = 1023 if double else 127
        target = like.function.target
        self.fuses, self.has_avx512, self._rounds = fuses(target), has_avx512(target), rounds(target)
        self.is_slow_with_subnormals = is_slow_with_subnormals(target)

    # -- instructions of AVX-512 that LLVM has no operation for

    @property
    def has_vector_instructions(self) -> bool:
        """Return whether vectors of this length fill registers of an AVX-512 processor."""
        lanes = self.type.lanes
        return self.has_avx512 and lanes * self.type.size >= 16 and not lanes & (lanes - 1)

    # -- constants and bits

    def constant(self, number: float) -> Value:
        """Return a number in every lane."""
        return self.function.constant(self.type, number)

    def bits(self, x: Value) -> Value:
        """Return the bit pattern as an integer."""
        return x.bitcast(self.integer)

    def from_bits(self, pattern: Value) -> Value:
        """Return the number with a bit pattern."""
        return pattern.bitcast(self.type)

    def pattern_of(self, number: float) -> int:
        """Return the pattern of a positive power of two, or of 1.5 times one."""
        exponent = self.bias
        while number >= 2:
            number, exponent = number / 2, exponent + 1
        while number < 1:
            number, exponent = number * 2, exponent - 1
        return int((exponent + number - 1) * 2.0**self.mantissa_bits)

    # -- signs and order

    def absolute(self, x: Value) -> Value:
        """Return |x|."""
        return self.function.intrinsic("fabs", x)

    def copysign(self, size: Value, sign: Value) -> Value:
        """Return ``size`` with the sign of ``sign``."""
        return self.function.intrinsic("copysign", size, sign)

    def with_sign_of(self, size: Value, sign: Value) -> Value:
        """Return `copysign` of a ``size`` that is not negative, by fewer instructions."""
        return self.from_bits(self.bits(size) | (self.bits(sign) & (-1 << (8 * self.type.size - 1))))

    def at_most(self, x: Value, bound: float) -> Value:
        """Return the minimum of x and the bound; NaN is kept."""
        return x.compare("ogt", bound).select(bound, x)

    def at_least(self, x: Value, bound: float) -> Value:
        """Return the maximum of x and the bound; NaN is kept."""
        return x.compare("olt", bound).select(bound, x)

    # -- subnormal numbers, whose arithmetic takes some processors 100 cycles

    @property
    def negligible(self) -> float:
        """Magnitude below which a series is its first term, and whose cube is a normal number."""
        return 2.0**-200 if self.is_double else 2.0**-30

    def matters(self, x: Value) -> Value:
        """Return whether |x| is at least `negligible`, or NaN."""
        return self.absolute(x).compare("uge", self.negligible)

    def size_that_matters(self, x: Value) -> Value:
        """Return |x|, raised to `negligible`, for even functions that are constant near 0."""
        return self.at_least(self.absolute(x), self.negligible)

    def subnormal_as_integer(self, size: Value) -> Value:
        """Return a positive subnormal number in units of the smallest one, by its pattern."""
        unit = 2.0**self.mantissa_bits
        return self.from_bits(self.bits(size) | self.pattern_of(unit)) - unit

    def rounded_integer(self, x: Value) -> Value:
        """Return the integer nearest to x, for 0 <= x <= 2^mantissa_bits, as an integer."""
        unit = 2.0**self.mantissa_bits
        return self.bits(x + unit) - self.pattern_of(unit)

    # -- one operation

    def fma(self, a: Value, b: Operand, c: Operand) -> Value:
        """Return a * b + c, with one rounding if the target has fused multiply-add."""
        if self.fuses:
            return self.function.fma(a, b, c)
        return a * b + c

    def sqrt(self, x: Value) -> Value:
        """Return the square root, correctly rounded."""
        return self.function.intrinsic("sqrt", x)

    def round_even(self, x: Value) -> Value:
        """Round to the nearest integer, ties to even."""
        if self._rounds:
            return self.function.intrinsic("roundeven", x)
        return self._small_rounded(x)

    def floor(self, x: Value) -> Value:
        """Round down to an integer."""
        if self._rounds:
            return self.function.intrinsic("floor", x)
        near = self._small_rounded(x)
        return self.copysign(near.compare("ogt", x).select(near - 1.0, near), x)

    def ceil(self, x: Value) -> Value:
        """Round up to an integer."""
        return self.function.intrinsic("ceil", x) if self._rounds else -self.floor(-x)

    def truncate(self, x: Value) -> Value:
        """Round towards zero to an integer."""
        if self._rounds:
            return self.function.intrinsic("trunc", x)
        return self.copysign(self.floor(self.absolute(x)), x)

    def _small_rounded(self, x: Value) -> Value:
        """Round by addition if the magnitude is below that of numbers that are all integral."""
        unit = 2.0**self.mantissa_bits
        size = self.absolute(x)
        near = self.copysign((size + unit) - unit, x)
        return size.compare("olt", unit).select(near, x)

    # -- powers of two

    def nearest_multiple(self, x: Value, inverse: float) -> Pair:
        """Return n, nearest to x * inverse, and an integer with the low 22 bits of n; |n| < 2^21.

        Adding 1.5 · 2^mantissa_bits puts n into the low bits of the pattern.
        """
        shifter = 1.5 * 2.0**self.mantissa_bits
        shifted = self.fma(x, inverse, shifter)
        return shifted - shifter, self.bits(shifted)

    def whole(self, multiple: Pair) -> Value:
        """Return the n of `nearest_multiple` as an integer."""
        return multiple[1] - self.pattern_of(1.5 * 2.0**self.mantissa_bits)

    def power_of_two(self, n: Value) -> Value:
        """Return 2^n if it is a normal number; only the low bits of the integer n count."""
        return self.from_bits((n + self.bias) << self.mantissa_bits)

    def scale(self, x: Value, multiple: Pair) -> Value:
        """Return x 2^n, rounded once, for x from 1/4 to 4 and the n of a multiple, |n| < 2 (bias - 1)."""
        if self.has_vector_instructions:
            return in_registers(_vscalef, x, multiple[0])
        if self.has_avx512:
            return self._load_exponent(x, self.whole(multiple))
        first, second = self._powers(multiple)
        return (x * first) * second

    def scale_one_plus(self, x: Value, multiple: Pair) -> Value:
        """Return (1 + x) 2^n as `scale` does; the sum is rounded first."""
        if self.has_avx512:
            return self.scale(x + 1.0, multiple)
        first, second = self._powers(multiple)
        return self.fma(x, first, first) * second

    def scale_one_plus_gradually(self, x: Value, multiple: Pair) -> Value:
        """Return what `scale_one_plus` does, subnormal results by additions, for x from -0.3 to 0.5."""
        if not self.is_slow_with_subnormals:
            return self.scale_one_plus(x, multiple)
        least = 2 - self.bias
        whole = self.function.constant(self.integer, self.pattern_of(1.5 * 2.0**self.mantissa_bits) + least)
        bounded = self.at_least(multiple[0], least), self.function.intrinsic("smax", multiple[1], whole)

        def gradual() -> Value:
            n = self.whole(multiple)
            scaled = self.scale_between(x + 1.0, n + SHIFT)
            is_subnormal = scaled.compare("olt", 2.0 ** (SHIFT + 1 - self.bias))
            subnormal = self.from_bits(self.subnormal_pattern(scaled))
            return is_subnormal.select(subnormal, self.scale_between(x + 1.0, n))

        return where_any(multiple[0].compare("olt", least), self.scale_one_plus(x, bounded), gradual)

    def apart(self, condition: Value, number: float, x: Value) -> Value:
        """Return a constant where a condition holds, else x, before an operation with a constant.

        LLVM would apply the operation to both, of numbers. It does not of patterns.
        """
        return self.from_bits(condition.select(self.pattern_of(number), self.bits(x)))

    def subnormal_pattern(self, scaled: Value) -> Value:
        """Return the pattern of a number below the smallest normal one, given 2^`SHIFT` times as large."""
        rounding = 2.0 ** (SHIFT + 1 - self.bias)
        return self.bits(scaled + rounding) - self.pattern_of(rounding)

    def _powers(self, multiple: Pair) -> Pair:
        """Return two powers of two whose product is 2^n; the pattern's other bits are shifted out."""
        pattern = multiple[1]
        half = pattern.logical_shift_right(1)
        return self.power_of_two(half), self.power_of_two(pattern - half)

    def scale_far(self, x: Value, n: Value) -> Value:
        """Return x 2^n, rounded once, for every x and |n| < 3 (bias - 1).

        The number is multiplied by several powers of two. If the last one is smaller than 1, the products
        before it are exact, or so small that the result is 0.
        """
        if self.has_avx512:
            return self._load_exponent(x, n)
        last = self._bounded_exponent(n)
        middle = self._bounded_exponent(n - last)
        first = n - last - middle
        scaled = (x * self.power_of_two(first)) * self.power_of_two(middle)
        return scaled * self.power_of_two(last)

    def _load_exponent(self, x: Value, n: Value) -> Value:
        n32 = n.cast("trunc", I32) if self.is_double else n
        return self.function.call(self.type, f"llvm.ldexp.{self.type.suffix}.{n32.type.suffix}", x, n32)

    def _bounded_exponent(self, n: Value) -> Value:
        """Return the exponent of a normal power of two that is nearest to n."""
        f = self.function
        above = f.intrinsic("smax", n, f.constant(n.type, 1 - self.bias))
        return f.intrinsic("smin", above, f.constant(n.type, self.bias))

    def scale_normal(self, x: Value, n: Value) -> Value:
        """Return x 2^n if 2^n is a normal number; only the low bits of the integer n count."""
        return x * self.power_of_two(n)

    def scale_between(self, x: Value, n: Value) -> Value:
        """Return x 2^n if x and the result are normal numbers; only the low bits of the integer n count."""
        return self.from_bits(self.bits(x) + (n << self.mantissa_bits))

    # -- exact sums and products

    def two_sum(self, a: Value, b: Value) -> Pair:
        """Return a + b and its rounding error (Knuth)."""
        total = a + b
        virtual = total - a
        return total, (a - (total - virtual)) + (b - virtual)

    def fast_two_sum(self, a: Value, b: Value) -> Pair:
        """Return a + b and its rounding error, for |a| >= |b| or a = 0 (Dekker)."""
        total = a + b
        return total, b - (total - a)

    def two_product(self, a: Value, b: Value) -> Pair:
        """Return a * b and its rounding error."""
        product = a * b
        return product, self.product_rest(a, b, product)

    def product_rest(self, a: Value, b: Value, subtracted: Value) -> Value:
        """Return a * b - subtracted, with one rounding even if the target has no fused multiply-add.

        Without it, ``subtracted`` must be the rounded product (Dekker).
        """
        if self.fuses:
            return self.function.fma(a, b, -subtracted)
        # next to the largest number, the parts' product might overflow
        large = self.absolute(subtracted).compare("ogt", 2.0 ** (self.bias - 2))
        down, up = large.select(self.constant(2.0**-30), 1.0), large.select(self.constant(2.0**30), 1.0)
        (a_high, a_low), (b_high, b_low) = self._split(a * down), self._split(b)
        error = a_high * b_high - subtracted * down
        return ((error + a_high * b_low + a_low * b_high) + a_low * b_low) * up

    def _split(self, x: Value) -> Pair:
        dropped = (self.precision + 1) // 2
        bits = self.bits(x)
        rounded = self.from_bits((bits + (1 << (dropped - 1))) & -(1 << dropped))
        # next to the largest number, towards zero
        truncated = self.from_bits(bits & -(1 << dropped))
        high = self.absolute(rounded).compare("olt", math.inf).select(rounded, truncated)
        return high, x - high

    # -- polynomials

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Return the sum of coefficients[k] * x^k.

        Long polynomials are split into even and odd powers, which halves the chain of dependent operations.
        """
        if len(coefficients) < _SHORTEST_SPLIT:
            return self.horner(x, coefficients)
        square = x * x
        even, odd = self.horner(square, coefficients[::2]), self.horner(square, coefficients[1::2])
        return self.fma(odd, x, even)

    def horner(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Evaluate by Horner's rule: accurate even if even and odd powers nearly cancel."""
        total = self.constant(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = self.fma(total, x, coefficient)
        return total


def quotient_of_sums(r: Reals, numerator: Pair, denominator: Pair) -> Value:
    """Return the quotient of two numbers with error terms."""
    inverse = 1.0 / denominator[0]
    quotient = numerator[0] * inverse
    over = -r.product_rest(quotient, denominator[0], numerator[0])
    over = r.fma(-quotient, denominator[1], over + numerator[1])
    return r.fma(over, inverse, quotient)


def product_of_sums(r: Reals, a: Pair, b: Pair) -> Value:
    """Return the product of two numbers with error terms."""
    return r.fma(a[0], b[0], r.fma(a[0], b[1], a[1] * b[0]))


def in_double(function: Callable[[Value], Value], x: Value) -> Value:
    """Apply a function of f64 values to f32 ones, and round its result to f32."""
    return function(x.cast("fpext", F64)).cast("fptrunc", F32)


def itself_if_negligible(function: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """Decorate a function that is x + O(x²), so that it returns a negligible argument (zero too) itself.

    Lanes are masked, as instructions with masks clear the other lanes at no cost.
    """

    def evaluated(x: Value) -> Value:
        matters = Reals(x).matters(x)
        return matters.select(function(matters.select(x, 0.0)), x)

    evaluated.__doc__ = function.__doc__
    return evaluated


def in_registers(instruction: Callable[..., Value], *vectors: Value) -> Value:
    """Apply an instruction to each register of vectors that take several."""
    kind = vectors[0].type
    lanes = kind.lanes
    if lanes * kind.size <= vectors[0].function.target.vector_bytes:
        return instruction(*vectors)
    low, high = range(lanes // 2), range(lanes // 2, lanes)
    halves = [in_registers(instruction, *[v.shuffle(half) for v in vectors]) for half in (low, high)]
    return halves[0].shuffle(range(lanes), halves[1])


def _vscalef(x: Value, n: Value) -> Value:
    """Emit VSCALEF: x 2^n, rounded once, for integral n."""
    f, lanes, bits = x.function, x.type.lanes, 8 * x.type.size * x.type.lanes
    name = f"llvm.x86.avx512.mask.scalef.{'pd' if x.type.scalar is F64 else 'ps'}.{bits}"
    everywhere = f.constant(make_type(f"i{max(8, lanes)}"), -1)
    rounding = [f.constant(I32, 4)] if bits == 512 else []
    return f.call(x.type, name, x, n, x, everywhere, *rounding)


def any_lane(condition: Value) -> Value:
    """Return whether a condition holds in some lane."""
    lanes = condition.type.lanes
    if not lanes:
        return condition
    return condition.bitcast(make_type(f"i{lanes}")).compare("ne", 0)


def where_any(condition: Value, usual: Value, rare: Callable[[], Value]) -> Value:
    """Return ``usual``, or ``rare()`` in lanes of the condition, whose code runs only if there is one."""
    return where_any_of(condition, [usual], lambda: [rare()])[0]


def where_any_of(
    condition: Value, usual: Sequence[Value], rare: Callable[[], Sequence[Value]]
) -> list[Value]:
    """Return several values as `where_any` does."""
    f = Function.of(condition)
    body, after = f.new_block(), f.new_block()
    test = any_lane(condition)
    before = f.block
    f.branch(test, body, after)
    f.start(body)
    repaired = [condition.select(r, u) for r, u in zip(rare(), usual, strict=True)]
    end = f.block
    f.jump(after)
    f.start(after)
    return [f.phi(u.type, [(u, before), (r, end)]) for u, r in zip(usual, repaired, strict=True)]
