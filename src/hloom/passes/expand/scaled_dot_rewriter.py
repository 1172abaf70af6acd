"""scaled-dot-rewriter: rewrite scaled dots as multiplications by the scales and a dot."""

from __future__ import annotations

from hloom.analysis.instructions import operation_of
from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import Multiply
from hloom.operations.contraction import Dot, ScaledDot
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer
from hloom.shape.element_type import F32, F64, ElementType


class ScaledDotRewriter(OpExpander, name="scaled-dot-rewriter", of=ScaledDot):
    """``scaled-dot(a, s, b, t)`` → ``dot(a * broadcast(s), b * broadcast(t))`` in f32, of f64 in f64."""

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        shapes = [i.shape, *(o.shape for o in i.operands)]
        if not all(shape.is_static for shape in shapes):
            return None
        scaled = operation_of(i, ScaledDot)
        dot = Dot(
            lhs_batch_dims=scaled.lhs_batch_dims,
            lhs_contracting_dims=scaled.lhs_contracting_dims,
            rhs_batch_dims=scaled.rhs_batch_dims,
            rhs_contracting_dims=scaled.rhs_contracting_dims,
        )
        lhs, lhs_scale, rhs, rhs_scale = i.operands
        kind = F64 if F64 in [shape.element_type for shape in shapes] else F32
        factors = _scaled(w, lhs, lhs_scale, kind), _scaled(w, rhs, rhs_scale, kind)
        shape = i.shape.without_layout().with_element_type(kind)
        return w.convert(w.op(dot, *factors, shape=shape), i.shape.element_type)


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
