"""Elementary functions: the function of floats and of complex numbers for each opcode."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from hloom.codegen.elementwise.registry import Context, lowering
from hloom.codegen.llvm import Value
from hloom.codegen.types import Element
from hloom.codegen.vector_math import (
    complex_exponential,
    complex_inverse,
    complex_numbers,
    complex_trigonometry,
    error_function,
    exponential,
    inverse_trigonometry,
    logarithm,
    roots,
    trigonometry,
)
from hloom.codegen.vector_math.reals import Reals, as_of_zero_if_negligible, itself_if_negligible

Function: TypeAlias = Callable[..., Element]
OfReals: TypeAlias = Callable[[Value], Value]


def _register(opcode: str, of_reals: Function, of_complex: Function | None = None) -> None:
    def lower(c: Context, *operands: Element) -> Element:
        if isinstance(operands[0], tuple):
            assert of_complex is not None
            return of_complex(*operands)
        return of_reals(*operands)

    lowering(opcode)(lower)


def _square_root(x: Value) -> Value:
    return Reals(x).sqrt(x)


def _linear(function: OfReals) -> OfReals:
    """Lower a function of real numbers that is x near 0."""
    return lambda x: itself_if_negligible(function, x)


def _flat(function: OfReals) -> OfReals:
    """Lower a function of real numbers that is constant near 0."""
    return lambda x: as_of_zero_if_negligible(function, x)


_register("sqrt", _square_root, complex_numbers.square_root)
_register("rsqrt", roots.reciprocal_square_root, complex_numbers.reciprocal_square_root)
_register("cbrt", roots.cube_root)
_register("exponential", exponential.exponential, complex_exponential.exponential)
_register(
    "exponential-minus-one",
    _linear(exponential.exponential_minus_one),
    complex_exponential.exponential_minus_one,
)
_register("log", logarithm.logarithm, complex_exponential.logarithm)
_register("log-plus-one", _linear(logarithm.logarithm_plus_one), complex_exponential.logarithm_plus_one)
_register("logistic", _flat(exponential.logistic), complex_exponential.logistic)
_register("sine", _linear(trigonometry.sine), complex_trigonometry.sine)
_register("cosine", _flat(trigonometry.cosine), complex_trigonometry.cosine)
_register("tan", _linear(trigonometry.tangent), complex_trigonometry.tangent)
_register("asin", _linear(inverse_trigonometry.arc_sine), complex_inverse.arc_sine)
_register("acos", inverse_trigonometry.arc_cosine, complex_inverse.arc_cosine)
_register("atan2", inverse_trigonometry.arc_tangent, complex_inverse.inverse_tangent)
_register("sinh", _linear(exponential.sinh), complex_trigonometry.sinh)
_register("cosh", _flat(exponential.cosh), complex_trigonometry.cosh)
_register("tanh", _linear(exponential.tanh), complex_trigonometry.tanh)
_register("asinh", _linear(logarithm.asinh), complex_inverse.inverse_hyperbolic_sine)
_register("acosh", logarithm.acosh, complex_inverse.inverse_hyperbolic_cosine)
_register("atanh", _linear(logarithm.atanh), complex_inverse.inverse_hyperbolic_tangent)
_register("erf", error_function.error_function)
