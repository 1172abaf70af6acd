"""Changing element types, and copying: convert, the bitcasts, reduce-precision, stochastic-convert, copy."""

from __future__ import annotations

from typing import ClassVar

from hloom.ir.codec import integer
from hloom.ir.operation import Array, Operation, ProgramShape, Run, Value, operation
from hloom.operations.elementwise import ANY, FLOATING, Elementwise, check_element_types, same_dimensions
from hloom.shape.element_type import ElementType
from hloom.shape.shape import Shape


@operation("convert", "operand")
class Convert(Elementwise):
    """The operand's values in the element type of the result, which the program states."""

    infers = False
    accepts: ClassVar[frozenset[ElementType]] = ANY

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """The result has the operand's dimensions."""
        check_element_types(self.opcode, (*operands, shape), ANY)
        same_dimensions(self.opcode, (*operands, shape))

    def evaluate(self, run: Run, operand: Array) -> Array:
        """Each value by itself."""
        return operand.astype(run.dtype)


@operation("bitcast-convert", "operand")
class BitcastConvert(Operation):
    """The operand's bits, read as elements of another type."""

    infers = False


@operation("bitcast", "operand")
class Bitcast(Operation):
    """The operand's memory, read as an array of another shape and layout."""

    infers = False


@operation("reduce-precision", "operand")
class ReducePrecision(Elementwise):
    """The operand rounded to a float type of ``exponent_bits`` and ``mantissa_bits``, in its own type."""

    accepts: ClassVar[frozenset[ElementType]] = FLOATING
    exponent_bits: int = integer(always=True)
    mantissa_bits: int = integer(always=True)


@operation("stochastic-convert", "operand random")
class StochasticConvert(Elementwise):
    """The operand rounded up or down to the result's type, at random."""

    infers = False


@operation("copy", "operand")
class Copy(Operation):
    """The operand in memory of its own, perhaps in another layout."""

    elementwise: ClassVar[bool] = True

    def infer(self, operand: Shape) -> Shape:
        """The operand's shape."""
        return operand

    def evaluate(self, run: Run, operand: Value) -> Value:
        """The same value."""
        return operand
