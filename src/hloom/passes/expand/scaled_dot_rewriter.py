"""scaled-dot-rewriter: rewrite scaled dots as multiplications by the scales and a dot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.analysis.instructions import operation_of
from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import Multiply
from hloom.operations.contraction import Dot, ScaledDot
from hloom.passes.op_expander import OpExpander
from hloom.passes.registry import register
from hloom.passes.writing import Writer
from hloom.shape.element_type import F32, F64, ElementType


@register
@dataclass(frozen=True, slots=True)
class ScaledDotRewriter(OpExpander):
    """``scaled-dot(a, s, b, t)`` → ``dot(a * broadcast(s), b * broadcast(t))`` in f32, of f64 in f64."""

    name: ClassVar[str] = "scaled-dot-rewriter"

    def matches(self, i: HloInstruction) -> bool:
        """Return whether an instruction is a static scaled-dot."""
        return _is_static_scaled_dot(i)

    def expand(self, i: HloInstruction) -> None:
        """Scale the operands of a dot."""
        rewrite(i)


def _is_static_scaled_dot(i: HloInstruction) -> bool:
    shapes = (i.shape, *(o.shape for o in i.operands))
    return isinstance(i.operation, ScaledDot) and all(shape.is_static for shape in shapes)


def rewrite(instruction: HloInstruction) -> None:
    """Replace one scaled dot."""
    writer = Writer(instruction)
    operation = operation_of(instruction, ScaledDot)
    lhs, lhs_scale, rhs, rhs_scale = instruction.operands
    types = (instruction.shape.element_type, *(o.shape.element_type for o in instruction.operands))
    kind = F64 if F64 in types else F32
    dot = writer.op(
        Dot(
            lhs_batch_dims=operation.lhs_batch_dims,
            lhs_contracting_dims=operation.lhs_contracting_dims,
            rhs_batch_dims=operation.rhs_batch_dims,
            rhs_contracting_dims=operation.rhs_contracting_dims,
        ),
        _scaled(writer, lhs, lhs_scale, kind),
        _scaled(writer, rhs, rhs_scale, kind),
        shape=instruction.shape.without_layout().with_element_type(kind),
    )
    writer.replace(writer.convert(dot, instruction.shape.element_type))


def _scaled(
    writer: Writer, operand: HloInstruction, scale: HloInstruction, kind: ElementType
) -> HloInstruction:
    """Multiply every element by the scale of its block; a scalar scale stands for 1."""
    values, sizes = writer.convert(operand, kind), operand.shape.dimensions
    if scale.shape.is_scalar:
        return values
    factors = writer.convert(scale, kind)
    blocks = scale.shape.dimensions
    split = [
        n for size, count in zip(sizes, blocks, strict=True) for n in (count, size // count if count else 0)
    ]
    spread = writer.broadcast(factors, split, list(range(0, len(split), 2)))
    return writer.op(Multiply(), values, writer.reshape(spread, sizes))
