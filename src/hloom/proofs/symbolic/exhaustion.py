"""Equality of elements that depend on few bits: the evaluator computes both for every value of these bits."""

from __future__ import annotations

from typing import Final

import numpy as np

from hloom.errors import HloError
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Array
from hloom.operations.conversion import BitcastConvert
from hloom.passes.writing import Body
from hloom.proofs.symbolic.terms import Access, Apply, Scalar, Term
from hloom.shape.element_type import ElementType
from hloom.shape.shape import Shape

MOST_BITS: Final = 16
"""Maximum number of bits of all elements of arrays together."""


def are_equal_everywhere(a: Term, b: Term) -> bool:
    """Return whether two elements have the same bits, or are both NaN, for all elements of the arrays.

    False too where they depend on more than `MOST_BITS` bits, or are not evaluated.
    """
    leaves: dict[Term, ElementType] = {}
    if not (_collect(a, leaves) and _collect(b, leaves)) or not leaves:
        return False
    if sum(_bits(kind) for kind in leaves.values()) > MOST_BITS:
        return False
    grids = np.meshgrid(*map(_values, leaves.values()), indexing="ij")
    arguments = [grid.reshape(-1) for grid in grids]
    try:
        x, y = (_evaluated(term, leaves, arguments) for term in (a, b))
    except HloError:
        return False
    return x.dtype == y.dtype and bool(np.all(_same(x, y)))


def _collect(term: Term, leaves: dict[Term, ElementType]) -> bool:
    """Add the elements of arrays in a term; return whether it has only operations, numbers and these."""
    match term:
        case Access(element_type=kind):
            leaves[term] = kind
            return not kind.is_complex
        case Apply(operation=BitcastConvert(), operands=(x,)):
            return x.element_type.bits == term.element_type.bits and _collect(x, leaves)
        case Apply(operation=operation):
            return operation.elementwise and all(_collect(o, leaves) for o in term.operands)
        case Scalar():
            return True
        case _:
            return False


def _bits(kind: ElementType) -> int:
    return 1 if kind.is_predicate else kind.bits


def _values(kind: ElementType) -> Array:
    """Return every value of a type."""
    dtype, bits = kind.numpy_dtype, _bits(kind)
    if kind.is_predicate:
        return np.asarray([False, True])
    if kind.is_integer:
        least, most = (int(limit) for limit in kind.limits)
        return np.arange(least, most + 1).astype(dtype)
    return np.arange(1 << bits).astype(np.uint8 if bits <= 8 else np.uint16).view(dtype)


def _evaluated(term: Term, leaves: dict[Term, ElementType], arguments: list[Array]) -> Array:
    body = Body(HloModule("all"), "entry", entry=True)
    (count,) = arguments[0].shape
    steps: dict[Term, HloInstruction] = {
        leaf: body.parameter(Shape(kind, (count,)), f"x{n}") for n, (leaf, kind) in enumerate(leaves.items())
    }

    def step(term: Term) -> HloInstruction:
        if term not in steps:
            shape = Shape(term.element_type, (count,))
            if isinstance(term, Scalar):
                steps[term] = body.full(np.frombuffer(term.value, term.element_type.numpy_dtype)[0], shape)
            else:
                assert isinstance(term, Apply)
                steps[term] = body.op(term.operation, *map(step, term.operands), shape=shape)
        return steps[term]

    body.computation.root = step(term)
    result = Evaluator().run(body.computation, arguments)
    assert isinstance(result, np.ndarray)
    return result


def _same(x: Array, y: Array) -> Array:
    """Return which elements have the same bits or are both NaN."""
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    equal = x.view(np.uint8).reshape(len(x), -1) == y.view(np.uint8).reshape(len(y), -1)
    with np.errstate(invalid="ignore"):
        return equal.all(axis=1) | ((x != x) & (y != y))
