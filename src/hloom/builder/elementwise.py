"""Elementwise functions: arithmetic, comparison, logic, conversion, selection.

The one- and two-operand functions have XlaBuilder's names, and the documentation of their operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, Protocol

from hloom.builder.broadcasting import broadcast_operands, like
from hloom.builder.builder import XlaOp
from hloom.builder.enumerations import Word, enumerated
from hloom.builder.operands import (
    ElementTypeLike,
    Operand,
    an_op,
    as_op,
    as_ops,
    element_type_of,
    page_function,
    pair,
)
from hloom.errors import ShapeError
from hloom.ir.operation import REGISTRY
from hloom.operations.comparison import COMPARISON_TYPES
from hloom.shape.element_type import PRED

__all__: list[str] = ["Abs", "Cbrt", "Ceil", "Clz", "Copy", "Erf", "Exp", "Exp2"]
__all__ += ["Expm1", "Floor", "IsFinite", "Log", "Log1p", "Log2", "Logistic"]
__all__ += ["Conj", "Imag", "LogicalNot", "Neg", "Not", "PopulationCount"]
__all__ += ["Real", "Round", "RoundNearestEven", "Rsqrt", "Sign", "Sqrt"]
__all__ += ["Acos", "Acosh", "Asin", "Asinh", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan", "Tanh"]
__all__ += ["Add", "And", "Atan2", "Complex", "Div", "LogicalAnd", "LogicalOr", "Max"]
__all__ += ["Min", "Mul", "Mulhi", "Or", "Pow", "Rem", "Sub", "Xor"]
__all__ += ["ShiftLeft", "ShiftRight", "ShiftRightArithmetic", "ShiftRightLogical"]
__all__ += ["Compare", "Eq", "Ge", "Gt", "Le", "Lt", "Ne"]
__all__ += ["EqTotalOrder", "GeTotalOrder", "GtTotalOrder", "LeTotalOrder", "LtTotalOrder", "NeTotalOrder"]
__all__ += ["Clamp", "Select"]
__all__ += ["BitcastConvertType", "ConvertElementType", "ReducePrecision", "StochasticConvertType"]


class Unary(Protocol):
    """An elementwise function of one operand."""

    __name__: str

    def __call__(self, operand: XlaOp) -> XlaOp:
        """Apply the function to every element; raises ShapeError for element types that it does not take."""
        ...


class Binary(Protocol):
    """An elementwise function of two operands, which are broadcast to a common shape."""

    __name__: str

    def __call__(
        self, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] | None = None
    ) -> XlaOp:
        """Apply the function to every pair of elements.

        Args:
            lhs, rhs: arrays of one element type; one may be a number or array, which becomes a constant.
            broadcast_dimensions: the other operand's dimensions to which those of the lower rank map.

        Raises ShapeError for element types and shapes that do not fit.
        """
        ...


def _meaning(opcode: str) -> str:
    return (REGISTRY[opcode].__doc__ or "").partition("\n\n")[0]


def _unary(name: str, opcode: str) -> Unary:
    @page_function(x="operand")
    def function(operand: XlaOp) -> XlaOp:
        return operand.builder.emit(opcode, [operand])

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{_meaning(opcode)}\n\nHLO's `{opcode}`, element by element."
    return function  # type: ignore[return-value]


def _binary(name: str, opcode: str, direction: str | None = None) -> Binary:
    @page_function(y="lhs", x="rhs", real="lhs", imag="rhs")
    def function(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] | None = None) -> XlaOp:
        first, second = broadcast_operands(name, *pair(lhs, rhs), broadcast_dimensions)
        return first.builder.emit(opcode, [first, second], direction=direction)

    function.__name__ = function.__qualname__ = name
    suffix = f" in the direction {direction}" if direction else ""
    function.__doc__ = (
        f"{_meaning(opcode)}\n\nHLO's `{opcode}`{suffix}, element by element, operands broadcast."
    )
    return function  # type: ignore[return-value]


Abs: Final = _unary("Abs", "abs")
Acos: Final = _unary("Acos", "acos")
Acosh: Final = _unary("Acosh", "acosh")
Asin: Final = _unary("Asin", "asin")
Asinh: Final = _unary("Asinh", "asinh")
Atanh: Final = _unary("Atanh", "atanh")
Cbrt: Final = _unary("Cbrt", "cbrt")
Ceil: Final = _unary("Ceil", "ceil")
Clz: Final = _unary("Clz", "count-leading-zeros")
Copy: Final = _unary("Copy", "copy")
Cos: Final = _unary("Cos", "cosine")
Cosh: Final = _unary("Cosh", "cosh")
Erf: Final = _unary("Erf", "erf")
Exp: Final = _unary("Exp", "exponential")
Exp2: Final = _unary("Exp2", "exp2")
Expm1: Final = _unary("Expm1", "exponential-minus-one")
Floor: Final = _unary("Floor", "floor")
Imag: Final = _unary("Imag", "imag")
IsFinite: Final = _unary("IsFinite", "is-finite")
Log: Final = _unary("Log", "log")
Log1p: Final = _unary("Log1p", "log-plus-one")
Log2: Final = _unary("Log2", "log2")
Logistic: Final = _unary("Logistic", "logistic")
Neg: Final = _unary("Neg", "negate")
Not: Final = _unary("Not", "not")
PopulationCount: Final = _unary("PopulationCount", "popcnt")
Real: Final = _unary("Real", "real")
Round: Final = _unary("Round", "round-nearest-afz")
RoundNearestEven: Final = _unary("RoundNearestEven", "round-nearest-even")
Rsqrt: Final = _unary("Rsqrt", "rsqrt")
Sign: Final = _unary("Sign", "sign")
Sin: Final = _unary("Sin", "sine")
Sinh: Final = _unary("Sinh", "sinh")
Sqrt: Final = _unary("Sqrt", "sqrt")
Tan: Final = _unary("Tan", "tan")
Tanh: Final = _unary("Tanh", "tanh")
LogicalNot: Final = Not

Add: Final = _binary("Add", "add")
And: Final = _binary("And", "and")
Atan2: Final = _binary("Atan2", "atan2")
Complex: Final = _binary("Complex", "complex")
Div: Final = _binary("Div", "divide")
Max: Final = _binary("Max", "maximum")
Min: Final = _binary("Min", "minimum")
Mul: Final = _binary("Mul", "multiply")
Mulhi: Final = _binary("Mulhi", "mulhi")
Or: Final = _binary("Or", "or")
Pow: Final = _binary("Pow", "power")
Rem: Final = _binary("Rem", "remainder")
ShiftLeft: Final = _binary("ShiftLeft", "shift-left")
ShiftRightArithmetic: Final = _binary("ShiftRightArithmetic", "shift-right-arithmetic")
ShiftRightLogical: Final = _binary("ShiftRightLogical", "shift-right-logical")
Sub: Final = _binary("Sub", "subtract")
Xor: Final = _binary("Xor", "xor")
LogicalAnd: Final = And
LogicalOr: Final = Or

Eq: Final = _binary("Eq", "compare", "EQ")
Ne: Final = _binary("Ne", "compare", "NE")
Ge: Final = _binary("Ge", "compare", "GE")
Gt: Final = _binary("Gt", "compare", "GT")
Le: Final = _binary("Le", "compare", "LE")
Lt: Final = _binary("Lt", "compare", "LT")


def _total_order(name: str, direction: str) -> Binary:
    @page_function()
    def function(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] | None = None) -> XlaOp:
        return Compare(lhs, rhs, broadcast_dimensions, direction, "TOTALORDER")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"Compare by {direction} in the total order -NaN < -Inf < ... < -0 < +0 < ... < Inf < NaN."
    )
    return function


EqTotalOrder: Final = _total_order("EqTotalOrder", "EQ")
NeTotalOrder: Final = _total_order("NeTotalOrder", "NE")
GeTotalOrder: Final = _total_order("GeTotalOrder", "GE")
GtTotalOrder: Final = _total_order("GtTotalOrder", "GT")
LeTotalOrder: Final = _total_order("LeTotalOrder", "LE")
LtTotalOrder: Final = _total_order("LtTotalOrder", "LT")


@page_function(comparison_direction="direction")
def Compare(
    lhs: Operand,
    rhs: Operand,
    broadcast_dimensions: Sequence[int] | Word | None = None,
    direction: Word = "EQ",
    compare_type: Word | None = None,
) -> XlaOp:
    """Compare by a direction: EQ, NE, GE, GT, LE or LT.

    `compare_type` is FLOAT, TOTALORDER, SIGNED or UNSIGNED. Floats compare by IEEE unless it is TOTALORDER,
    which integers always have. `Compare(lhs, rhs, direction)` is the short form.
    """
    if isinstance(broadcast_dimensions, str | int | Enum):
        broadcast_dimensions, direction = None, broadcast_dimensions
    first, second = broadcast_operands("Compare", *pair(lhs, rhs), broadcast_dimensions)
    if compare_type is not None:
        compare_type = enumerated(compare_type, COMPARISON_TYPES, "compare_type")
    if compare_type == "TOTALORDER" and not first.shape.element_type.is_floating:
        compare_type = None
    return first.builder.emit("compare", [first, second], direction=direction, type=compare_type)


@page_function()
def Conj(operand: XlaOp) -> XlaOp:
    """Return the complex conjugate; a real operand unchanged."""
    return Complex(Real(operand), Neg(Imag(operand))) if operand.shape.element_type.is_complex else operand


@page_function()
def ShiftRight(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] | None = None) -> XlaOp:
    """Shift right as `>>` does: arithmetic on signed and logical on unsigned integers."""
    signed = an_op(lhs, rhs).shape.element_type.is_signed
    return (ShiftRightArithmetic if signed else ShiftRightLogical)(lhs, rhs, broadcast_dimensions)


@page_function()
def Clamp(min: Operand, operand: Operand, max: Operand) -> XlaOp:
    """Return min(max(min, operand), max); `min` and `max` may be scalars."""
    low, value, high = as_ops(min, operand, max)
    wide = next((op for op in (value, low, high) if op.shape.rank), value)
    return value.builder.emit("clamp", [like(low, wide), like(value, wide), like(high, wide)])


@page_function()
def Select(pred: Operand, on_true: Operand, on_false: Operand) -> XlaOp:
    """Return elements of `on_true` where `pred` holds, else of `on_false`.

    A scalar `pred` chooses the whole value. Tuples are selected element by element.
    """
    known = an_op(on_true, on_false, pred)
    like_value = next((v for v in (on_true, on_false) if isinstance(v, XlaOp)), None)
    predicate = as_op(pred, known, PRED)
    if like_value is None:
        raise ShapeError("one of on_true and on_false must be an XlaOp", rule="builder.operand")
    first, second = as_op(on_true, like_value), as_op(on_false, like_value)
    if first.shape.is_tuple:
        from hloom.builder.data_movement import Tuple

        if not first.shape.compatible(second.shape):
            message = f"Select takes tuples of one shape, got {first.shape} and {second.shape}"
            raise ShapeError(message, rule="select.tuples")
        if predicate.shape.rank:
            message = f"Select of tuples takes a scalar pred, got {predicate.shape}"
            raise ShapeError(message, rule="select.tuple-predicate")
        return Tuple([Select(predicate, a, b) for a, b in zip(first, second, strict=True)])
    wide = next((op for op in (first, second, predicate) if op.shape.rank), first)
    return known.builder.emit("select", [like(predicate, wide), like(first, wide), like(second, wide)])


@page_function()
def ConvertElementType(operand: XlaOp, new_element_type: ElementTypeLike) -> XlaOp:
    """Convert the elements to another type: round to nearest, saturate from float to integer."""
    shape = operand.shape.with_element_type(element_type_of(new_element_type))
    return operand.builder.emit("convert", [operand], shape=shape)


@page_function()
def BitcastConvertType(operand: XlaOp, new_element_type: ElementTypeLike) -> XlaOp:
    """Reinterpret the bits as another type.

    A narrower type adds a last dimension; a wider one needs a last dimension of that ratio and drops it.
    """
    shape, target = operand.shape, element_type_of(new_element_type)
    before, after = shape.element_type.bits, target.bits
    sizes, dynamic = shape.dimensions, shape.dynamic_dimensions
    if after and after < before:
        sizes, dynamic = (*sizes, before // after), (*dynamic, False)
    elif after > before:
        if not sizes or sizes[-1] * before != after:
            message = f"{target} of {shape} needs a last dimension of {after // max(before, 1)} elements"
            raise ShapeError(message, rule="bitcast-convert.last-dimension")
        sizes, dynamic = sizes[:-1], dynamic[:-1]
    result = shape.with_dimensions(sizes, dynamic).with_element_type(target)
    return operand.builder.emit("bitcast-convert", [operand], shape=result)


@page_function()
def StochasticConvertType(operand: XlaOp, random: XlaOp, new_element_type: ElementTypeLike) -> XlaOp:
    """Round the elements stochastically by unsigned integers `random` of the same width."""
    shape = operand.shape.with_element_type(element_type_of(new_element_type))
    return operand.builder.emit("stochastic-convert", [operand, random], shape=shape)


@page_function()
def ReducePrecision(operand: XlaOp, mantissa_bits: int, exponent_bits: int) -> XlaOp:
    """Round floats to a format of fewer bits, and back. The order of the arguments is the page's."""
    return operand.builder.emit(
        "reduce-precision", [operand], exponent_bits=exponent_bits, mantissa_bits=mantissa_bits
    )
