"""The registry of the lowerings of elementwise operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Final, TypeAlias

from hloom.codegen.registry import enters
from hloom.codegen.types import Element
from hloom.ir.operation import Operation
from hloom.records import dataclass
from hloom.shape.element_type import ElementType


class LoweringContext:
    """The operation with its attributes, and the element types.

    Attributes:
        underflows: whether the result is a product or quotient that is often subnormal.
    """

    __slots__ = ("operand_types", "operation", "result_type", "underflows")

    def __init__(
        self,
        operation: Operation,
        operand_types: Sequence[ElementType],
        result_type: ElementType,
        underflows: bool = False,
    ) -> None:
        self.underflows = underflows
        self.operation = operation
        self.operand_types = operand_types
        self.result_type = result_type

    @property
    def kind(self) -> ElementType:
        """Element type of the last operand, which is that of all operands except the pred of a select."""
        return self.operand_types[-1]


Lower: TypeAlias = Callable[..., Element]


@dataclass(frozen=True, slots=True)
class Lowering:
    """The lowering of an operation.

    Attributes:
        lower: function(context, *operands) -> element.
        exact: results are values of the operands' type without rounding or wrapping.
    """

    lower: Lower
    exact: bool


LOWERINGS: Final[dict[str, Lowering]] = {}
"""The lowerings of elementwise operations, by opcode."""


def lowering(
    *opcodes: str, exact: bool = False, of_complex: Callable[..., Element] | None = None
) -> Callable[[Lower], Lower]:
    """Register the lowering of some opcodes; ``of_complex(*operands)`` is that of complex numbers."""

    def register(function: Lower) -> Lower:
        @wraps(function)
        def lower(c: LoweringContext, *operands: Element) -> Element:
            if of_complex is not None and isinstance(operands[0], tuple):
                return of_complex(*operands)
            return function(c, *operands)

        enters(LOWERINGS, "a lowering", *opcodes)(Lowering(function if of_complex is None else lower, exact))
        return function

    return register
