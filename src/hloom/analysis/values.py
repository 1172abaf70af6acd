"""Known properties of values and types: uniform constants, affine functions of indices, absence of -0 ..."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

import numpy as np

from hloom.analysis.instructions import splat
from hloom.analysis.purity import is_free
from hloom.ir.affine import Index, Indices, delinearize, linearize
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.operations.arithmetic import Add, Multiply, Subtract
from hloom.operations.conversion import BitcastConvert, Convert, Copy
from hloom.operations.movement import Broadcast, Concatenate, Transpose
from hloom.operations.reduction import Reduce
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Constant, Iota
from hloom.operations.transcendental import SquareRoot
from hloom.shape.element_type import BF16, F8E8M0FNU, F16, F32, F64, ElementType
from hloom.shape.float_format import float_format

_IEEE: Final = frozenset((BF16, F16, F32, F64))
"""Types with infinities, NaN, both zeros and subnormals."""


def number(i: HloInstruction) -> float | int | None:
    """Return the value of every element as a Python number, for real types; None if unknown."""
    value = splat(i)
    if value is None or value.dtype.kind == "c":
        return None
    kind = i.shape.element_type
    return int(value) if kind.is_integer or kind.is_predicate else float(value)


def is_cheap_constant(i: HloInstruction) -> bool:
    """Return whether a value is cheap to recompute: a scalar constant, its broadcast, or an iota."""
    while i.operation.scalar_identity and is_free(i):
        i = i.operands[0]
    return isinstance(i.operation, Iota) or (
        isinstance(i.operation, Constant) and i.shape.is_array and not i.shape.rank
    )


def start_numbers(indices: Sequence[HloInstruction], limits: Sequence[int]) -> list[int] | None:
    """Return constant start indices, clamped to [0, limit]; None if one is not constant."""
    if len(indices) != len(limits):
        return None
    starts: list[int] = []
    for index, limit in zip(indices, limits, strict=True):
        value = 0 if not limit else number(index)
        if value is None:
            return None
        starts.append(min(max(int(value), 0), limit))
    return starts


def is_all(i: HloInstruction, wanted: float) -> bool:
    """Return whether every element is this number; 0.0 and -0.0 are distinguished."""
    value = number(i)
    return value == wanted and (value != 0 or _sign(value) == _sign(wanted))


def _sign(value: float) -> bool:
    return bool(np.signbit(value)) if isinstance(value, float) else False


def uniform(i: HloInstruction) -> bool:
    """Return whether operands and result have one element type; HLO allows mixed floating-point types."""
    kind = i.shape.element_type
    return all(o.shape.element_type is kind for o in i.operands)


def is_ieee(kind: ElementType) -> bool:
    """Return whether a type has infinities, NaN, both zeros and subnormals."""
    return kind in _IEEE


def is_finite(i: HloInstruction, depth: int = 6) -> bool:
    """Return whether no element is infinite or NaN, as far as the type or constants tell."""
    kind = i.shape.element_type
    if not kind.is_complex and not kind.is_floating:
        return True
    if kind.is_floating and not (float_format(kind).has_infinity or float_format(kind).has_nan):
        return True
    if isinstance(i.operation, Constant):
        literal = i.operation.literal
        return (
            not literal.is_elided and not literal.shape.is_dynamic and bool(np.isfinite(literal.array).all())
        )
    sources = i.operation.element_sources(len(i.operands)) if depth else ()
    return bool(sources) and all(is_finite(i.operands[n], depth - 1) for n in sources)


def has_sign(kind: ElementType) -> bool:
    """Return whether negation is exact: true of every type but the unsigned float f8e8m0fnu."""
    return kind is not F8E8M0FNU


@cache
def holds(wide: ElementType, narrow: ElementType) -> bool:
    """Return whether a type represents every value of another, including infinities, NaN and both zeros."""
    if wide is narrow:
        return True
    if narrow.is_complex:
        return wide.is_complex and wide.bits > narrow.bits
    if wide.is_complex:
        return holds(wide.component, narrow)
    if wide.is_predicate:
        return False
    if narrow.is_predicate:
        return wide.bits > 1 or wide.is_unsigned
    if wide.is_integer:
        if not narrow.is_integer:
            return False
        return narrow.bits + (narrow.is_unsigned and wide.is_signed) <= wide.bits and (
            wide.is_signed or narrow.is_unsigned
        )
    if wide not in _IEEE:
        return False
    target = float_format(wide)
    if narrow.is_integer:
        bits = narrow.bits - narrow.is_signed
        return bits <= target.mantissa_bits + 1 and bits <= target.largest_exponent
    source = float_format(narrow)
    return (
        source.mantissa_bits <= target.mantissa_bits
        and source.largest_exponent <= target.largest_exponent
        and source.smallest_exponent - source.mantissa_bits >= target.smallest_exponent - target.mantissa_bits
    )


def has_no_negative_zero(
    i: HloInstruction, depth: int = 6, known: Callable[[HloInstruction, int], bool] = lambda _, __: False
) -> bool:
    """Return whether no element is -0, within ``depth`` operations; a sum is -0 only if both terms are.

    ``known`` tells of other instructions whether they have none, also within a depth.
    """
    if not i.shape.is_array or not i.shape.element_type.is_floating:
        return i.shape.is_array and not i.shape.element_type.is_complex
    if depth == 0:
        return False
    if known(i, depth):
        return True
    x = i.operands
    match i.operation:
        case Constant():
            value = splat(i)
            return value is not None and not (float(value) == 0 and np.signbit(float(value)))
        case operation if operation.never_negative_zero:
            return True
        case Convert():
            return not x[0].shape.element_type.is_floating
        case Multiply():
            return x[0] is x[1]
        case Add():
            return any(has_no_negative_zero(o, depth - 1, known) for o in x) and uniform(i)
        case Reduce():
            return isinstance(combiner(i), Add) and has_no_negative_zero(x[1], depth - 1, known)
        case SquareRoot():
            return has_no_negative_zero(x[0], depth - 1, known)
        case operation:
            sources = operation.element_sources(len(x))
            return bool(sources) and all(has_no_negative_zero(x[n], depth - 1, known) for n in sources)


def combiner(i: HloInstruction) -> Operation | None:
    """Return the commutative operation by which a reduction combines two numbers of its own type.

    None if the computation contains any other operation or a conversion.
    """
    if len(i.called_computations) != 1 or len(i.operands) != 2:
        return None
    computation = i.called_computations[0]
    root = computation.root
    if len(computation) != 3 or len(root.operands) != 2 or not root.operation.elementwise:
        return None
    if root.operands[0] is root.operands[1] or any(o not in computation.parameters for o in root.operands):
        return None
    kind = i.shape.element_type if i.shape.is_array else None
    types = [x.shape.element_type for x in (*computation.instructions, *i.operands)]
    if any(t is not kind for t in types) or not root.operation.commutative:
        return None
    return root.operation


def is_elementwise_bitcast(i: HloInstruction) -> bool:
    """Return whether an instruction reads the bits of each element as a type of the same width."""
    return (
        isinstance(i.operation, BitcastConvert)
        and i.shape.element_type.bits == i.operands[0].shape.element_type.bits
    )


# -- integers that are affine functions of their index, such as iota + 3 * iota
#
# Indices of gathers are often computed from iotas: rows of a table of overlapping windows, permuted columns.
# A kernel that knows where such an index points reads whole vectors in place of single elements.


def affine_position(i: HloInstruction, indices: Indices, extent: int) -> Index | None:
    """Return the element of an integer array at ``indices``, if it is affine in them and in [0, extent)."""
    if not i.shape.is_static:
        return None
    value = affine_value(i, indices)
    if value is None or not _fits(value, i) or value.minimum() < 0 or value.maximum() >= extent:
        return None
    return value


def affine_value(i: HloInstruction, indices: Indices) -> Index | None:
    """Return the element of an integer array at ``indices``, modulo its type, if it is affine in them."""
    operation = i.operation
    if not i.shape.element_type.is_integer:
        return None
    constant = number(i)
    if constant is not None:
        return Index(int(constant))
    if isinstance(operation, Iota):
        value = indices[operation.iota_dimension]
        return value if _fits(value, i) else None
    if isinstance(operation, Add | Subtract | Multiply):
        return _combined(i, indices)
    source = _moved(i, indices)
    if source is None:
        return None
    operand, at = source
    value = affine_value(operand, at)
    return value if value is None or not isinstance(operation, Convert) or _fits(value, operand) else None


def _combined(i: HloInstruction, indices: Indices) -> Index | None:
    a, b = (affine_value(operand, indices) for operand in i.operands)
    if a is None or b is None:
        return None
    if isinstance(i.operation, Add):
        return a + b
    if isinstance(i.operation, Subtract):
        return a - b
    if a.is_constant:
        return b * a.constant
    return a * b.constant if b.is_constant else None


def _moved(i: HloInstruction, indices: Indices) -> tuple[HloInstruction, Indices] | None:
    """Return the operand, and its index, of which an operation that moves elements has the element."""
    operation, operand = i.operation, i.operands[0] if i.operands else i
    match operation:
        case Copy() | Convert():
            return operand, indices
        case Broadcast():
            return operand, tuple(indices[d] for d in operation.dimensions)
        case Transpose():
            order = operation.dimensions
            return operand, tuple(indices[order.index(d)] for d in range(len(order)))
        case Reshape():
            at = delinearize(linearize(indices, i.shape.dimensions), operand.shape.dimensions)
            return None if at is None else (operand, at)
        case Concatenate():
            (d,) = operation.dimensions
            return _part(i, d, indices) if indices[d].is_constant else None
        case _:
            return None


def _part(i: HloInstruction, d: int, indices: Indices) -> tuple[HloInstruction, Indices] | None:
    """Return the operand of a concatenation along ``d``, and its index, in which a constant index lies."""
    start = indices[d].constant
    for operand in i.operands:
        if start < operand.shape.dimensions[d]:
            return operand, (*indices[:d], Index(start), *indices[d + 1 :])
        start -= operand.shape.dimensions[d]
    return None


def _fits(value: Index, i: HloInstruction) -> bool:
    """Return whether the type of an array represents all values of an index."""
    least, most = i.shape.element_type.limits
    return least <= value.minimum() and value.maximum() <= most
