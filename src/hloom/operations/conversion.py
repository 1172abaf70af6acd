"""Changing element types, and copying: convert, the bitcasts, reduce-precision, stochastic-convert, copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from hloom.error_bounds.floating import wide
from hloom.error_bounds.rules import added, any_bits, linear, monotone, wrapped
from hloom.errors import EvaluationError, ShapeError, plural
from hloom.ir.affine import Index, Indices
from hloom.ir.codec import integer
from hloom.ir.indexing import Condition, Element, Indexing, Read, Steps
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import (
    Array,
    ErrorRun,
    Operation,
    ProgramShape,
    Run,
    Value,
    operation,
    require_dynamic,
)
from hloom.ir.sharding_rule import Factor, parallel
from hloom.ir.traits import ElementCost, Family, LayoutSource, Range, Roundoff
from hloom.operations.elementwise import (
    ANY,
    FLOATING,
    INTEGER,
    Elementwise,
    check_element_types,
    same_dimensions,
)
from hloom.operations.rounding import convert, double, narrow, widen, wrap
from hloom.shape.element_type import ElementType
from hloom.shape.float_format import float_format
from hloom.shape.index import physical_byte_size
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape


@operation("convert", "operand")
class Convert(Elementwise):
    """The operand's values in the element type of the result, which the program states.

    Floats are rounded to nearest, ties to even, once. Floats are truncated to integers, saturating
    at the smallest and largest integer; NaN becomes 0. Integers that do not fit wrap.
    Anything but 0 is true as a pred, NaN too. The imaginary part of a complex number is dropped.
    """

    infers = False
    roundoff: ClassVar[Roundoff] = Roundoff.ONCE
    propagate = added
    accepts: ClassVar[frozenset[ElementType]] = ANY

    def integer_errors(self, run: ErrorRun) -> Array:
        """Return the change at both ends of a float or pred; conversions between integers wrap around."""
        (x,) = run.operands
        if run.value.dtype == np.bool_:
            return ((x.spread > 0) & ~(np.abs(wide(x.value)) > x.spread)).astype(np.float64)
        is_integer = ElementType.from_dtype(x.value.dtype).is_integer
        return wrapped(run.value, x.spread) if is_integer else monotone(self, run)

    def value_range(self, element_type: ElementType, *ranges: Range) -> Range | None:
        """Return the operand's range if the result's type holds it."""
        return ranges[0]

    def flops(self, shape: Shape, *operands: Shape, applied: float = 0.0) -> float:
        """Return 0: conversion is not counted as arithmetic."""
        return 0.0

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check that the result has the operand's dimensions."""
        check_element_types(self.opcode, (*operands, shape), ANY)
        same_dimensions(self.opcode, (*operands, shape))
        require_dynamic(shape, operands[0].with_element_type(shape.element_type))

    def evaluate(self, run: Run, operand: Array) -> Array:
        return convert(operand, run.dtype)


