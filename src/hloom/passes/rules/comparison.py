"""Rules for compare, select and not."""

from __future__ import annotations

from typing import Any, Final

from hloom.analysis.instructions import attributes, direction_of, splat
from hloom.analysis.values import number
from hloom.ir.instruction import HloInstruction
from hloom.operations.comparison import OPPOSITE, SWAPPED
from hloom.passes.rewriting import Family
from hloom.passes.writing import Writer
from hloom.shape.shape import Shape

RULES: Final = Family("comparison")


def has_total_order(i: HloInstruction) -> bool:
    """Whether of two operands of a compare always one is less, or both are equal."""
    operation = attributes(i)
    kind = i.operands[0].shape.element_type
    return operation.comparison_type == "TOTALORDER" or kind.is_integer or kind.is_predicate


def _compare(i: HloInstruction, a: HloInstruction, b: HloInstruction, operation: Any) -> HloInstruction:
    return Writer(i).op(
        "compare",
        a,
        b,
        shape=i.shape,
        direction=operation.direction,
        comparison_type=operation.comparison_type,
    )


@RULES.rewrites("compare")
def compare_with_itself(i: HloInstruction) -> HloInstruction | None:
    """``x == x``, ``x <= x``, ``x >= x`` → true, the others false; not of floats, where NaN may be."""
    if i.operands[0] is not i.operands[1] or not has_total_order(i):
        return None
    return Writer(i).full(direction_of(i) in ("EQ", "LE", "GE"), i.shape)


@RULES.rewrites("compare")
def compare_constant_on_the_right(i: HloInstruction) -> HloInstruction | None:
    """``c < x`` → ``x > c``."""
    a, b = i.operands
    if splat(a) is None or splat(b) is not None:
        return None
    return _compare(i, b, a, attributes(i).replace(direction=SWAPPED[direction_of(i)]))


@RULES.rewrites("compare", constant=True)
def compare_of_pred(i: HloInstruction) -> HloInstruction | None:
    """``p != false``, ``p == true`` → ``p``; ``p == false``, ``p != true`` → ``not p``."""
    p, c = i.operands
    value = number(c)
    if not p.shape.element_type.is_predicate or value is None or direction_of(i) not in ("EQ", "NE"):
        return None
    return p if (direction_of(i) == "EQ") == bool(value) else Writer(i).op("not", p)


@RULES.rewrites("not")
def not_of_compare(i: HloInstruction) -> HloInstruction | None:
    """``not (x < y)`` → ``x >= y`` where there is no NaN; ``not (x == y)`` → ``x != y`` always."""
    (compare,) = i.operands
    if compare.opcode != "compare" or len(compare.users) > 1:
        return None
    if not has_total_order(compare) and direction_of(compare) not in ("EQ", "NE"):
        return None
    opposite = attributes(compare).replace(direction=OPPOSITE[direction_of(compare)])
    return _compare(i, compare.operands[0], compare.operands[1], opposite)


@RULES.rewrites("select")
def select_decided(i: HloInstruction) -> HloInstruction | None:
    """``select(true, a, b)`` → ``a``, ``select(false, a, b)`` → ``b``, ``select(p, a, a)`` → ``a``."""
    p, a, b = i.operands
    if a is b:
        return a
    value = number(p)
    return None if value is None else a if value else b


@RULES.rewrites("select")
def select_of_not(i: HloInstruction) -> HloInstruction | None:
    """``select(not p, a, b)`` → ``select(p, b, a)``."""
    p, a, b = i.operands
    if p.opcode != "not":
        return None
    return Writer(i).op("select", p.operands[0], b, a)


@RULES.rewrites("select")
def select_of_pred(i: HloInstruction) -> HloInstruction | None:
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
            return w.op("not", p)
        case (_, 0):
            return w.op("and", p, a)
        case (1, _):
            return w.op("or", p, b)
        case _:
            return None


@RULES.rewrites("select")
def select_of_same_choice(i: HloInstruction) -> HloInstruction | None:
    """``select(p, select(p, a, b), c)`` → ``select(p, a, c)``, and so for the other branch."""
    p, a, b = i.operands
    if a.opcode == "select" and a.operands[0] is p:
        return Writer(i).op("select", p, a.operands[1], b)
    if b.opcode == "select" and b.operands[0] is p:
        return Writer(i).op("select", p, a, b.operands[2])
    return None


@RULES.rewrites("get-dimension-size")
def size_of_static_dimension(i: HloInstruction) -> HloInstruction | None:
    """``get-dimension-size(x)`` → the size."""
    dimension: int = attributes(i).dimensions[0]
    size = i.operands[0].shape.dimensions[dimension]
    return Writer(i).scalar(size, i.shape.element_type) if size != Shape.UNBOUNDED else None
