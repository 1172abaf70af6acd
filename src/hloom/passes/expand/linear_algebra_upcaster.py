"""linear-algebra-upcaster: compute factorizations and solves in a wider type."""

from __future__ import annotations

from hloom.ir.instruction import HloInstruction
from hloom.operations.linear_algebra import Cholesky, TriangularSolve
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer
from hloom.shape.element_type import C128, F32, F64, ElementType


class LinearAlgebraUpcaster(OpExpander, name="linear-algebra-upcaster", of=(Cholesky, TriangularSolve)):
    """``bf16 cholesky(a)`` → ``convert(cholesky(convert(a)))``; triangular-solve too.

    Floats narrower than f32 are computed in f32. Small matrices are computed in f64, where the additional
    cost is negligible and the result is rounded once.

    Attributes:
        small: maximum number of rows of a matrix that is computed in f64.
    """

    small: int = 16

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        kind, wide = i.shape.element_type, self.wide_type(i)
        if not i.shape.is_static or wide is kind:
            return None
        operands = [w.convert(operand, wide) for operand in i.operands]
        return w.convert(w.copy(i, operands, i.shape.without_layout().with_element_type(wide)), kind)

    def wide_type(self, instruction: HloInstruction) -> ElementType:
        """Return the type in which an instruction is computed."""
        kind = instruction.shape.element_type
        if instruction.operands[0].shape.dimensions[-1] <= self.small:
            return C128 if kind.is_complex else F64
        return F32 if kind.is_floating and kind.bits < 32 else kind
