"""result-caster: compute products in the type of their operands, then convert to the stated type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.ir.instruction import HloInstruction
from hloom.operations.contraction import Dot, RaggedDot, joint_precision
from hloom.operations.convolution import Convolution
from hloom.passes.op_expander import OpExpander
from hloom.passes.registry import register
from hloom.passes.writing import Writer
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType


@register
@dataclass(frozen=True, slots=True)
class ResultCaster(OpExpander):
    """``f32 dot(f64 a, f64 b)`` → ``convert(f64 dot(a, b))``; ragged dots and convolutions too.

    Also ``s32 dot(f32 a, f32 b)``: floats are summed as floats, then converted.
    """

    name: ClassVar[str] = "result-caster"

    def matches(self, i: HloInstruction) -> bool:
        """Return whether an instruction is a static product that rounds early."""
        is_product = isinstance(i.operation, Dot | RaggedDot | Convolution)
        return is_product and i.shape.is_static and _rounds(i)

    def expand(self, i: HloInstruction) -> None:
        """Compute in the natural type and convert."""
        _cast(i, natural_type(i))


def natural_type(instruction: HloInstruction) -> ElementType:
    """Return the joint precision of the operands; at least f32 for floats with an integer result."""
    lhs, rhs = (o.shape.element_type for o in instruction.operands[:2])
    natural = joint_precision(lhs, rhs)
    narrow = natural.is_floating and natural.bits < et.F32.bits
    return et.F32 if narrow and instruction.shape.element_type.is_integer else natural


def _rounds(instruction: HloInstruction) -> bool:
    natural, declared = natural_type(instruction), instruction.shape.element_type
    if natural.is_complex != declared.is_complex or not (natural.is_floating or natural.is_complex):
        return False
    return declared.is_integer or natural.component.bits > max(declared.component.bits, 32)


def _cast(instruction: HloInstruction, natural: ElementType) -> None:
    writer = Writer(instruction)
    shape = instruction.shape.without_layout().with_element_type(natural)
    wide = instruction.clone(writer.module.unique_name(instruction.name), shape=shape)
    writer.replace(writer.convert(writer.computation.add(wide), instruction.shape.element_type))
