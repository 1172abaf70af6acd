"""Floats made integral: floor, ceil, rounding."""

from __future__ import annotations

from hloom.codegen.elementwise.registry import LoweringContext, lowering
from hloom.codegen.llvm import Value
from hloom.codegen.vector_math.reals import Reals


@lowering("floor", exact=True)
def _floor(c: LoweringContext, a: Value) -> Value:
    return Reals(a).floor(a)


@lowering("ceil", exact=True)
def _ceil(c: LoweringContext, a: Value) -> Value:
    return Reals(a).ceil(a)


@lowering("round-nearest-even", exact=True)
def _round_nearest_even(c: LoweringContext, a: Value) -> Value:
    return Reals(a).round_even(a)


@lowering("round-nearest-afz", exact=True)
def _round_nearest_afz(c: LoweringContext, a: Value) -> Value:
    """Add the predecessor of 0.5 before truncation: 0.5 itself would round 0.49999997 to 1."""
    r = Reals(a)
    below_half = 0.5 - 2.0 ** -(r.precision + 1)
    return r.truncate(a + r.copysign(r.constant(below_half), a))
