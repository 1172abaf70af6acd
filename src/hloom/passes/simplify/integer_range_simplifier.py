"""Passes that use the value ranges of integers.

integer-range-simplifier removes comparisons and clamps with known results; integer-division replaces
divisions by constants by multiplications and shifts.
"""

from __future__ import annotations

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.traits import Range
from hloom.operations.arithmetic import Divide, Maximum, Minimum, Remainder
from hloom.operations.comparison import Clamp, Compare, Select
from hloom.passes.facts import FLAT
from hloom.passes.pipeline import Pass
from hloom.passes.rewriting import RuleFamily, RuleTable
from hloom.passes.simplify.integer_ranges import IntegerRanges
from hloom.passes.writing import Writer


class IntegerRangeSimplifier(
    Pass,
    name="integer-range-simplifier",
    of=(Clamp, Compare, Maximum, Minimum, Remainder),
    needs={FLAT},
    settles=True,
):
    """``i < n`` → true, ``maximum(i, 0)`` → ``i``, ``i % n`` → ``i`` where the range of i proves it."""

    def run(self, module: HloModule) -> bool:
        """Simplify in every computation."""
        return RuleTable(rules(IntegerRanges(module))).rewrite_module(module)


class IntegerDivision(Pass, name="integer-division", of=(Divide, Remainder, Select), needs={FLAT}):
    """``x / c`` → ``x * m >> n`` where products fit, else an unsigned division; ``x // c`` by one division.

    It runs after the passes that use ranges: the range of a remainder is known, that of products is wider.
    """

    def run(self, module: HloModule) -> bool:
        """Rewrite divisions of arrays by constants in every computation."""
        from hloom.passes.simplify.integer_division import rules as rules_of_divisions

        return RuleTable(rules_of_divisions(IntegerRanges(module))).rewrite_module(module)


def rules(ranges: IntegerRanges) -> RuleFamily:
    """Return the rules, which query ``ranges``."""
    family = RuleFamily("integer ranges")

    @family.rewrites(Compare)
    def compare_of_ranges(i: HloInstruction, compare: Compare) -> HloInstruction | None:
        """``x < y`` → true where every x is less than every y, false where none is; and so on."""
        a, b = (ranges.of(o) for o in i.operands)
        if a is None or b is None:
            return None
        decided = _decided(compare.direction, a, b)
        return None if decided is None else Writer(i).full(decided, i.shape)

    @family.rewrites(Maximum, Minimum, Clamp)
    def bound_that_holds(i: HloInstruction, operation: Maximum | Minimum | Clamp) -> HloInstruction | None:
        """``maximum(x, y)`` → ``x`` where no y is larger, ``clamp(lo, x, hi)`` → ``x`` of x between."""
        ranges_of_operands = [ranges.of(o) for o in i.operands]
        r = [x for x in ranges_of_operands if x is not None]
        if len(r) != len(ranges_of_operands):
            return None
        if isinstance(operation, Clamp):
            return i.operands[1] if r[0][1] <= r[1][0] and r[1][1] <= r[2][0] else None
        is_maximum = isinstance(operation, Maximum)
        for mine, other in ((0, 1), (1, 0)):
            if r[other][1] <= r[mine][0] if is_maximum else r[mine][1] <= r[other][0]:
                return i.operands[mine]
        return None

    @family.rewrites(Remainder)
    def remainder_of_less(i: HloInstruction, remainder: Remainder) -> HloInstruction | None:
        """``x % y`` → ``x`` where every x is not negative and less than every y."""
        a, b = (ranges.of(o) for o in i.operands)
        return i.operands[0] if a is not None and b is not None and a[0] >= 0 and a[1] < b[0] else None

    return family


def _decided(direction: str, a: Range, b: Range) -> bool | None:
    """Return whether a comparison holds for all pairs of two ranges; None if for some of them only."""
    match direction:
        case "LT":
            return True if a[1] < b[0] else False if a[0] >= b[1] else None
        case "LE":
            return True if a[1] <= b[0] else False if a[0] > b[1] else None
        case "GT":
            return _decided("LT", b, a)
        case "GE":
            return _decided("LE", b, a)
        case _:
            apart = a[1] < b[0] or b[1] < a[0]
            same = a[0] == a[1] == b[0] == b[1]
            return (direction == "NE") == apart if apart or same else None
