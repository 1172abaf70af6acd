"""Rules for compare, select and not."""

from __future__ import annotations

from typing import Final

from hloom.analysis.instructions import operation_of, splat
from hloom.analysis.values import number
from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import And, Maximum, Minimum, Or
from hloom.operations.comparison import OPPOSITE, SWAPPED, Compare, Select
from hloom.operations.structure import GetDimensionSize, Parameter
from hloom.operations.unary import Not, Sign
from hloom.passes.rewriting import RuleFamily
from hloom.passes.writing import Writer
from hloom.shape.element_type import ElementType
from hloom.shape.shape import Shape

RULES: Final = RuleFamily("comparison")
_BOUNDED_BY: Final = {"GT": Maximum, "LE": Maximum, "LT": Minimum, "GE": Minimum}
"""By direction, the operation whose result with y compares with y as its operand does."""


def has_total_order(compare: Compare, kind: ElementType) -> bool:
    """Return whether any two values of a type are ordered or equal."""
    return compare.comparison_type == "TOTALORDER" or kind.is_integer or kind.is_predicate


@RULES.rewrites(Compare)
def compare_with_itself(i: HloInstruction, compare: Compare) -> HloInstruction | None:
    """``x == x``, ``x <= x``, ``x >= x`` → true, other directions → false; not of floats, because of NaN."""
    if i.operands[0] is not i.operands[1] or not has_total_order(compare, i.operands[0].shape.element_type):
        return None
    return Writer(i).full(compare.direction in ("EQ", "LE", "GE"), i.shape)


@RULES.rewrites(Compare)
def compare_constant_on_the_right(i: HloInstruction, compare: Compare) -> HloInstruction | None:
    """``c < x`` → ``x > c``."""
    a, b = i.operands
    if splat(a) is None or splat(b) is not None:
        return None
    return Writer(i).op(compare.replace(direction=SWAPPED[compare.direction]), b, a, shape=i.shape)


@RULES.rewrites(Compare, constant=True)
def compare_of_pred(i: HloInstruction, compare: Compare) -> HloInstruction | None:
    """``p != false``, ``p == true`` → ``p``; ``p == false``, ``p != true`` → ``not p``."""
    p, c = i.operands
    value = number(c)
    if not p.shape.element_type.is_predicate or value is None or compare.direction not in ("EQ", "NE"):
        return None
    return p if (compare.direction == "EQ") == bool(value) else Writer(i).op(Not(), p)


@RULES.rewrites(Compare, of=Sign, constant=True)
def compare_of_sign(i: HloInstruction, compare: Compare, sign: Sign) -> HloInstruction | None:
    """``sign(x) != 1`` → ``x < 1`` of integers, ``sign(x) == 1`` → ``x > 0``, and so on.

    With -1 ``x > -1`` and ``x < 0``; with 0 x compares as its sign does.
    """
    (x,) = i.operands[0].operands
    value = number(i.operands[1])
    if not x.shape.element_type.is_integer or value not in (-1, 0, 1):
        return None
    if value == 0:
        direction, bound = compare.direction, 0
    elif compare.direction in ("EQ", "NE"):
        is_positive, is_equal = value == 1, compare.direction == "EQ"
        direction = "GT" if is_positive == is_equal else "LT"
        bound = 0 if is_equal else int(value)
    else:
        return None
    w = Writer(i)
    return w.op(compare.replace(direction=direction), x, w.full(bound, x.shape), shape=i.shape)


@RULES.rewrites(And, operands=(Compare, Compare))
def less_and_unequal(i: HloInstruction, and_: And, first: Compare, second: Compare) -> HloInstruction | None:
    """``x < y & x != y`` → ``x < y``, ``x <= y & x != y`` → ``x < y``; the same of ``>`` and ``>=``."""
    for test, other in (i.operands, i.operands[::-1]):
        order = operation_of(test, Compare)
        if operation_of(other, Compare) != order.replace(direction="NE") or test.operands != other.operands:
            continue
        if order.direction in ("LT", "GT"):
            return test
        if order.direction in ("LE", "GE"):
            return Writer(i).op(
                order.replace(direction=order.direction[0] + "T"), *test.operands, shape=i.shape
            )
    return None


