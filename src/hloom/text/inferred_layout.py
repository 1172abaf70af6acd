"""The layout of a result whose shape is not stated in text.

A shape rule says dimensions and element type. Which layout goes with them is a convention of XLA's parser:
operations that work element by element, and some that only move elements, keep the layout of an operand; all
others give the default layout.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.shape.layout import Layout
from hloom.shape.shape import Shape

_KEEP_OPERAND: Final = frozenset(
    ("copy", "reverse", "fft", "sort", "set-dimension-size", "opt-barrier", "domain")
)
_KEEP_INFERRED: Final = frozenset(("tuple", "get-tuple-element", "call", "while", "conditional"))


def with_inferred_layout(instruction: HloInstruction, inferred: Shape) -> Shape:
    """The inferred shape of an instruction in the layout that XLA's parser gives it."""
    opcode = instruction.opcode
    operands = [operand.shape for operand in instruction.operands]
    if opcode in _KEEP_INFERRED:
        return operands[0] if opcode == "while" else inferred
    if opcode == "transpose" and operands[0].layout is not None:
        permutation: tuple[int, ...] = instruction.operation.dimensions  # type: ignore[attr-defined]
        return inferred.with_layout(_transposed(operands[0].layout, permutation))
    keeps = instruction.operation.elementwise or opcode in _KEEP_OPERAND
    if not keeps or opcode == "map" or not operands:
        return inferred.with_default_layout()
    return _with_layout_of(inferred, operands[0] if len(operands) == 1 else Shape.tuple_(operands))


def _with_layout_of(shape: Shape, source: Shape) -> Shape:
    """``shape`` in the layouts of ``source``: of a tuple each element, of arrays the first one's."""
    if shape.is_tuple:
        if not source.is_tuple or len(source.tuple_shapes) < len(shape.tuple_shapes):
            return shape.with_default_layout()
        return Shape.tuple_(_with_layout_of(s, t) for s, t in zip(shape.tuple_shapes, source.tuple_shapes))
    if source.is_tuple:
        source = source.tuple_shapes[0]
    if not shape.is_array or source.layout is None or source.rank != shape.rank:
        return shape.with_default_layout()
    return shape.with_layout(source.layout)


def _transposed(layout: Layout, permutation: tuple[int, ...]) -> Layout:
    """The layout in which a transposition moves no element."""
    place = {source: number for number, source in enumerate(permutation)}
    order = tuple(place[d] for d in layout.minor_to_major)
    return replace(layout, minor_to_major=order)
