"""Rules for divisions of integer arrays by constants: by multiplication and shift, or as unsigned divisions.

Processors have no vector division of integers. LLVM multiplies by the reciprocal in twice the width, takes
the upper halves, and corrects the quotients of negative numbers. It does not know the ranges of dividends, by
which products of the same width often suffice.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from hloom.analysis.values import number
from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import (
    And,
    Divide,
    Multiply,
    Remainder,
    ShiftRightArithmetic,
    ShiftRightLogical,
    Subtract,
    Xor,
)
from hloom.operations.comparison import Select
from hloom.operations.conversion import BitcastConvert
from hloom.passes.rewriting import RuleFamily
from hloom.passes.rules.arithmetic import quotient_rounded_down, remainder_rounded_down
from hloom.passes.simplify.integer_ranges import IntegerRanges
from hloom.passes.writing import Writer
from hloom.shape.element_type import ElementType

Reciprocal: TypeAlias = "tuple[int, int]"
"""A factor, and the number of bits by which its products are shifted to the right."""

_UNSIGNED: Final = {8: "u8", 16: "u16", 32: "u32", 64: "u64"}
_WIDEST: Final = 32
"""Maximum width in bits of vectorized unsigned divisions; 64-bit ones are vectorized only if signed."""


def rules(ranges: IntegerRanges) -> RuleFamily:
    """Return the rules, which query ``ranges``."""
    family = RuleFamily("integer division")

    def limit(i: HloInstruction) -> int | None:
        """Return an upper bound of the dividends of an array; None if they may be negative or are scalar."""
        is_array = i.shape.rank and i.shape.element_type.bits in _UNSIGNED
        bounds = ranges.of(i.operands[0]) if is_array else None
        return bounds[1] if bounds is not None and bounds[0] >= 0 else None

    @family.rewrites(Divide, Remainder, constant=True)
    def division_of_known_sign(i: HloInstruction, operation: Divide | Remainder) -> HloInstruction | None:
        """``x / c`` → ``x * m >> n``, ``x % c`` → ``x - x / c * c``, by 2**n ``x >> n`` and ``x & 2**n - 1``.

        If no factor fits, the division becomes unsigned.
        """
        x, c = i.operands
        most, value = limit(i), number(c)
        if most is None or value is None or value <= 0:
            return None
        w, kind, divisor = Writer(i), i.shape.element_type, int(value)
        if divisor.bit_count() == 1:
            if isinstance(operation, Remainder):
                return w.op(And(), x, w.full(divisor - 1, x.shape))
            return w.op(ShiftRightLogical(), x, w.full(divisor.bit_length() - 1, x.shape))
        factor = reciprocal(divisor, most, kind.bits)
        if factor is None:
            is_narrow = kind.is_signed and kind.bits <= _WIDEST
            return _without_sign(w, operation, x, divisor) if is_narrow else None
        product = w.op(Multiply(), x, w.full(factor[0], x.shape))
        quotient = w.op(ShiftRightLogical(), product, w.full(factor[1], x.shape))
        return (
            quotient if isinstance(operation, Divide) else w.op(Subtract(), x, w.op(Multiply(), quotient, c))
        )

    @family.rewrites(Select)
    def rounded_down_by_complement(i: HloInstruction, select: Select) -> HloInstruction | None:
        """``x // c`` → ``s ^ (s ^ x) / c`` with ``s = x >> 31``, as ``~(~x // c)``; ``x % c`` from it."""
        kind = i.shape.element_type
        if not i.shape.rank or kind.bits not in _UNSIGNED or kind.bits > _WIDEST:
            return None
        quotient, remainder = quotient_rounded_down(i), remainder_rounded_down(i)
        division = quotient or remainder
        if division is None:
            return None
        x, divisor = division
        w = Writer(i)
        sign = w.op(ShiftRightArithmetic(), x, w.full(kind.bits - 1, x.shape))
        rounded = w.op(Xor(), sign, _without_sign(w, Divide(), w.op(Xor(), x, sign), divisor))
        if quotient is None:
            rounded = w.op(Subtract(), x, w.op(Multiply(), rounded, w.full(divisor, x.shape)))
        ranges.ranges[rounded] = ranges.of(i)
        return rounded

    return family


def reciprocal(divisor: int, most: int, bits: int) -> Reciprocal | None:
    """Return m and n with ``x // divisor == x * m >> n`` for all x up to ``most``; None if there are none.

    With ``m = (2**n + e) / divisor`` the product is ``x * 2**n / divisor + x * e / divisor``. The shift by n
    yields the quotient if the second term is less than ``2**n / divisor``, the least distance of the first
    one from the next multiple of ``2**n``. The products must fit in ``bits``.
    """
    for shift in range(bits):
        factor = -(-(1 << shift) // divisor)
        if most * (factor * divisor - (1 << shift)) < 1 << shift:
            return (factor, shift) if most * factor < 1 << bits else None
    return None


def _without_sign(
    w: Writer, operation: Divide | Remainder, x: HloInstruction, divisor: int
) -> HloInstruction:
    """Write the division of nonnegative signed integers as an unsigned one."""
    kind = ElementType.parse(_UNSIGNED[x.shape.element_type.bits])
    bits = w.op(BitcastConvert(), x, shape=x.shape.with_element_type(kind))
    return w.op(
        BitcastConvert(),
        w.op(operation, bits, w.full(divisor, bits.shape)),
        shape=x.shape,
    )
