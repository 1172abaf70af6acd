"""Result shapes in text: layouts of inferred shapes, and operations whose stated shape is ignored.

A shape rule gives dimensions and element type. The layout follows a convention of XLA's parser: elementwise
operations, and some that only move elements, keep the layout of an operand; all others give the default
layout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.ir.traits import LayoutSource
from hloom.operations.comparison import Select
from hloom.operations.control_flow import While
from hloom.operations.movement import Transpose
from hloom.operations.structure import AddDependency, AfterAll, Constant
from hloom.operations.transfer import Infeed, Outfeed, Recv, RecvDone, Send, SendDone
from hloom.shape.element_type import U32
from hloom.shape.layout import Layout
from hloom.shape.shape import Shape


def inferred_shape(instruction: HloInstruction) -> Shape:
    """Return the shape of an instruction that states none, with the layout that XLA's parser gives it."""
    inferred = instruction.infer_shape()
    operands = [operand.shape for operand in instruction.operands]
    operation = instruction.operation
    match operation:
        case While():
            return operands[0]
        case Transpose(dimensions=permutation) if operands[0].layout is not None:
            return inferred.with_layout(_transposed(operands[0].layout, permutation))
        case Select():
            return _selected(inferred, operands[0], operands[1])
        case _:
            pass
    match operation.layout_source:
        case LayoutSource.INFERRED:
            return inferred
        case LayoutSource.SECOND_OPERAND:
            return _with_layout_of(inferred, operands[1])
        case LayoutSource.OPERANDS if operands:
            return _with_layout_of(inferred, Shape.maybe_tuple(operands))
        case _:
            return inferred.with_default_layout()


def _selected(inferred: Shape, predicate: Shape, on_true: Shape) -> Shape:
    """Return the predicate's layout, unless it is a scalar, with the element size of what is selected."""
    if not inferred.is_array or predicate.layout is None or on_true.layout is None:
        return inferred
    layout = (predicate if predicate.rank == inferred.rank else on_true).layout
    assert layout is not None
    return inferred.with_layout(layout.with_element_size_in_bits(on_true.layout.element_size_in_bits))


def _with_layout_of(shape: Shape, source: Shape) -> Shape:
    """Return ``shape`` with the layouts of ``source``: per tuple element, or from the first of its arrays."""
    if shape.is_tuple:
        if not source.is_tuple or len(source.tuple_shapes) < len(shape.tuple_shapes):
            return shape.with_default_layout()
        return Shape.tuple_(_with_layout_of(s, t) for s, t in zip(shape.tuple_shapes, source.tuple_shapes))
    if source.is_tuple:
        source = source.tuple_shapes[0]
    layout = source.layout
    if not shape.is_array or layout is None or source.rank != shape.rank:
        return shape.with_default_layout()
    if shape.element_type is not source.element_type and layout.element_size_in_bits:
        layout = layout.with_element_size_in_bits(0)
    return shape.with_layout(layout)


def _transposed(layout: Layout, permutation: tuple[int, ...]) -> Layout:
    """Return the layout in which a transposition moves no element."""
    result_dimension = {source: number for number, source in enumerate(permutation)}
    return replace(layout, minor_to_major=tuple(result_dimension[d] for d in layout.minor_to_major))


# -- operations whose shape follows from the operands even if the text states another


def _token(instruction: HloInstruction) -> Shape:
    return Shape.token()


def _operand(instruction: HloInstruction) -> Shape:
    return instruction.operands[0].shape


def _first_and_token(instruction: HloInstruction) -> Shape:
    return Shape.tuple_([instruction.shape.subshape((0,)), Shape.token()])


def _operand_first_and_token(instruction: HloInstruction) -> Shape:
    return Shape.tuple_([instruction.operands[0].shape.subshape((0,)), Shape.token()])


def _send(instruction: HloInstruction) -> Shape:
    return Shape.tuple_([instruction.operands[0].shape, Shape(U32), Shape.token()])


def _recv(instruction: HloInstruction) -> Shape:
    return Shape.tuple_([instruction.shape.subshape((0,)), Shape(U32), Shape.token()])


def _constant(instruction: HloInstruction) -> Shape:
    """Return the static shape of a literal, whose elements have their own size."""

    def of_leaf(shape: Shape) -> Shape:
        if shape.is_tuple:
            return Shape.tuple_(map(of_leaf, shape.tuple_shapes))
        if not shape.is_array or shape.layout is None:
            return shape
        shape = shape.with_layout(shape.layout.with_element_size_in_bits(0))
        return shape.to_static()

    return of_leaf(instruction.shape)


DERIVED: Final[dict[type[Operation], Callable[[HloInstruction], Shape]]] = {
    AddDependency: _operand,
    AfterAll: _token,
    Constant: _constant,
    Infeed: _first_and_token,
    Outfeed: _token,
    Recv: _recv,
    RecvDone: _operand_first_and_token,
    Send: _send,
    SendDone: _token,
}
"""The shape that XLA gives an instruction regardless of its text; raises ShapeError if there is none."""
