"""result-caster: compute products in the type of their operands, then convert to the stated type."""

from __future__ import annotations

from hloom.ir.instruction import HloInstruction
from hloom.operations.contraction import Dot, RaggedDot, joint_precision
from hloom.operations.convolution import Convolution
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer
from hloom.shape.element_type import F32, ElementType


class ResultCaster(OpExpander, name="result-caster", of=(Dot, RaggedDot, Convolution)):
    """``f32 dot(f64 a, f64 b)`` → ``convert(f64 dot(a, b))``; ragged dots and convolutions too.

    Also ``s32 dot(f32 a, f32 b)``: floats are summed as floats, then converted.
    """

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        natural, declared = natural_type(i), i.shape.element_type
        if not i.shape.is_static or not _rounds_early(natural, declared):
            return None
        wide = w.copy(i, shape=i.shape.without_layout().with_element_type(natural))
        return w.convert(wide, declared)


def natural_type(instruction: HloInstruction) -> ElementType:
    """Return the joint precision of the operands; at least f32 for floats with an integer result."""
    lhs, rhs = (o.shape.element_type for o in instruction.operands[:2])
    natural = joint_precision(lhs, rhs)
    narrow = natural.is_floating and natural.bits < F32.bits
    return F32 if narrow and instruction.shape.element_type.is_integer else natural


def _rounds_early(natural: ElementType, declared: ElementType) -> bool:
    if natural.is_complex != declared.is_complex or not (natural.is_floating or natural.is_complex):
        return False
    return declared.is_integer or natural.component.bits > max(declared.component.bits, 32)
