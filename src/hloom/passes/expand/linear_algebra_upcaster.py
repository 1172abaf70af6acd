"""linear-algebra-upcaster: compute factorizations and solves in a wider type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.ir.instruction import HloInstruction
from hloom.operations.linear_algebra import Cholesky, TriangularSolve
from hloom.passes.op_expander import OpExpander
from hloom.passes.registry import register
from hloom.passes.writing import Writer
from hloom.shape.element_type import C64, C128, F32, F64, ElementType


@register
@dataclass(frozen=True, slots=True)
class LinearAlgebraUpcaster(OpExpander):
    """``bf16 cholesky(a)`` → ``convert(cholesky(convert(a)))``; triangular-solve too.

    Floats narrower than f32 are computed in f32. Small matrices are computed in f64, where the additional
    cost is negligible and the result is rounded once.

    Attributes:
        small: maximum number of rows of a matrix that is computed in f64.
    """

    small: int = 16
    name: ClassVar[str] = "linear-algebra-upcaster"

    def matches(self, i: HloInstruction) -> bool:
        """Return whether an instruction is computed in a wider type than its own."""
        is_solver = isinstance(i.operation, Cholesky | TriangularSolve)
        return is_solver and i.shape.is_static and self.wide_type(i) is not i.shape.element_type

    def expand(self, i: HloInstruction) -> None:
        """Convert operands and result."""
        upcast(i, self.wide_type(i))

    def wide_type(self, instruction: HloInstruction) -> ElementType:
        """Return the type in which an instruction is computed."""
        kind = instruction.shape.element_type
        if instruction.operands[0].shape.dimensions[-1] <= self.small:
            return C128 if kind.is_complex else F64
        return F32 if kind.is_floating and kind.bits < 32 else kind


def upcast(instruction: HloInstruction, wide: ElementType) -> None:
    """Replace one instruction."""
    assert wide in (F32, F64, C64, C128)
    writer = Writer(instruction)
    operands = [writer.convert(operand, wide) for operand in instruction.operands]
    name = writer.module.unique_name(instruction.name)
    shape = instruction.shape.without_layout().with_element_type(wide)
    made = writer.computation.add(instruction.clone(name, operands=operands, shape=shape))
    writer.replace(writer.convert(made, instruction.shape.element_type))
