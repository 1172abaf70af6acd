"""topk-decomposer: expand topk into a sort and slices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.analysis.instructions import operation_of
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import SliceDimension
from hloom.operations.comparison import Compare
from hloom.operations.movement import Slice
from hloom.operations.sorting import Sort, TopK
from hloom.operations.structure import GetTupleElement, Iota, Parameter, Tuple
from hloom.passes.op_expander import OpExpander
from hloom.passes.registry import register
from hloom.passes.writing import Writer
from hloom.shape.element_type import PRED, S32, ElementType
from hloom.shape.shape import Shape


@register
@dataclass(frozen=True, slots=True)
class TopkDecomposer(OpExpander):
    """``topk(x)`` → ``slice(sort(x, iota))`` for wide element types or large k.

    Attributes:
        bits: maximum element width in bits of a topk that is kept,
        most: and its maximum k.
    """

    bits: int = 32
    most: int = 2048
    name: ClassVar[str] = "topk-decomposer"

    def matches(self, i: HloInstruction) -> bool:
        """Return whether an instruction is a large topk."""
        return isinstance(i.operation, TopK) and self.is_large(i)

    def expand(self, i: HloInstruction) -> None:
        """Sort and slice."""
        decompose(i)

    def is_large(self, instruction: HloInstruction) -> bool:
        """Return whether a topk exceeds the limits and is to be decomposed."""
        operand = instruction.operands[0].shape
        operation = operation_of(instruction, TopK)
        large = operand.element_type.bits > self.bits or operation.k > self.most
        return operand.is_static and large


def decompose(instruction: HloInstruction) -> None:
    """Replace one topk."""
    writer = Writer(instruction)
    operation = operation_of(instruction, TopK)
    (x,) = instruction.operands
    shape = x.shape.without_layout()
    dimension = shape.rank - 1
    numbers = writer.op(Iota(iota_dimension=dimension), shape=Shape(S32, shape.dimensions))
    comparator = _comparator(writer, shape.element_type, "GT" if operation.largest else "LT")
    pair = writer.op(Sort(dimensions=(dimension,), is_stable=True), x, numbers, computations=[comparator])
    parts: list[HloInstruction] = []
    for number in range(2):
        sorted_array = writer.op(GetTupleElement(index=number), pair)
        sizes = (*shape.dimensions[:-1], operation.k)
        prefix = tuple(SliceDimension(0, size) for size in sizes)
        parts.append(writer.op(Slice(slice=prefix), sorted_array))
    writer.replace(writer.op(Tuple(), *parts))


def _comparator(writer: Writer, kind: ElementType, direction: str) -> HloComputation:
    """Return a comparator of (value, index) pairs by the total order of the values."""
    computation = HloComputation(writer.module.unique_name("compare"))
    parameters = [
        computation.add(
            HloInstruction(
                writer.module.unique_name("p"),
                Parameter(parameter_number=number),
                Shape(kind if number < 2 else S32),
            )
        )
        for number in range(4)
    ]
    total = {"comparison_type": "TOTALORDER"} if kind.is_floating else {}
    operation = Compare(direction=direction, **total)
    root = HloInstruction(writer.module.unique_name("compare"), operation, Shape(PRED), parameters[:2])
    computation.add(root, root=True)
    return writer.module.add(computation)
