"""The elementwise opcodes from which generators choose, by the traits of the operations."""

from __future__ import annotations

from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Final

import numpy as np

from hloom.fuzzing.generators.draw import COMPLEX, EVERY, NARROW_FLOATS, Array
from hloom.ir.operation import REGISTRY
from hloom.ir.traits import Roundoff
from hloom.operations.arithmetic import Subtract
from hloom.operations.elementwise import Elementwise
from hloom.shape.element_type import ElementType

_REFUSED: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("acos", "acosh", "asin", "asinh", "atanh", "cosh", "erfc", "exp2", "log2", "sinh"), EVERY
    ),
    "mulhi": EVERY,
    **dict.fromkeys(("maximum", "minimum"), COMPLEX),
    **dict.fromkeys(("real", "imag"), ("bf16", "f16", *NARROW_FLOATS)),
}
"""Element types for which jaxlib refuses an operation: its client takes programs as StableHLO, which has no
inverse and hyperbolic functions."""


@cache
def _operation(opcode: str) -> Any:
    return REGISTRY[opcode]


@cache
def elementwise(operands: int) -> tuple[str, ...]:
    """Return the opcodes with some number of operands of one type, and without attributes."""
    return tuple(
        opcode
        for opcode, cls in sorted(REGISTRY.items())
        if issubclass(cls, Elementwise)
        and len(cls.operand_names) == operands
        and cls.infers
        and all(attribute.default is not MISSING for attribute in fields(_operation(opcode)))
        and types_of(opcode)
    )


@cache
def types_of(opcode: str) -> tuple[str, ...]:
    """Return the element types that both hloom and XLA accept for an opcode."""
    accepted = {kind.name for kind in _operation(opcode).accepts}
    return tuple(t for t in EVERY if t in accepted and t not in _REFUSED.get(opcode, ()))


@cache
def beyond_stablehlo() -> tuple[tuple[str, str], ...]:
    """Return the pairs of an elementwise opcode and an element type that StableHLO lacks."""
    return tuple(
        (opcode, name)
        for opcode, types in _REFUSED.items()
        for name in types
        if ElementType.parse(name) in _operation(opcode).accepts
    )


def operand_count(opcode: str) -> int:
    """Return the number of operands of an elementwise operation."""
    return len(_operation(opcode).operand_names)


@cache
def is_exact(opcode: str, element_type: str) -> bool:
    """Return whether an operation has only one correct result, bit for bit."""
    kind, cls = ElementType.parse(element_type), _operation(opcode)
    if not (kind.is_floating or kind.is_complex):
        return True
    roundoff = (cls.complex_roundoff if kind.is_complex else None) or cls.roundoff
    return roundoff in (Roundoff.NONE, Roundoff.ONCE)


@cache
def choices(operands: int, *, exact: bool) -> dict[str, tuple[str, ...]]:
    """Return the opcodes with some number of operands, and the types on which they are exact, or are not."""
    table = {o: tuple(t for t in types_of(o) if is_exact(o, t) == exact) for o in elementwise(operands)}
    return {opcode: types for opcode, types in table.items() if types}


@cache
def exact(operands: int, element_type: str) -> tuple[str, ...]:
    """Return the opcodes, with some number of operands, that are exact on a type and have it as result."""
    kind = ElementType.parse(element_type)
    table = choices(operands, exact=True)
    return tuple(o for o, types in table.items() if element_type in types and _keeps(o, kind))


def _keeps(opcode: str, kind: ElementType) -> bool:
    return _operation(opcode)().result_type(kind) is kind


@cache
def reducers(element_type: str) -> tuple[str, ...]:
    """Return the opcodes of associative operations on a type."""
    kind = ElementType.parse(element_type)
    return tuple(o for o in elementwise(2) if element_type in types_of(o) and _is_associative(o, kind))


def _is_associative(opcode: str, kind: ElementType) -> bool:
    operation = _operation(opcode)
    return operation.commutative and (kind.is_complex or operation().neutral_element(kind) is not None)


@cache
def arithmetic(element_type: str) -> tuple[str, ...]:
    """Return the opcodes of associative operations and `subtract` that are defined for all operands."""
    differences = (Subtract.opcode,) if element_type in types_of(Subtract.opcode) else ()
    return (*reducers(element_type), *differences)


def rounds(opcode: str, element_type: str) -> bool:
    """Return whether an associative operation rounds, so that its result depends on the order."""
    kind = ElementType.parse(element_type)
    return (kind.is_floating or kind.is_complex) and not _operation(opcode).idempotent


def neutral(opcode: str, element_type: str) -> Array:
    """Return the neutral element of an associative operation; for sums 0, not -0, as programs write it."""
    kind = ElementType.parse(element_type)
    value = _operation(opcode)().neutral_element(kind.component if kind.is_complex else kind)
    with np.errstate(all="ignore"):
        return np.array(value or 0).astype(kind.numpy_dtype)
