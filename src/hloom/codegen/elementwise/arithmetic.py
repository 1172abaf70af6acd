"""Sums, products, quotients, the larger and the smaller of two numbers, signs."""

from __future__ import annotations

import math
from functools import partial
from typing import Final

from hloom.codegen.elementwise.outlining import expand_or_call
from hloom.codegen.elementwise.registry import LoweringContext, lowering
from hloom.codegen.llvm import F32, F64, I8, I16, I32, ConstantValue, Function, Value, make_type
from hloom.codegen.target import has_avx512, is_slow_with_subnormals
from hloom.codegen.types import Element, parts
from hloom.codegen.vector_math import complex_exponential, complex_numbers
from hloom.codegen.vector_math.power import integer_power, power
from hloom.codegen.vector_math.reals import Reals, in_registers, where_any
from hloom.codegen.vector_math.remainder import remainder
from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import Family
from hloom.operations.arithmetic import Divide, Multiply
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType

SMALL: Final = 2.0**-100
"""Magnitude below which an operand is small; the other one seldom makes a subnormal result of larger ones."""
LARGE: Final = 2.0**100
"""Magnitude from which a denominator is large."""
_HANDED_ON: Final = (Family.ELEMENTWISE, Family.MOVEMENT)
"""Families of operations whose results are small or large if an operand is."""
_MOST_READ: Final = 16
"""Most instructions that are read to find a source."""
_SIZE: Final = 0x7FFFFFFF
"""The bits of a number without its sign."""


@lowering("add", of_complex=complex_numbers.add)
def _add(c: LoweringContext, x: Value, y: Value) -> Value:
    return x | y if c.result_type is et.PRED else x + y


@lowering("subtract", of_complex=complex_numbers.subtract)
def _subtract(c: LoweringContext, x: Value, y: Value) -> Value:
    return x - y


@lowering("multiply", of_complex=complex_numbers.multiply)
def _multiply(c: LoweringContext, x: Value, y: Value) -> Value:
    if c.underflows:
        return gradual_product(x, y)
    return x & y if c.result_type is et.PRED else x * y


@lowering("divide", of_complex=complex_numbers.divide)
def _divide(c: LoweringContext, x: Value, y: Value) -> Value:
    if c.underflows:
        return gradual_quotient(x, y)
    return quotient(x, y, c.kind) if c.kind.is_integer else x / y


@lowering("remainder")
def _remainder(c: LoweringContext, x: Value, y: Value) -> Element:
    if not c.kind.is_integer:
        return expand_or_call("remainder", remainder, x, y)
    # with -1 as the quotient by 0, the remainder is the dividend
    return x - quotient(x, y, c.kind) * y


@lowering("power", of_complex=partial(expand_or_call, "power", complex_exponential.power))
def _power(c: LoweringContext, x: Value, y: Value) -> Element:
    if c.kind.is_integer:
        return integer_power(x, y, c.kind.is_signed)
    return expand_or_call("power", power, x, y)


@lowering("negate")
def _negate(c: LoweringContext, a: Element) -> Element:
    return (-a[0], -a[1]) if isinstance(a, tuple) else -a


@lowering("abs", of_complex=complex_numbers.modulus)
def _abs(c: LoweringContext, a: Value) -> Value:
    if c.kind.is_floating:
        return a.function.intrinsic("fabs", a)
    return a.compare("slt", 0).select(-a, a)


@lowering("sign", exact=True, of_complex=complex_numbers.sign)
def _sign(c: LoweringContext, a: Value) -> Value:
    if c.kind.is_floating:
        one = a.function.intrinsic("copysign", a.function.constant(a.type, 1.0), a)
        return a.compare("one", 0.0).select(one, a)
    return a.compare("sgt", 0).select(1, a >> (8 * a.type.size - 1))


# -- the larger and the smaller


@lowering("maximum", exact=True)
def _maximum(c: LoweringContext, a: Element, b: Element) -> Element:
    return larger(a, b, c.result_type)


