"""In which ranges integers lie, as far as constants, iotas and loop counters tell."""

from __future__ import annotations

from typing import Final, TypeAlias

from hloom.analysis.instructions import attributes
from hloom.analysis.loops import picks
from hloom.analysis.trip_count import trip_count
from hloom.analysis.values import combines_by, number
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Array
from hloom.passes.loops.while_loops import loop_of

Range: TypeAlias = tuple[int, int]
"""Least and largest value, both included."""

_PASSING: Final = frozenset(
    ("broadcast", "reshape", "transpose", "slice", "reverse", "copy", "dynamic-slice", "gather")
)
_LARGEST_CONSTANT: Final = 1 << 14
_DEPTH: Final = 24


class IntegerRanges:
    """The ranges of the integers of a module, whose call graph must be flat."""

    def __init__(self, module: HloModule) -> None:
        self.known: dict[HloInstruction, Range | None] = {}
        for i in [i for i in module.instructions() if i.opcode == "while"]:
            loop = loop_of(i)
            count = trip_count(loop) if loop is not None else None
            if loop is None or count is None:
                continue
            for whole, found in ((loop.state, count.in_body), (loop.tested, count.in_condition)):
                self.known.update(dict.fromkeys(picks(whole, count.element), found))

    def of(self, i: HloInstruction, depth: int = _DEPTH) -> Range | None:
        """The range of all elements of an array of integers or pred; None for anything else."""
        kind = i.shape.element_type
        if not (kind.is_integer or kind.is_predicate):
            return None
        if i not in self.known:
            whole = int(kind.limits[0]), int(kind.limits[1])
            found = self._found(i, depth - 1) if depth else None
            if found is None or not (whole[0] <= found[0] and found[1] <= whole[1]):
                found = whole
            self.known[i] = found
        return self.known[i]

    def _found(self, i: HloInstruction, depth: int) -> Range | None:
        """The range that follows from the operands, were integers as large as one likes."""
        opcode = i.opcode
        if opcode == "constant":
            return _of_constant(i)
        if opcode == "iota":
            dimension: int = attributes(i).iota_dimension
            return 0, max(i.shape.dimensions[dimension] - 1, 0)
        if opcode in _PASSING:
            return self.of(i.operands[0], depth)
        if opcode == "convert":
            return self.of(i.operands[0], depth)
        ranges = [self.of(o, depth) for o in i.operands if o.shape.is_array]
        if any(r is None for r in ranges) or not ranges:
            return None
        return self._combined(i, [r for r in ranges if r is not None])

    def _combined(self, i: HloInstruction, r: list[Range]) -> Range | None:
        match i.opcode:
            case "add":
                return None if i.shape.element_type.is_predicate else (r[0][0] + r[1][0], r[0][1] + r[1][1])
            case "subtract":
                return r[0][0] - r[1][1], r[0][1] - r[1][0]
            case "multiply":
                products = [a * b for a in r[0] for b in r[1]]
                return min(products), max(products)
            case "maximum":
                return max(r[0][0], r[1][0]), max(r[0][1], r[1][1])
            case "minimum":
                return min(r[0][0], r[1][0]), min(r[0][1], r[1][1])
            case "clamp":
                low, x, high = r
                least = min(max(x[0], low[0]), high[0])
                return least, min(max(x[1], low[1]), high[1])
            case "select":
                return _union(r[1:])
            case "concatenate" | "pad":
                return _union(r)
            case "dynamic-update-slice":
                return _union(r[:2])
            case "and":
                positive = [high for low, high in r if low >= 0]
                return (0, min(positive)) if positive else None
            case "remainder":
                return _remainder(r[0], r[1])
            case "divide" if r[1][0] > 0:
                quotients = [int(a / b) if abs(a) < 1 << 50 else None for a in r[0] for b in r[1]]
                known = [q for q in quotients if q is not None]
                return (min(known), max(known)) if len(known) == 4 else None
            case "reduce" if combines_by(i) in ("maximum", "minimum"):
                return _union(r)
            case _:
                return None


def _union(ranges: list[Range]) -> Range:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _remainder(dividend: Range, divisor: Range) -> Range | None:
    """The remainder has the dividend's sign and is less than the divisor."""
    if divisor[0] <= 0:
        return None
    most = divisor[1] - 1
    return max(dividend[0], -most) if dividend[0] < 0 else 0, min(dividend[1], most) if dividend[1] > 0 else 0


def _of_constant(i: HloInstruction) -> Range | None:
    value = number(i)
    if value is not None:
        return int(value), int(value)
    literal = attributes(i).literal
    if literal.is_elided or not 0 < i.shape.element_count <= _LARGEST_CONSTANT:
        return None
    array: Array = literal.array
    return (int(array.min()), int(array.max())) if array.size else None