@RULES.rewrites(Compare)
def compare_of_bounded(i: HloInstruction, compare: Compare) -> HloInstruction | None:
    """``x > c`` → ``max(x, c) > c`` if x has no other use than the maximum, as in gradients of a relu.

    ``<=`` too; with the minimum ``x < c`` and ``x >= c``. Only the bounded value remains in memory.
    """
    x, c = i.operands
    extreme = _BOUNDED_BY.get(compare.direction)
    if extreme is None or compare.comparison_type == "TOTALORDER" or isinstance(x.operation, Parameter):
        return None
    others = [user for user in x.users if not isinstance(user.operation, Compare)]
    tests = [user for user in x.users if isinstance(user.operation, Compare)]
    if len(others) != 1 or not isinstance(others[0].operation, extreme) or set(others[0].operands) != {x, c}:
        return None
    if any(
        t.operands != i.operands or _BOUNDED_BY.get(operation_of(t, Compare).direction) is not extreme
        for t in tests
    ):
        return None
    return Writer(i).op(compare, others[0], c, shape=i.shape)


@RULES.rewrites(Not, of=Compare)
def not_of_compare(i: HloInstruction, not_: Not, compare: Compare) -> HloInstruction | None:
    """``not (x < y)`` → ``x >= y`` without NaN; ``not (x == y)`` → ``x != y`` always."""
    (test,) = i.operands
    a, b = test.operands
    if len(test.users) > 1:
        return None
    if not has_total_order(compare, a.shape.element_type) and compare.direction not in ("EQ", "NE"):
        return None
    return Writer(i).op(compare.replace(direction=OPPOSITE[compare.direction]), a, b, shape=i.shape)


@RULES.rewrites(Select)
def select_decided(i: HloInstruction, select: Select) -> HloInstruction | None:
    """``select(true, a, b)`` → ``a``, ``select(false, a, b)`` → ``b``, ``select(p, a, a)`` → ``a``."""
    p, a, b = i.operands
    if a is b:
        return a
    value = number(p)
    return None if value is None else a if value else b


@RULES.rewrites(Select, of=Not)
def select_of_not(i: HloInstruction, select: Select, not_: Not) -> HloInstruction | None:
    """``select(not p, a, b)`` → ``select(p, b, a)``."""
    p, a, b = i.operands
    return Writer(i).op(Select(), p.operands[0], b, a)


@RULES.rewrites(Select)
def select_of_pred(i: HloInstruction, select: Select) -> HloInstruction | None:
    """``select(p, true, false)`` → ``p``, ``select(p, false, true)`` → ``not p``.

    With one constant: ``p & a`` for ``select(p, a, false)``, ``p | b`` for ``select(p, true, b)``.
    """
    p, a, b = i.operands
    if not i.shape.element_type.is_predicate:
        return None
    values = number(a), number(b)
    if values == (None, None):
        return None
    w = Writer(i)
    if p.shape.dimensions != i.shape.dimensions:
        p = w.broadcast(p, i.shape.dimensions)
    match values:
        case (1, 0):
            return p
        case (0, 1):
            return w.op(Not(), p)
        case (_, 0):
            return w.op(And(), p, a)
        case (1, _):
            return w.op(Or(), p, b)
        case _:
            return None


@RULES.rewrites(Select)
def select_of_same_choice(i: HloInstruction, select: Select) -> HloInstruction | None:
    """``select(p, select(p, a, b), c)`` → ``select(p, a, c)``; same for the other branch."""
    p, a, b = i.operands
    if isinstance(a.operation, Select) and a.operands[0] is p:
        return Writer(i).op(Select(), p, a.operands[1], b)
    if isinstance(b.operation, Select) and b.operands[0] is p:
        return Writer(i).op(Select(), p, a, b.operands[2])
    return None


@RULES.rewrites(GetDimensionSize)
def size_of_static_dimension(
    i: HloInstruction, get_dimension_size: GetDimensionSize
) -> HloInstruction | None:
    """``get-dimension-size(x)`` → the size."""
    dimension: int = get_dimension_size.dimensions[0]
    size = i.operands[0].shape.dimensions[dimension]
    return Writer(i).scalar(size, i.shape.element_type) if size != Shape.UNBOUNDED else None
