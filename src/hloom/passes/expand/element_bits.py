"""Reinterpretation of an array's memory as another element type or width, in HLO operations."""

from __future__ import annotations

import math

from hloom.errors import HloError
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import SliceDimension
from hloom.operations.arithmetic import Complex, Or
from hloom.operations.conversion import BitcastConvert
from hloom.operations.movement import Concatenate, Slice
from hloom.operations.reduction import Reduce
from hloom.operations.unary import Imag, Real
from hloom.passes.writing import Writer
from hloom.shape.element_type import PRED, U8, ElementType
from hloom.shape.index import physical_element_count
from hloom.shape.shape import Shape


def reinterpret(writer: Writer, x: HloInstruction, source: Shape, target: Shape) -> HloInstruction:
    """Return the elements of shape ``target`` that the memory of an array of shape ``source`` holds.

    ``x`` has the elements of ``source``, and the result those of ``target``, in the order of memory: arrays
    of rank 1. Memory is a sequence of bits, from the lowest of the first byte; an element takes
    ``element_bits`` of them, from its lowest. The bits are moved in units of the largest power of two that
    divides all widths.
    """
    count = physical_element_count(target)
    if source.element_type is target.element_type and source.element_bits == target.element_bits:
        return writer.resize(x, [count])
    widths = math.gcd(*(n for s in (source, target) for n in (s.element_bits, _value_bits(s))))
    unit = min(widths & -widths, 64)
    x = _units(writer, x, _value_bits(source), unit)
    x = writer.resize(x, [x.shape.dimensions[0], source.element_bits // unit])
    x = writer.resize(writer.reshape(x, [x.shape.element_count]), [count * target.element_bits // unit])
    x = writer.reshape(x, [count, target.element_bits // unit])
    parts = 2 if target.element_type.is_complex else 1
    x = writer.resize(x, [count, parts * _value_bits(target) // unit])
    return _elements(writer, x, target.element_type)


def _value_bits(shape: Shape) -> int:
    """Return the number of bits that hold an element's value; of a complex number, the bits of each part."""
    component = shape.element_type.component
    if component.is_predicate:
        return min(shape.element_bits, 8)
    if component.bits & (component.bits - 1):
        message = f"a bitcast from or to elements of {component.bits} bits is not compiled, got {shape}"
        raise HloError(message, rule="bitcast-expander.element-bits")
    return component.bits


def _units(writer: Writer, x: HloInstruction, bits: int, unit: int) -> HloInstruction:
    """Return a row of units for each element: its bits, the lowest unit first."""
    (count,) = x.shape.dimensions
    if x.shape.element_type.is_predicate:
        bit = writer.reshape(writer.convert(writer.convert(x, U8), _unsigned(unit)), [count, 1])
        return writer.resize(bit, [count, bits // unit])
    if x.shape.element_type.is_complex:
        parts = (writer.reshape(writer.op(part, x), [count, 1]) for part in (Real(), Imag()))
        x, bits = writer.op(Concatenate(dimensions=(1,)), *parts), 2 * bits
    ratio = x.shape.element_type.bits // unit
    sizes = (*x.shape.dimensions, ratio) if ratio > 1 else x.shape.dimensions
    split = writer.op(BitcastConvert(), x, shape=Shape(_unsigned(unit), sizes))
    return writer.reshape(split, [count, bits // unit])


def _elements(writer: Writer, x: HloInstruction, element_type: ElementType) -> HloInstruction:
    """Return the element of each row of units, whose bits they are; a pred is true if any bit is set."""
    count, width = x.shape.dimensions
    if element_type.is_predicate:
        bits = writer.compare(x, "NE", writer.full(0, x.shape))
        true = writer.combiner(Or(), PRED)
        return writer.op(Reduce(dimensions=(1,)), bits, writer.scalar(False, PRED), computations=[true])
    component = element_type.component
    parts = 2 if element_type.is_complex else 1
    if component.bits > x.shape.element_type.bits:
        x = writer.reshape(x, [count, parts, width // parts])
    x = writer.op(BitcastConvert(), x, shape=Shape(component, (count, parts)))
    if not element_type.is_complex:
        return writer.reshape(x, [count])
    ranges = ((SliceDimension(0, count), SliceDimension(n, n + 1)) for n in range(parts))
    columns = (writer.op(Slice(slice=part), x) for part in ranges)
    return writer.op(Complex(), *(writer.reshape(column, [count]) for column in columns))


def _unsigned(bits: int) -> ElementType:
    return ElementType.parse(f"u{bits}")
