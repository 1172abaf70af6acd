"""bitcast-expander: expand bitcasts between layouts into transposes and reshapes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.conversion import Bitcast, BitcastConvert
from hloom.operations.movement import Transpose
from hloom.passes.fuel import consume
from hloom.passes.registry import register
from hloom.passes.writing import Writer
from hloom.shape.layout import Layout
from hloom.shape.shape import Shape


@register
@dataclass(frozen=True, slots=True)
class BitcastExpander:
    """``bitcast(x)`` → ``transpose(reshape(bitcast-convert(reshape(transpose(x)))))`` in memory order."""

    name: ClassVar[str] = "bitcast-expander"

    def run(self, module: HloModule) -> bool:
        """Expand every bitcast between plain layouts."""
        changed = False
        for computation in module.computations:
            for instruction in computation:
                possible = isinstance(instruction.operation, Bitcast) and can_expand(instruction)
                if possible and consume(f"%{instruction.name}"):
                    expand(instruction)
                    changed = True
        return changed


def can_expand(instruction: HloInstruction) -> bool:
    """Return whether both layouts only permute the dimensions and elements have no padding bits.

    Or they are the same, tiles included, but for where in the machine the array lies.
    """
    source, result = instruction.operands[0].shape, instruction.shape
    if _is_identity(source, result):
        return True
    if not (_is_plain(source) and _is_plain(result)):
        return False
    if source.element_type is result.element_type:
        return True
    whole = all(s.element_type.bits % 8 == 0 for s in (source, result))
    return whole and not source.element_type.is_complex and not result.element_type.is_complex


def _is_identity(source: Shape, result: Shape) -> bool:
    same = source.element_type is result.element_type and source.dimensions == result.dimensions
    if not same or not source.is_static or source.layout is None or result.layout is None:
        return False
    ours, theirs = (replace(x, memory_space=0, split_configs=()) for x in (source.layout, result.layout))
    return ours == theirs


def _is_plain(shape: Shape) -> bool:
    layout = shape.layout
    if not shape.is_array or not shape.is_static:
        return False
    return layout is None or layout == Layout(layout.minor_to_major, memory_space=layout.memory_space)


def expand(instruction: HloInstruction) -> None:
    """Replace one bitcast."""
    writer = Writer(instruction)
    (x,) = instruction.operands
    target = instruction.shape
    if _is_identity(x.shape, target):
        writer.replace(x)
        return
    order = _major_to_minor(x.shape)
    if order != tuple(range(x.shape.rank)):
        x = writer.op(Transpose(dimensions=order), x)
    before, after = x.shape.element_type, target.element_type
    if before is not after:
        x = _reinterpreted(writer, writer.reshape(x, [x.shape.element_count]), target)
    order = _major_to_minor(target)
    x = writer.reshape(x, [target.dimensions[d] for d in order])
    if order != tuple(range(target.rank)):
        x = writer.op(Transpose(dimensions=tuple(order.index(d) for d in range(target.rank))), x)
    writer.replace(x)


def _reinterpreted(writer: Writer, x: HloInstruction, target: Shape) -> HloInstruction:
    before, after = x.shape.element_type, target.element_type
    count = math.prod(target.dimensions)
    if before.bits == after.bits:
        return writer.op(BitcastConvert(), x, shape=Shape(after, (count,)))
    if before.bits > after.bits:
        ratio = before.bits // after.bits
        return writer.op(BitcastConvert(), x, shape=Shape(after, (count // ratio, ratio)))
    ratio = after.bits // before.bits
    return writer.op(BitcastConvert(), writer.reshape(x, [count, ratio]), shape=Shape(after, (count,)))


def _major_to_minor(shape: Shape) -> tuple[int, ...]:
    return shape.layout.major_to_minor if shape.layout is not None else tuple(range(shape.rank))
