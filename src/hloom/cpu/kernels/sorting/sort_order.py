"""Recognition of comparators that order by keys, and conversion of the keys to unsigned integers.

A comparator ``key(a) < key(b)`` orders by ``key`` for any expression ``key``; a lexicographic comparator
orders by several keys. Floats are mapped through their bits to integers of the same order: under the total
order every bit pattern has its own integer; under the partial order -0 has that of 0, and every NaN the
greatest integer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hloom.analysis.instructions import operation_of
from hloom.codegen.bits import bits_of, from_bits
from hloom.codegen.elements import Elements
from hloom.codegen.llvm import F32, I8, I16, I32, I64, Type, Value, make_type
from hloom.codegen.types import Element, storage_type
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.operations.comparison import Compare
from hloom.operations.structure import Constant, Parameter, parameter_number
from hloom.records import dataclass
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType


@dataclass(frozen=True, slots=True)
class SortKey:
    """A sort key: a number computed from the elements of all operands at one position.

    Attributes:
        computation: computes the key from the elements of all operands.
        element_type: type of the key.
        total: whether floats are compared in the total order, in which all bit patterns differ.
        descending: whether greater keys come first.
    """

    computation: HloComputation
    element_type: ElementType
    total: bool
    descending: bool

    @property
    def bits(self) -> int:
        """Return the width of the unsigned integer that represents the key: 8, 16, 32 or 64."""
        kind = self.element_type
        if kind.is_floating and kind.bits < 16:
            return 32
        return max(8, kind.bits)

    def integer(self, e: Elements, arguments: Sequence[Element]) -> Value:
        """Emit the key as an unsigned integer; elements with smaller integers come first in the sort.

        ``arguments`` are the elements of all operands at one position.
        """
        (value,) = e.apply(self.computation, arguments)
        assert isinstance(value, Value)
        key = ordered(value, self.element_type, total=self.total)
        return ~key if self.descending else key

    @property
    def copies_element(self) -> bool:
        """Return whether the key is always the unchanged element of a single operand, or a constant.

        This holds if the computation consists of comparisons and selects only.
        """
        steps = self.computation.instructions
        return len(self.computation.parameters) == 1 and all(
            s.opcode in ("parameter", "constant", "select", "compare") for s in steps
        )

    @property
    def ambiguous_values(self) -> list[float]:
        """Return the values of the key that elements with different bits may have, if the key is a `choice`.

        They are the computation's constants and, for floats in the partial order, 0 and NaN.
        """
        kind, number = self.element_type, float if self.element_type.is_floating else int
        steps = [s.operation for s in self.computation.instructions if s.shape.element_type is kind]
        constants = [number(o.literal.array) for o in steps if isinstance(o, Constant)]
        return [*constants, *((0.0, math.nan) if kind.is_floating and not self.total else ())]


def ordered(value: Value, kind: ElementType, *, total: bool = True) -> Value:
    """Emit an unsigned integer for a number, such that the integers compare like the numbers.

    ``value`` is the number, a register value of type ``kind``. If ``total``, floats are in the total order;
    else zeros of both signs give the same integer, and so do all NaNs.
    """
    if not kind.is_floating:
        bits = value.cast("zext", I8) if kind is et.PRED else value
        return bits ^ _sign(bits) if kind.is_signed else bits
    if not total:
        value = value.compare("oeq", 0.0).select(0.0, value)
        value = value.compare("uno", value).select(float("nan"), value)
    bits = value.bitcast(I32.vector(value.type.lanes)) if _held_wide(kind) else bits_of(value, kind)
    return bits ^ ((bits >> (bits.type.bits - 1)) | _sign(bits))


def restored(key: Value, kind: ElementType) -> Value:
    """Emit the inverse of `ordered` in the total order: the number, in its storage type, from the integer."""
    if kind.is_floating:
        bits = key ^ ((~key >> (key.type.bits - 1)) | _sign(key))
        if _held_wide(kind):
            from hloom.codegen.types import to_storage

            return to_storage(bits.bitcast(F32.vector(key.type.lanes)), kind)
        stored = storage_type(kind)
        return bits.bitcast(stored.vector(key.type.lanes)) if stored.is_float else bits
    return key ^ _sign(key) if kind.is_signed else key


def _held_wide(kind: ElementType) -> bool:
    """Return whether floats of type ``kind`` are compared as f32 values instead of by their bits."""
    return kind.bits < 16


def _sign(bits: Value) -> int:
    return -(1 << (bits.type.bits - 1))


def value_of(stored: Value, kind: ElementType) -> Value:
    """Emit the conversion of an element of type ``kind`` from its storage type to its register type."""
    width = {8: I8, 16: I16, 32: I32, 64: I64}[max(8, kind.bits)]
    bits = stored.bitcast(width.vector(stored.type.lanes)) if stored.type.is_float else stored
    return from_bits(bits, kind)


# -- recognition


def sort_keys(comparator: HloComputation) -> list[SortKey] | None:
    """Return the keys that a comparator compares in lexicographic order, most significant first.

    Returns None for a comparator that is not recognized as such.
    """
    return _Recognition(comparator).keys(comparator.root)


class _Recognition:
    """Recognizes sort keys in the expression that a comparator computes."""

    def __init__(self, comparator: HloComputation) -> None:
        self.comparator = comparator

    def keys(self, root: HloInstruction) -> list[SortKey] | None:
        """Return the keys that the expression ``root`` compares, most significant first.

        It must compare one key, or one key and in case of ties further keys; returns None for other
        expressions.
        """
        single = self.comparison(root)
        if single is not None:
            return [single]
        for first, equal, alternative in _alternatives(root):
            key = self.comparison(first)
            if key is None or not self.is_equality(equal, first):
                continue
            others = self.keys(alternative)
            if others is not None:
                return [key, *others]
        return None

    def comparison(self, root: HloInstruction) -> SortKey | None:
        """Return the key if ``root`` is ``key(a) < key(b)`` or ``key(a) > key(b)``; None if it is neither."""
        operation = root.operation
        if not isinstance(operation, Compare) or operation.direction not in ("LT", "GT"):
            return None
        first, second = root.operands
        descending = operation.direction == "GT"
        kind = first.shape.element_type
        if not _mirrored(first, second, 0):
            if not _mirrored(first, second, 1):
                return None
            first, descending = second, not descending
        if kind.is_complex or not first.shape.is_array:
            return None
        total = operation.comparison_type == "TOTALORDER"
        return SortKey(self.key(first), kind, total, descending)

    def is_equality(self, equal: HloInstruction, first: HloInstruction) -> bool:
        """Return whether ``equal`` tests for equality the two keys that the comparison ``first`` compares."""
        if not isinstance(equal.operation, Compare) or equal.operation.direction != "EQ":
            return False
        if equal.operation.comparison_type != operation_of(first, Compare).comparison_type:
            return False
        a, b = first.operands
        c, d = equal.operands
        return (_same(a, c) and _same(b, d)) or (_same(a, d) and _same(b, c))

    def key(self, root: HloInstruction) -> HloComputation:
        """Return a computation of the expression ``root`` with one parameter for each operand of the sort.

        The comparator has a pair of parameters for each operand; ``root`` reads at most one of each pair.
        """
        computation = HloComputation("key")
        parameters = self.comparator.parameters
        copies: dict[HloInstruction, HloInstruction] = {}
        for number in range(len(parameters) // 2):
            copy = HloInstruction(
                f"p{number}", Parameter(parameter_number=number), parameters[2 * number].shape
            )
            copies[parameters[2 * number]] = copies[parameters[2 * number + 1]] = computation.add(copy)

        def copied(node: HloInstruction) -> HloInstruction:
            if node not in copies:
                operands = [copied(o) for o in node.operands]
                copies[node] = computation.add(node.clone(operands=operands))
            return copies[node]

        computation.root = copied(root)
        return computation


def _alternatives(root: HloInstruction) -> list[tuple[HloInstruction, HloInstruction, HloInstruction]]:
    """Return the ways to read ``root`` as ``first or (equal and rest)``, or as ``rest if equal else first``.

    Each is a triple of instructions (first, equal, rest). There may be several since ``or`` and ``and``
    commute.
    """
    alternatives: list[tuple[HloInstruction, HloInstruction, HloInstruction]] = []
    if root.opcode == "or":
        for first, both in (root.operands, reversed(root.operands)):
            if both.opcode == "and":
                a, b = both.operands
                alternatives += [(first, a, b), (first, b, a)]
    elif root.opcode == "select":
        equal, alternative, first = root.operands
        alternatives.append((first, equal, alternative))
    return alternatives


def _mirrored(a: HloInstruction, b: HloInstruction, side: int) -> bool:
    """Return whether ``a`` and ``b`` apply one expression to the two elements that a comparator compares.

    ``side`` is the index, 0 or 1, of the element that ``a`` must read; ``b`` must read the other element.
    """

    def at_end(a: HloInstruction, b: HloInstruction) -> bool:
        here, there = parameter_number(a), parameter_number(b)
        return here // 2 == there // 2 and here % 2 == side and there % 2 == 1 - side

    return _corresponding(a, b, at_end)


def _same(a: HloInstruction, b: HloInstruction) -> bool:
    """Return whether two expressions are structurally equal and read the same parameters."""
    return _corresponding(a, b, lambda a, b: a is b)


def _corresponding(
    a: HloInstruction, b: HloInstruction, at_end: Callable[[HloInstruction, HloInstruction], bool]
) -> bool:
    """Return whether two expressions have the same structure, down to their parameters.

    ``at_end(x, y)`` must return true for each pair of corresponding parameters.
    """
    seen: set[tuple[HloInstruction, HloInstruction]] = set()
    waiting = [(a, b)]
    while waiting:
        pair = waiting.pop()
        if pair in seen:
            continue
        seen.add(pair)
        first, second = pair
        if not _alike(first, second):
            return False
        if first.opcode == "parameter" and not at_end(first, second):
            return False
        waiting.extend(zip(first.operands, second.operands, strict=True))
    return True


def _alike(a: HloInstruction, b: HloInstruction) -> bool:
    if a.opcode != b.opcode or a.shape != b.shape or len(a.operands) != len(b.operands):
        return False
    if a.called_computations or b.called_computations:
        return False
    if isinstance(a.operation, Constant) and isinstance(b.operation, Constant):
        return a.operation.literal.array.tobytes() == b.operation.literal.array.tobytes()
    return isinstance(a.operation, Parameter) or a.operation == b.operation


def integer_type(bits: int) -> Type:
    """Return the LLVM integer type of width ``bits``."""
    return make_type(f"i{bits}")