@lowering("minimum", exact=True)
def _minimum(c: LoweringContext, a: Element, b: Element) -> Element:
    return smaller(a, b, c.result_type)


@lowering("clamp", exact=True)
def _clamp(c: LoweringContext, low: Element, a: Element, high: Element) -> Element:
    return smaller(larger(a, low, c.result_type), high, c.result_type)


def larger(a: Element, b: Element, element_type: ElementType) -> Element:
    """Return the maximum: NaN if either is NaN, +0 over -0; complex by real, then imaginary part."""
    if isinstance(a, tuple):
        return _first_of(a, b, "oge", "ogt")
    x, y = parts(a, b)
    if element_type is et.PRED:
        return x | y
    if takes_range(x):
        return in_registers(partial(_range, which=5), x, y)
    return _extreme("max", x, y, element_type)


def smaller(a: Element, b: Element, element_type: ElementType) -> Element:
    """Return the minimum: NaN if either is NaN, -0 over +0; complex by real, then imaginary part."""
    if isinstance(a, tuple):
        return _first_of(a, b, "ole", "olt")
    x, y = parts(a, b)
    if element_type is et.PRED:
        return x & y
    if takes_range(x):
        return in_registers(partial(_range, which=4), x, y)
    return _extreme("min", x, y, element_type)


def _extreme(which: str, x: Value, y: Value, element_type: ElementType) -> Value:
    """Emit the maximum or minimum; of scalars from both orders, where LLVM would branch on their signs."""
    f = x.function
    if x.type.lanes or not x.type.is_float or f.target.architecture != "x86_64":
        return f.intrinsic(_name(which, element_type), x, y)
    if x.type in (F32, F64) and has_avx512(f.target):
        return x.compare("uno", y).select(math.nan, _scalar_range(x, y, 5 if which == "max" else 4))
    # MAXSS and MINSS return the second operand if both are zeros or one is NaN
    kind, is_first = make_type(f"i{8 * x.type.size}"), "ogt" if which == "max" else "olt"
    a = x.compare(is_first, y).select(x, y).bitcast(kind)
    b = y.compare(is_first, x).select(y, x).bitcast(kind)
    chosen = (a & b if which == "max" else a | b).bitcast(x.type)
    return x.compare("uno", y).select(math.nan, chosen)


def takes_range(x: Value) -> bool:
    """Return whether the VRANGE instruction can compute maximum and minimum of x's type."""
    fills_register = x.type.lanes * x.type.size >= 16
    return fills_register and x.type.scalar in (F32, F64) and has_avx512(x.function.target)


def _range(x: Value, y: Value, which: int) -> Value:
    """Emit VRANGE: minimum (4) or maximum (5); it ignores a NaN, which the sum of the operands restores."""
    f, lanes = x.function, x.type.lanes
    bits = lanes * x.type.size * 8
    name = f"llvm.x86.avx512.mask.range.{'ps' if x.type.scalar is F32 else 'pd'}.{bits}"
    mask_type = I16 if lanes == 16 else I8
    extra = [f.constant(I32, 4)] if bits == 512 else []
    extremes = f.call(x.type, name, x, y, f.constant(I32, which), x, f.constant(mask_type, -1), *extra)
    return x.compare("uno", y).select(x + y, extremes)


def _scalar_range(x: Value, y: Value, which: int) -> Value:
    """Emit VRANGESS or VRANGESD, which returns the other operand if one is NaN."""
    f, lanes = x.function, 16 // x.type.size
    name = f"llvm.x86.avx512.mask.range.{'ss' if x.type is F32 else 'sd'}"
    a, b = x.splat(lanes), y.splat(lanes)
    every, rounding = f.constant(I8, -1), f.constant(I32, 4)
    return f.call(a.type, name, a, b, a, every, f.constant(I32, which), rounding).extract(0)


def _name(which: str, element_type: ElementType) -> str:
    if element_type.is_floating:
        return which + "imum"
    return ("s" if element_type.is_signed else "u") + which


