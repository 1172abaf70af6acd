"""Comparing and choosing: compare, select, is-finite."""

from __future__ import annotations

import math

from hloom.codegen.elementwise.registry import LoweringContext, lowering
from hloom.codegen.llvm import F64, I32, I64, Value
from hloom.codegen.types import Element, parts
from hloom.operations.comparison import Compare


@lowering("compare", exact=True)
def _compare(c: LoweringContext, a: Element, b: Element) -> Element:
    assert isinstance(c.operation, Compare)
    word = c.operation.direction.lower()
    if isinstance(a, tuple):
        assert isinstance(b, tuple)
        if word == "eq":
            return a[0].compare("oeq", b[0]) & a[1].compare("oeq", b[1])
        return a[0].compare("une", b[0]) | a[1].compare("une", b[1])
    x, y = parts(a, b)
    if not x.type.is_float:
        signed = c.kind.is_signed
        return x.compare(word if word in ("eq", "ne") else ("s" if signed else "u") + word, y)
    if c.operation.comparison_type != "TOTALORDER":
        return x.compare("une" if word == "ne" else "o" + word, y)
    x, y = _total_order_key(x), _total_order_key(y)
    return x.compare(word if word in ("eq", "ne") else "s" + word, y)


def _total_order_key(x: Value) -> Value:
    """Return integers in the total order of floats: for negative floats all bits but the sign are flipped."""
    width = 64 if x.type.scalar is F64 else 32
    bits = x.bitcast((I64 if width == 64 else I32).vector(x.type.lanes))
    return bits ^ (bits >> (width - 1)).logical_shift_right(1)


@lowering("select", exact=True)
def _select(c: LoweringContext, pred: Value, a: Element, b: Element) -> Element:
    if isinstance(a, tuple):
        assert isinstance(b, tuple)
        return pred.select(a[0], b[0]), pred.select(a[1], b[1])
    x, y = parts(a, b)
    return pred.select(x, y)


@lowering("is-finite", exact=True)
def _is_finite(c: LoweringContext, a: Value) -> Value:
    return a.function.intrinsic("fabs", a).compare("olt", math.inf)