@operation("bitcast-convert", "operand")
class BitcastConvert(Operation):
    """The operand's bits, read as elements of the result's type, which the program states.

    An element of B bits that becomes elements of B' < B bits makes a new minor dimension of size B / B', the
    low bits first; the other way a minor dimension of that size disappears. A pred has 8 bits.
    """

    family: ClassVar[Family] = Family.MOVEMENT
    element_cost: ClassVar[ElementCost] = ElementCost.CHEAP
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    errors = any_bits
    infers = False

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check that one width divides the other, dimensions correspond, and complex stays complex."""
        operand = operands[0]
        check_element_types(self.opcode, (operand, shape), ANY)
        before, after = operand.element_type, shape.element_type
        if before.is_complex != after.is_complex:
            message = f"{before.name} to {after.name}: complex numbers and others do not share bits"
            raise ShapeError(message, rule="bitcast-convert.complex")
        wide, narrow_ = (operand, shape) if before.bits >= after.bits else (shape, operand)
        ratio, remainder = divmod(wide.element_type.bits, narrow_.element_type.bits)
        if remainder:
            message = f"the bits of {wide.element_type} are no whole number of {narrow_.element_type}"
            raise ShapeError(message, rule="bitcast-convert.widths")
        dimensions = wide.dimensions if ratio == 1 else (*wide.dimensions, ratio)
        if not narrow_.compatible(Shape(narrow_.element_type, dimensions)):
            message = f"{operand} has not the bits of {shape}"
            raise ShapeError(message, rule="bitcast-convert.dimensions")
        kept = operand.dynamic_dimensions[: min(operand.rank, shape.rank)]
        dynamic = (*kept, *(False,) * (shape.rank - len(kept)))
        require_dynamic(shape, Shape(after, shape.dimensions, dynamic))

    def element(
        self, x: Indexing[Condition, Element], i: HloInstruction, indices: Indices
    ) -> Steps[Condition, Element]:
        """Read the element of which these bits are a part, or all those that these bits are."""
        (operand,) = i.operands
        before, after = operand.shape.element_type, i.shape.element_type
        if before.bits > after.bits:
            return x.part((yield Read(operand, indices[:-1])), indices[-1], before, after)
        if before.bits == after.bits:
            return x.joined([(yield Read(operand, indices))], before, after)
        parts: list[Element] = []
        for number in range(after.bits // before.bits):
            parts.append((yield Read(operand, (*indices, Index(number)))))
        return x.joined(parts, before, after)

    def evaluate(self, run: Run, operand: Array) -> Array:
        """Reinterpret the bits."""
        before, after = ElementType.from_dtype(operand.dtype), run.shape.element_type
        bits = to_bits(operand)
        if before.bits < after.bits:
            bits = bits.reshape(*operand.shape[:-1], after.bits)
        elif before.bits > after.bits:
            bits = bits.reshape(*operand.shape, before.bits // after.bits, after.bits)
        return from_bits(bits, after)


def to_bits(array: Array) -> Array:
    """Return the bits of every element, the lowest first, in a new minor dimension."""
    element_type = ElementType.from_dtype(array.dtype)
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    octets = little.view(np.uint8).reshape(*array.shape, array.dtype.itemsize)
    return np.unpackbits(octets, axis=-1, bitorder="little")[..., : element_type.bits]


def from_bits(bits: Array, element_type: ElementType) -> Array:
    """Assemble elements from their bits along the minor dimension, the lowest first."""
    dtype = element_type.numpy_dtype
    octets = np.ascontiguousarray(np.packbits(bits, axis=-1, bitorder="little"))
    shape = bits.shape[:-1]
    if element_type.is_predicate:
        return octets.reshape(shape) != 0
    if element_type.is_integer and element_type.bits < 8:
        return wrap(octets.reshape(shape), element_type.bits, element_type.is_signed).astype(dtype)
    return octets.view(dtype.newbyteorder("<")).astype(dtype).reshape(shape)


@operation("bitcast", "operand")
class Bitcast(Operation):
    """The operand's memory, read as an array of another shape and layout; no data moves.

    Which element comes where follows from both layouts, tiles included.
    """

    family: ClassVar[Family] = Family.MOVEMENT
    element_cost: ClassVar[ElementCost] = ElementCost.FREE
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    errors = linear
    aliases_operand: ClassVar[bool] = True
    scalar_identity: ClassVar[bool] = True
    reads_layout: ClassVar[bool] = True
    infers = False

    def traffic(self, shape: Shape, *operands: Shape) -> int:
        return 0

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check that both shapes take the same number of bytes."""
        operand = operands[0]
        check_element_types(self.opcode, (operand, shape), ANY)
        if operand.is_unbounded or shape.is_unbounded:
            return
        sizes = [physical_byte_size(s.to_static()) for s in (operand, shape)]
        if sizes[0] != sizes[1]:
            message = f"{operand} takes {plural(sizes[0], 'byte')}, {shape} takes {sizes[1]}"
            raise ShapeError(message, rule="bitcast.byte-size")

    def evaluate(self, run: Run, operand: Array) -> Array:
        """Write the operand in its layout, read the result in its own."""
        source = run.instruction.operands[0].shape
        if source.equal(run.shape, layout=True):
            return operand
        if operand.shape != source.dimensions:
            message = f"the operand's {operand.shape} elements do not fill {source}"
            raise EvaluationError(message, rule="bitcast.dynamic")
        data = Literal(operand, source.to_static()).to_bytes()
        return Literal.from_bytes(run.shape.to_static(), data).array


@operation("reduce-precision", "operand")
class ReducePrecision(Elementwise):
    """The operand rounded to a float type of fewer bits, in its own type.

    Mantissas are rounded to nearest, ties to even. Numbers too large for the exponent become infinite, those
    below the smallest normal number 0, with their sign. NaN stays NaN, also without mantissa bits. Bits that
    the operand's type does not have change nothing.

    Attributes:
        exponent_bits: at least 1.
        mantissa_bits: not counting the implicit one; at least 0.
    """

    roundoff: ClassVar[Roundoff] = Roundoff.ONCE
    propagate = added
    accepts: ClassVar[frozenset[ElementType]] = FLOATING
    exponent_bits: int = integer(always=True)
    mantissa_bits: int = integer(always=True)

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """Return the operand's shape."""
        if self.exponent_bits < 1:
            message = f"exponent_bits is at least 1, got {self.exponent_bits}"
            raise ShapeError(message, rule="reduce-precision.exponent-bits")
        if self.mantissa_bits < 0:
            message = f"mantissa_bits is not negative, got {self.mantissa_bits}"
            raise ShapeError(message, rule="reduce-precision.mantissa-bits")
        return Elementwise.infer(self, *operands)

    def evaluate(self, run: Run, operand: Array) -> Array:
        """Round the mantissa in the operand's own format, then limit the exponent."""
        with np.errstate(all="ignore"):
            source = float_format(ElementType.from_dtype(operand.dtype))
            value = double(operand)
            if self.mantissa_bits < source.mantissa_bits:
                value = round_mantissa(value, self.mantissa_bits, source.smallest_exponent)
            if self.exponent_bits < source.exponent_bits:
                bias = (1 << (self.exponent_bits - 1)) - 1
                exponent = np.frexp(value)[1] - 1
                value = np.where(exponent > bias, np.copysign(np.inf, value), value)
                value = np.where((exponent <= -bias) & np.isfinite(value), np.copysign(0.0, value), value)
            return narrow(np.where(np.isfinite(double(operand)), value, double(operand)), run.dtype)


