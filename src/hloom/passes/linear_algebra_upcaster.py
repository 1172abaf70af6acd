"""linear-algebra-upcaster: factors and solves narrow floats in f32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.passes.writing import Writer
from hloom.shape.element_type import F32


@dataclass(frozen=True, slots=True)
class LinearAlgebraUpcaster:
    """``bf16 cholesky(a)`` → ``convert(cholesky(convert(a)))``; triangular-solve too."""

    name: ClassVar[str] = "linear-algebra-upcaster"

    def run(self, module: HloModule) -> bool:
        """Rewrite every one of floats narrower than f32."""
        changed = False
        for computation in module.computations:
            for instruction in computation:
                if instruction.opcode in ("cholesky", "triangular-solve") and is_narrow(instruction):
                    upcast(instruction)
                    changed = True
        return changed


def is_narrow(instruction: HloInstruction) -> bool:
    """Whether the elements are floats of fewer than 32 bits."""
    kind = instruction.shape.element_type
    return kind.is_floating and kind.bits < 32 and instruction.shape.is_static


def upcast(instruction: HloInstruction) -> None:
    """Replace one instruction."""
    writer = Writer(instruction)
    operands = [writer.convert(operand, F32) for operand in instruction.operands]
    name = writer.module.unique_name(instruction.name)
    shape = instruction.shape.without_layout().with_element_type(F32)
    wide = writer.computation.add(instruction.clone(name, operands=operands, shape=shape))
    writer.replace(writer.convert(wide, instruction.shape.element_type))