def _first_of(a: Element, b: Element, relation: str, strict: str) -> Element:
    """Return ``a`` where the relation of ``a`` with ``b`` holds or ``a`` is NaN, else ``b``.

    Complex numbers are compared by their real parts, equal ones by their imaginary parts.
    """
    assert isinstance(a, tuple) and isinstance(b, tuple)
    ordered = a[1].compare("ord", b[1])
    first = (a[0].compare(strict, b[0]) & ordered) | (
        a[0].compare("oeq", b[0]) & a[1].compare(relation, b[1])
    )
    first = first | a[0].compare("uno", a[1])
    return first.select(a[0], b[0]), first.select(a[1], b[1])


# -- integer division

_ENOUGH: Final = {1: F32, 2: F32, 4: F64}
"""Float type by bytes of an integer in which truncated quotients are exact: it has enough additional bits
that no quotient below an integer is rounded up to it.
"""

_HALF: Final = (1 << 32) - 1


def quotient(x: Value, y: Value, element_type: ElementType) -> Value:
    """Return the quotient truncated towards zero; all bits set for ``y`` = 0, MIN for MIN / -1."""
    signed = element_type.is_signed
    divisor = constant_integer(y)
    if divisor is not None and divisor not in (0, -1):
        if signed and x.type.size == 8 and x.type.lanes and _has_products_of_halves(x, abs(divisor)):
            return _quotient_of_wide(x, divisor)
        return x / y if signed else x.unsigned_divide(y)
    if not x.type.lanes or x.type.size == 8:
        return _divided(x, y, signed)
    ratio = _quotient_of_floats(x, y, signed)
    if signed and x.type.size == 4:
        ratio = y.compare("eq", -1).select(-x, ratio)
    return y.compare("eq", 0).select(-1, ratio)


def _quotient_of_floats(x: Value, y: Value, signed: bool) -> Value:
    """Divide in floats, since vectors have no integer division; results out of range are replaced later."""
    element = x.type.scalar
    real = _ENOUGH[element.size]
    if element is not I32:
        x, y = (v.cast("sext" if signed else "zext", I32) for v in (x, y))
    # integers narrower than 32 bits fit a signed one, whether signed or not
    kind = "s" if signed or element is not I32 else "u"
    ratio = x.cast(f"{kind}itofp", real) / y.cast(f"{kind}itofp", real)
    truncated = ratio.cast(f"fpto{kind}i", I32)
    return truncated if element is I32 else truncated.cast("trunc", element)


def _has_products_of_halves(x: Value, divisor: int) -> bool:
    """Return whether to divide vectors of 64-bit integers by multiplication of 32-bit halves.

    LLVM divides lane by lane, except by powers of two, for which it shifts.
    """
    return divisor.bit_count() > 1 and x.function.target.has("avx2")