def round_mantissa(value: Array, bits: int, smallest_exponent: int) -> Array:
    """Round f64 numbers to ``bits`` mantissa bits in the way bit patterns are rounded.

    Without mantissa bits the last bit of the pattern is that of the exponent: of two powers of two the one
    with even biased exponent wins a tie.
    """
    exponent = np.maximum(np.frexp(value)[1] - 1, smallest_exponent)
    scaled = np.ldexp(value, bits - exponent)
    rounded = np.rint(scaled)
    if bits == 0:
        tie = (np.abs(scaled) == 1.5) & ((exponent - smallest_exponent) % 2 == 1)
        rounded = np.where(tie, np.copysign(1.0, scaled), rounded)
    return np.ldexp(rounded, exponent - bits)


@operation("stochastic-convert", "operand random")
class StochasticConvert(Operation):
    """The operand rounded up or down to the result's type, which the program states, at random.

    A value between two neighbours of the result's type becomes the one farther from 0 where the fraction of
    the way to it, as a number of as many bits as ``random`` has, is larger than ``random``. With uniform
    random bits the result is right on average. Values beyond the type's range saturate; NaN becomes 0 in an
    integer.
    """

    layout_source: ClassVar[LayoutSource] = LayoutSource.OPERANDS
    family: ClassVar[Family] = Family.ELEMENTWISE
    element_cost: ClassVar[ElementCost] = ElementCost.CHEAP
    roundoff: ClassVar[Roundoff] = Roundoff.ONCE
    infers = False
    elementwise: ClassVar[bool] = True

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check for a float operand, random unsigned integers of its width, a float or integer result."""
        operand, random = operands
        check_element_types(self.opcode, (operand,), FLOATING)
        check_element_types(self.opcode, (shape,), FLOATING | INTEGER)
        if not random.element_type.is_unsigned or random.element_type.bits != operand.element_type.bits:
            message = f"random is unsigned and as wide as {operand.element_type.name}, got {random}"
            raise ShapeError(message, rule="stochastic-convert.random-type")
        same_dimensions(self.opcode, (operand, random, shape))
        require_dynamic(shape, operand.with_element_type(shape.element_type))

    def evaluate(self, run: Run, operand: Array, random: Array) -> Array:
        """Choose between the two neighbours in the result's type."""
        bits = ElementType.from_dtype(random.dtype).bits
        with np.errstate(all="ignore"):
            value = double(operand)
            near, far = neighbours(value, run.shape.element_type)
            fraction = np.ldexp(np.abs(value - near) / np.abs(far - near), bits)
            inexact = np.isfinite(value) & (far != near)
            up = inexact & (
                widen(random).astype(np.uint64) < np.where(inexact, fraction, 0).astype(np.uint64)
            )
            return convert(np.where(up, far, near), run.dtype)


def neighbours(value: Array, target: ElementType) -> tuple[Array, Array]:
    """Return the numbers of a type next to f64 values: the one towards 0, and the next one away from 0."""
    if target.is_integer:
        near = np.trunc(value)
        return near, near + np.copysign(1.0, value)
    number = float_format(target)
    exponent = np.maximum(np.frexp(value)[1] - 1, number.smallest_exponent)
    step = np.ldexp(1.0, exponent - number.mantissa_bits)
    near = np.trunc(value / step) * step
    far = np.clip(near + np.copysign(step, value), -number.largest, number.largest)
    return np.where(np.isfinite(value), np.clip(near, -number.largest, number.largest), value), far


@operation("copy", "operand")
class Copy(Operation):
    """A copy of the operand in memory of its own, possibly in another layout."""

    copied_operands: ClassVar[tuple[int, ...]] = (0,)
    layout_source: ClassVar[LayoutSource] = LayoutSource.OPERANDS
    family: ClassVar[Family] = Family.ELEMENTWISE
    element_cost: ClassVar[ElementCost] = ElementCost.FREE
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    errors = linear
    aliases_operand: ClassVar[bool] = True
    scalar_identity: ClassVar[bool] = True
    elementwise: ClassVar[bool] = True

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        return parallel(call.shape, operands) if call.shape.is_array else []

    def infer(self, operand: Shape) -> Shape:
        return operand

    def evaluate(self, run: Run, operand: Value) -> Value:
        """Return the operand itself: values are immutable."""
        return operand
