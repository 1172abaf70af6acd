"""Values that only change sign when two dimensions of equal size are exchanged.

The force between each two of n points is an array of n × n vectors, antisymmetric under the exchange of its
points. Sums along either dimension are then the same, up to the sign.
"""

from __future__ import annotations

from typing import Final

from hloom.analysis.values import combiner, is_all
from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import Add, Divide, Multiply, Subtract
from hloom.operations.comparison import Compare, Select
from hloom.operations.movement import Broadcast
from hloom.operations.reduction import Reduce
from hloom.operations.structure import Iota
from hloom.operations.unary import Abs, Negate, RoundNearestAfz, RoundNearestEven
from hloom.records import dataclass

MOST_PAIRS: Final = 256
"""Maximum number of pairs of values that are compared."""
_ODD: Final = (Negate, RoundNearestAfz, RoundNearestEven)


@dataclass(frozen=True, slots=True)
class Symmetry:
    """Values are the same after an exchange, times a sign.

    Attributes:
        sign: 1 or -1.
        exact: whether zeros have the right sign too: a - b and b - a are both +0 where a = b.
    """

    sign: int
    exact: bool

    def __mul__(self, other: Symmetry) -> Symmetry:
        return Symmetry(self.sign * other.sign, self.exact and other.exact)


EQUAL: Final = Symmetry(1, True)


def exchange_symmetry(x: HloInstruction, a: int, b: int) -> Symmetry | None:
    """Return how the elements of an array change if two dimensions are exchanged; None if it is not known."""
    return _Comparison().compare(x, x, (a, b))


class _Comparison:
    """Compares values at exchanged indices with values."""

    def __init__(self) -> None:
        self._known: dict[tuple[HloInstruction, HloInstruction, tuple[int, int]], Symmetry | None] = {}

    def compare(self, x: HloInstruction, y: HloInstruction, pair: tuple[int, int]) -> Symmetry | None:
        """Return the relation of x at the index with two dimensions exchanged to y."""
        key = x, y, pair
        if key not in self._known:
            if len(self._known) >= MOST_PAIRS:
                return None
            self._known[key] = None
            self._known[key] = self._compare(x, y, pair)
        return self._known[key]

    def _compare(self, x: HloInstruction, y: HloInstruction, pair: tuple[int, int]) -> Symmetry | None:
        if x is y and not x.shape.rank:
            return EQUAL
        if (
            type(x.operation) is not type(y.operation)
            or x.shape != y.shape
            or x.shape.element_type.is_complex
        ):
            return None
        match x.operation, y.operation:
            case Broadcast() as of_x, Broadcast() as of_y:
                return self._broadcast(x, of_x.dimensions, y, of_y.dimensions, pair)
            case Iota() as of_x, Iota() as of_y:
                along = _exchanged(of_x.iota_dimension, pair)
                return EQUAL if along == of_y.iota_dimension else None
            case Reduce() as of_x, of_y if of_x == of_y:
                return self._reduce(x, of_x, y, pair)
            case of_x, of_y if of_x == of_y and of_x.elementwise:
                return self._elementwise(x, y, pair)
            case _:
                return None

    def _broadcast(
        self,
        x: HloInstruction,
        of_x: tuple[int, ...],
        y: HloInstruction,
        of_y: tuple[int, ...],
        pair: tuple[int, int],
    ) -> Symmetry | None:
        (inner,), (other,) = x.operands, y.operands
        if inner is other and tuple(_exchanged(d, pair) for d in of_x) == of_y:
            return EQUAL
        if of_x != of_y or not set(pair) <= set(of_x):
            return None
        return self.compare(inner, other, (of_x.index(pair[0]), of_x.index(pair[1])))

    def _reduce(
        self, x: HloInstruction, reduce: Reduce, y: HloInstruction, pair: tuple[int, int]
    ) -> Symmetry | None:
        """Compare sums along dimensions that are not exchanged; a sum that begins with 0 is never -0."""
        operation = combiner(x)
        if operation is None or operation != combiner(y) or x.operands[1] is not y.operands[1]:
            return None
        kept = [d for d in range(x.operands[0].shape.rank) if d not in reduce.dimensions]
        terms = self.compare(x.operands[0], y.operands[0], (kept[pair[0]], kept[pair[1]]))
        if terms is None or terms == EQUAL:
            return terms
        is_sum = isinstance(operation, Add) and is_all(x.operands[1], 0.0)
        return Symmetry(terms.sign, False) if is_sum else None

    def _elementwise(self, x: HloInstruction, y: HloInstruction, pair: tuple[int, int]) -> Symmetry | None:
        if isinstance(x.operation, Multiply) and x.operands[0] is x.operands[1]:
            if y.operands[0] is y.operands[1] and self.compare(x.operands[0], y.operands[0], pair):
                return EQUAL
            return None
        straight = [self.compare(a, b, pair) for a, b in zip(x.operands, y.operands, strict=True)]
        relation = _combined(x, straight)
        if relation is not None or len(straight) != 2:
            return relation
        crossed = [self.compare(a, b, pair) for a, b in zip(x.operands, reversed(y.operands), strict=True)]
        if isinstance(x.operation, Subtract):
            first, second = crossed
            alike = first is not None and second is not None and first.sign == second.sign
            return Symmetry(-first.sign, False) if first is not None and alike else None
        symmetric = isinstance(x.operation, Compare) and x.operation.direction in ("EQ", "NE")
        return _combined(x, crossed) if x.operation.commutative or symmetric else None


def _combined(x: HloInstruction, operands: list[Symmetry | None]) -> Symmetry | None:
    """Return the relation of results from those of their operands."""
    known = [o for o in operands if o is not None]
    match x.operation, known:
        case Select(), [Symmetry(sign=1), yes, no]:
            return _joined(x, [yes, no])
        case _ if len(known) != len(operands):
            return None
        case (Add() | Subtract(), [a, b]) if a.sign == b.sign:
            return Symmetry(a.sign, a.exact and b.exact and a.sign == 1)
        case Multiply(), [a, b]:
            return a * b
        case Divide(), [a, b] if b.exact:
            return a * b
        case Compare(), [Symmetry(sign=1), Symmetry(sign=1)]:
            return EQUAL
        case Abs(), _:
            return EQUAL
        case operation, [a] if isinstance(operation, _ODD):
            return a
        case _:
            return EQUAL if all(o == EQUAL for o in known) else None


def _joined(x: HloInstruction, values: list[Symmetry]) -> Symmetry | None:
    """Return the relation of a choice: zero is its own negative."""
    signs = {v.sign for v, o in zip(values, x.operands[1:], strict=True) if not is_all(o, 0.0)}
    exact = all(v.exact and v.sign in signs for v in values) and len(signs) == 1
    return Symmetry(signs.pop(), exact) if len(signs) == 1 else None


def _exchanged(d: int, pair: tuple[int, int]) -> int:
    a, b = pair
    return b if d == a else a if d == b else d
