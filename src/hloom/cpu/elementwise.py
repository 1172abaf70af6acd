"""Elementwise operations on register values, scalars and vectors alike.

One small function per opcode. Floats narrower than f32 arrive as f32 values, and the result is rounded once;
integers narrower than a byte arrive in a byte, and the result is wrapped. Nothing traps: LLVM's undefined
cases (division by zero, over-wide shifts, float to integer out of range) are handled before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from hloom.cpu.llvm_text import Value
from hloom.cpu.types import Element, round_to
from hloom.errors import HloError
from hloom.ir.operation import Operation
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType


class Context:
    """What a lowering may ask: the operation's attributes and the element types."""

    __slots__ = ("operand_types", "operation", "result_type")

    def __init__(
        self, operation: Operation, operand_types: Sequence[ElementType], result_type: ElementType
    ) -> None:
        self.operation: Any = operation
        self.operand_types = operand_types
        self.result_type = result_type


Lowering: TypeAlias = Callable[..., Element]
LOWERINGS: Final[dict[str, Lowering]] = {}
"""opcode -> function(context, *operands) -> element."""


def lowering(*opcodes: str) -> Callable[[Lowering], Lowering]:
    """Register the lowering of some opcodes."""

    def register(function: Lowering) -> Lowering:
        for opcode in opcodes:
            LOWERINGS[opcode] = function
        return function

    return register


def lower_elementwise(
    operation: Operation, operand_types: Sequence[ElementType], result_type: ElementType, operands: Sequence[Element]
) -> Element:
    """The result of an elementwise operation, in the registers' form of its element type."""
    rule = LOWERINGS.get(operation.opcode)
    if rule is None:
        raise HloError(f"{operation.opcode} has no lowering", rule="cpu.lowering-missing")
    result = rule(Context(operation, operand_types, result_type), *operands)
    if isinstance(result, tuple):
        return result
    if result_type.is_floating and result_type.bits < 32:
        return round_to(result, result_type)
    if result_type.is_integer and result_type.bits < 8:
        from hloom.cpu.movement import wrap

        return wrap(result, result_type)
    return result


@lowering("add")
def _add(c: Context, a: Element, b: Element) -> Element:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return a[0] + b[0], a[1] + b[1]
    assert isinstance(a, Value) and isinstance(b, Value)
    return a | b if c.result_type is et.PRED else a + b


@lowering("subtract")
def _subtract(c: Context, a: Element, b: Element) -> Element:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return a[0] - b[0], a[1] - b[1]
    assert isinstance(a, Value) and isinstance(b, Value)
    return a - b


@lowering("multiply")
def _multiply(c: Context, a: Element, b: Element) -> Element:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]
    assert isinstance(a, Value) and isinstance(b, Value)
    return a & b if c.result_type is et.PRED else a * b


@lowering("convert")
def _convert(c: Context, a: Element) -> Element:
    assert isinstance(a, Value)
    return a.compare("ne", 0)
