"""Value ranges of integers, derived from constants, iotas, loop counters and arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.analysis.loops import element_number, picks
from hloom.analysis.trip_count import trip_count
from hloom.analysis.values import combiner, number
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Array
from hloom.ir.traits import Range
from hloom.operations.arithmetic import Add
from hloom.operations.comparison import OPPOSITE, Compare, Select
from hloom.operations.control_flow import While
from hloom.operations.reduction import Reduce
from hloom.operations.structure import Constant, Iota
from hloom.passes.loops.while_loops import loop_of

_LARGEST_CONSTANT: Final = 1 << 14
_DEPTH: Final = 24


class IntegerRanges:
    """The value ranges of the integers of a module with a flat call graph."""

    def __init__(self, module: HloModule) -> None:
        self.ranges: dict[HloInstruction, Range | None] = {}
        self._initial: dict[HloInstruction, HloInstruction] = {}
        """The values before a loop of the elements that it does not change."""
        for i in [i for i in module.instructions() if isinstance(i.operation, While)]:
            loop = loop_of(i)
            if loop is None:
                continue
            for state in (loop.state, loop.tested):
                for pick in state.users:
                    n = element_number(pick, state)
                    if n is not None and loop.is_invariant(n):
                        self._initial[pick] = loop.initial(n)
            count = trip_count(loop)
            if count is None:
                continue
            for state, counter_range in ((loop.state, count.in_body), (loop.tested, count.in_condition)):
                self.ranges.update(dict.fromkeys(picks(state, count.element), counter_range))

    def of(self, i: HloInstruction, depth: int = _DEPTH) -> Range | None:
        """Return the range of all elements of an integer or pred array; None for other types."""
        kind = i.shape.element_type
        if not (kind.is_integer or kind.is_predicate):
            return None
        if i not in self.ranges:
            full = int(kind.limits[0]), int(kind.limits[1])
            derived = self._derived(i, depth - 1) if depth else None
            if derived is None or not (full[0] <= derived[0] and derived[1] <= full[1]):
                derived = full
            self.ranges[i] = derived
        return self.ranges[i]

    def _derived(self, i: HloInstruction, depth: int) -> Range | None:
        """Return the range that follows from the operands, before wrap-around."""
        if i in self._initial:
            return self.of(self._initial[i], depth)
        match i.operation:
            case Constant():
                return _of_constant(i)
            case Iota(iota_dimension=dimension):
                return 0, max(i.shape.dimensions[dimension] - 1, 0)
            case Select() if (bounds := self._selected(i, depth)) is not None:
                return bounds
            case Reduce() if (operation := combiner(i)) is not None:
                sources: Sequence[int] = range(2) if operation.element_sources(2) else ()
            case operation:
                ranges = [self.of(o, depth) for o in i.operands if o.shape.is_array]
                bounded = [r for r in ranges if r is not None]
                if bounded and len(bounded) == len(ranges):
                    derived = operation.value_range(i.shape.element_type, *bounded)
                    if derived is not None:
                        return derived
                sources = operation.element_sources(len(i.operands))
        return _union([self.of(i.operands[n], depth) for n in sources])

    def _selected(self, i: HloInstruction, depth: int) -> Range | None:
        """Return the range of ``select(x < constant, a, b)``, where the comparison bounds x in a and b."""
        test, *alternatives = i.operands
        if not isinstance(test.operation, Compare) or test.operation.direction not in OPPOSITE:
            return None
        x, bound = test.operands[0], number(test.operands[1])
        bounds = self.of(x, depth)
        if bounds is None or bound is None:
            return None
        direction = test.operation.direction
        parts = [_where(d, bounds, int(bound)) for d in (direction, OPPOSITE[direction])]
        return _union(
            [
                self._of_part(alternative, x, part, depth)
                for alternative, part in zip(alternatives, parts, strict=True)
                if part[0] <= part[1]
            ]
        )

    def _of_part(self, i: HloInstruction, x: HloInstruction, part: Range, depth: int) -> Range | None:
        """Return the range of an instruction if x is in the range ``part``."""
        if i is x:
            return part
        if isinstance(i.operation, Add) and i.operands[0] is x:
            addend = self.of(i.operands[1], depth)
            total = None if addend is None else (part[0] + addend[0], part[1] + addend[1])
            low, high = i.shape.element_type.limits
            if total is not None and low <= total[0] and total[1] <= high:
                return total
        return self.of(i, depth)


def _where(direction: str, bounds: Range, bound: int) -> Range:
    """Return the subrange for which a comparison with a number holds; if empty, its high is below its low."""
    low, high = bounds
    match direction:
        case "LT":
            return low, min(high, bound - 1)
        case "LE":
            return low, min(high, bound)
        case "GT":
            return max(low, bound + 1), high
        case "GE":
            return max(low, bound), high
        case "EQ":
            return max(low, bound), min(high, bound)
        case _:
            return bounds


def _union(ranges: Sequence[Range | None]) -> Range | None:
    bounded = [r for r in ranges if r is not None]
    if not bounded or len(bounded) < len(ranges):
        return None
    return min(low for low, _ in bounded), max(high for _, high in bounded)


def _of_constant(i: HloInstruction) -> Range | None:
    value = number(i)
    if value is not None:
        return int(value), int(value)
    literal = operation_of(i, Constant).literal
    if literal.is_elided or not 0 < i.shape.element_count <= _LARGEST_CONSTANT:
        return None
    array: Array = literal.array
    return (int(array.min()), int(array.max())) if array.size else None
