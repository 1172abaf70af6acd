"""The agreement required between compiler and reference evaluator, stricter than that with XLA.

Results that have one right value must be equal bit for bit, any NaN for any NaN: arithmetic, square roots,
comparisons, conversions, integers, orders. If data only moves, the bits of NaN must be kept, except for
floats of 16 bits and fewer: those are held in wider registers, where a signaling NaN becomes quiet.
"""

from __future__ import annotations

from fnmatch import fnmatch

import numpy as np

from hloom.ir.module import HloModule
from hloom.shape.element_type import ElementType
from hloom.shape.float_format import float_format

from .case import EXACT, Case, Tolerance, program
from .comparison import differs
from .draw import Array
from .explanations import ill_conditioned_power

MOVEMENT = frozenset({
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "broadcast", "concatenate", "copy",
    "reshape", "dynamic-slice", "dynamic-update-slice", "gather", "iota", "opt-barrier", "pad", "reverse",
    "slice", "transpose",
})  # fmt: skip
"""Operations that move data."""

ROUNDED_ONCE = MOVEMENT | {
    "abs", "add", "add-dependency", "after-all", "and", "bitcast-convert", "call", "ceil", "clamp",
    "compare", "complex", "conditional", "convert", "count-leading-zeros", "divide", "floor", "fusion",
    "imag", "is-finite", "map", "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "real",
    "reduce-precision", "remainder", "rng-bit-generator", "round-nearest-afz", "round-nearest-even",
    "select", "shift-left", "shift-right-arithmetic", "shift-right-logical", "sign", "sort", "sqrt",
    "subtract", "topk", "while", "xor",
}  # fmt: skip
"""Operations whose results have one right value."""

COMPLEX_FUNCTIONS = frozenset({"abs", "divide", "sign", "sqrt"})
"""Those of them that are rounded more than once for complex numbers."""


def opcodes(case: Case) -> frozenset[str]:
    """Return the operations of a case."""
    module = HloModule.from_text(program([case]))
    return frozenset(i.opcode for c in module.computations for i in c.instructions)


def owed(case: Case, kind: ElementType | None = None) -> Tolerance:
    """Return the tolerance of the compiler's results of a case against the evaluator's.

    Sums of narrow floats, such as results of that ``kind`` are, are formed in f32 and rounded once.
    """
    used = opcodes(case)
    if any(a.dtype.kind == "c" for a in case.arguments) and used & COMPLEX_FUNCTIONS:
        return case.tolerance
    if used <= ROUNDED_ONCE:
        return EXACT
    if case.tolerance.terms and kind is not None and kind.is_floating and kind.bits < 32:
        digits = 0 if kind.name == "f8e8m0fnu" else float_format(kind).mantissa_bits
        return Tolerance(ulps=1, terms=case.tolerance.terms * 2.0 ** (digits - 23))
    return case.tolerance


def disagrees(
    case: Case, compiled: Array, evaluated: Array, sizes: Array | None = None, bound: Array | None = None
) -> Array:
    """Return a mask of the elements in which results of equal shapes disagree."""
    if opcodes(case) <= MOVEMENT and ElementType.from_dtype(compiled.dtype).bits >= 32:
        octets = [np.ascontiguousarray(a)[..., None].view(np.uint8) for a in (compiled, evaluated)]
        return (octets[0] != octets[1]).any(axis=-1)
    tolerance = owed(case, ElementType.from_dtype(compiled.dtype))
    different = differs(compiled, evaluated, tolerance, sizes, bound)
    if fnmatch(case.operation, "power c*"):
        return different & ~ill_conditioned_power(case, compiled, evaluated)
    if not opcodes(case) <= ROUNDED_ONCE:
        return different & (
            compiled != evaluated
        )  # a sum of negative zeros is -0, but +0 if it starts with 0
    return different