def _quotient_of_wide(x: Value, divisor: int) -> Value:
    """Divide signed 64-bit integers by a constant d: ``u * m >> 63 + n``, with a magnitude ``u <= 2**63``.

    With ``d <= 2**n`` and ``m = (2**(63 + n) + e) / d``, of ``e < d``, the product exceeds ``u / d`` by less
    than ``1 / d``, the least distance of a fraction from the next integer; m has 64 bits.
    """
    magnitude, sign = abs(divisor), x >> 63
    length = (magnitude - 1).bit_length()
    factor = -(-(1 << 63 + length) // magnitude)
    quotient = _upper_half((x ^ sign) - sign, factor).logical_shift_right(length - 1)
    return (quotient ^ sign) - sign if divisor > 0 else sign - (quotient ^ sign)


def _upper_half(u: Value, factor: int) -> Value:
    """Return the upper 64 bits of the products of u, at most ``2**63``, and an unsigned 64-bit factor."""
    low, high = u & _HALF, u.logical_shift_right(32)
    factor_low, factor_high = factor & _HALF, factor >> 32
    middle = high * factor_low + (low * factor_low).logical_shift_right(32)
    other = low * factor_high + (middle & _HALF)
    return high * factor_high + middle.logical_shift_right(32) + other.logical_shift_right(32)


def _divided(x: Value, y: Value, signed: bool) -> Value:
    """Divide by the division instruction, with operands that would trap replaced."""
    zero = y.compare("eq", 0)
    if not signed:
        return zero.select(-1, x.unsigned_divide(zero.select(1, y)))
    minus_one = y.compare("eq", -1)
    return zero.select(-1, minus_one.select(-x, x / (zero | minus_one).select(1, y)))


def constant_integer(value: Value) -> int | None:
    """Return the value of an integer constant equal in every lane; None for other values."""
    return value.value if isinstance(value, ConstantValue) and isinstance(value.value, int) else None


# -- products and quotients that are often subnormal, such as weights of a softmax and tails of a Gaussian
#
# A multiplication or division with a subnormal operand or result takes Intel's processors 100 cycles. Vectors
# with such a lane are computed in f64 and rounded once, by an addition, which takes no longer with subnormal
# numbers.


def underflows(i: HloInstruction) -> bool:
    """Return whether a product or quotient of f32 is often subnormal: that of an exponential is.

    Return False for other operations.
    """
    if not isinstance(i.operation, (Multiply, Divide)) or i.shape.element_type is not et.F32:
        return False
    waiting, read = list(i.operands), 0
    while waiting and read < _MOST_READ:
        operand = waiting.pop()
        read += 1
        if operand.operation.often_underflows:
            return True
        if operand.operation.family in _HANDED_ON and not operand.operation.transcendental:
            waiting += operand.operands
    return False


def gradual_product(x: Value, y: Value) -> Value:
    """Return the product of f32 numbers one of which is often small."""
    if not is_slow_with_subnormals(Function.of(x).target):
        return x * y
    r = Reals(x)
    return _rounded_once("fmul", x, y, _is_small(r, x) | _is_small(r, y))


def gradual_quotient(x: Value, y: Value) -> Value:
    """Return the quotient of f32 numbers of which the first is often small, or the second large."""
    if not is_slow_with_subnormals(Function.of(x).target):
        return x / y
    r = Reals(x)
    least, infinite = r.pattern_of(LARGE), 0xFF << 23
    is_large = ((r.bits(y) & _SIZE) - least).compare("ult", infinite - least)
    return _rounded_once("fdiv", x, y, _is_small(r, x) | is_large)


def _is_small(r: Reals, x: Value) -> Value:
    """Return whether a number is small, but not zero."""
    return ((r.bits(x) & _SIZE) - 1).compare("ult", r.pattern_of(SMALL) - 1)


def _rounded_once(opcode: str, x: Value, y: Value, is_rare: Value) -> Value:
    """Return the product or quotient of x and y; in lanes of a condition by f64."""
    f, r = Function.of(x), Reals(x)

    def wide(number: Value) -> Value:
        """Return a number in f64: a subnormal one is a multiple of the least."""
        size = r.bits(number) & _SIZE
        is_subnormal = size.compare("ult", 1 << 23)
        multiple = size.cast("sitofp", F64) * 2.0**-149
        sign = (r.bits(number) & ~_SIZE).bitcast(x.type)
        normal = r.apart(is_subnormal, 1.0, number).cast("fpext", F64)
        return is_subnormal.select(Reals(multiple).copysign(multiple, sign.cast("fpext", F64)), normal)

    def rare() -> Value:
        exact = f.binary(opcode, wide(x), wide(y))
        w = Reals(exact)
        size = w.absolute(exact)
        is_tiny = size.compare("olt", 2.0**-126)
        rounding = 1.5 * 2.0 ** (52 - 149)
        pattern = (w.bits(size + rounding) - w.pattern_of(rounding)).cast("trunc", I32)
        sign = w.bits(exact).logical_shift_right(32).cast("trunc", I32) & ~_SIZE
        return is_tiny.select(r.from_bits(pattern | sign), w.apart(is_tiny, 1.0, exact).cast("fptrunc", F32))

    usual = f.binary(opcode, r.apart(is_rare, 1.0, x), r.apart(is_rare, 1.0, y))
    return where_any(is_rare, usual, rare)
