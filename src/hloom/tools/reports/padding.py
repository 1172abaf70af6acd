"""Padding of tiled layouts: bytes of arrays that hold no element."""

from __future__ import annotations

from collections.abc import Iterable

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.records import dataclass
from hloom.shape.shape import Shape


@dataclass(frozen=True, slots=True)
class PaddedArray:
    """An array whose layout has padding.

    Attributes:
        name: of the instruction.
        shape: of the array, which may be an element of a tuple.
        size: bytes in memory, with padding.
        padding: bytes of padding.
    """

    name: str
    shape: Shape
    size: int
    padding: int


def padded_arrays(module: HloModule) -> list[PaddedArray]:
    """Return the arrays with padding that a module's instructions write to memory, the most wasteful first.

    Values inside fusions are not in memory. Tuples, their elements, and parameters of loops are views of
    arrays that are counted elsewhere.
    """
    inside = _inside(module)
    arrays = [
        PaddedArray(i.name, shape, size, size - dense)
        for c in module.computations
        if c not in inside
        for i in c.instructions
        if not _is_view(i) and (i.opcode != "parameter" or c is module.entry)
        for shape in _arrays(i.shape)
        for size, dense in [(shape.byte_size, shape.unpadded_byte_size)]
        if size > dense
    ]
    return sorted(arrays, key=lambda array: -array.padding)


def _is_view(i: HloInstruction) -> bool:
    """Return whether an instruction writes no memory itself: a call, or an operation that moves no bytes."""
    moves = i.operation.traffic(i.shape, *(o.shape for o in i.operands))
    return i.operation.calls_program or (bool(i.operands) and not moves)


def _inside(module: HloModule) -> set[HloComputation]:
    """Return the computations whose values are not in memory, such as fusions and reducers."""
    return {c for i in module.instructions() if not i.operation.calls_program for c in i.called_computations}


def _arrays(shape: Shape) -> Iterable[Shape]:
    return [leaf for _, leaf in shape.leaves() if leaf.is_array and not leaf.is_unbounded]
