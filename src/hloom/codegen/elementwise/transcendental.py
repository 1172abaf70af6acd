"""Elementary functions: the function of floats and of complex numbers for each opcode."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from hloom.codegen.elementwise.outlining import expand_or_call
from hloom.codegen.elementwise.registry import LoweringContext, lowering
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
from hloom.codegen.vector_math.reals import Reals

Function: TypeAlias = Callable[..., Element]


def _register(opcode: str, of_reals: Function, of_complex: Function | None = None) -> None:
    def lower(c: LoweringContext, *operands: Element) -> Element:
        return expand_or_call(opcode, of_reals, *operands)

    lowering(opcode, of_complex=of_complex and partial(expand_or_call, opcode, of_complex))(lower)


def _square_root(x: Value) -> Value:
    return Reals(x).sqrt(x)


_register("sqrt", _square_root, complex_numbers.square_root)
_register("rsqrt", roots.reciprocal_square_root, complex_numbers.reciprocal_square_root)
_register("cbrt", roots.cube_root)
_register("exponential", exponential.exponential, complex_exponential.exponential)
_register(
    "exponential-minus-one", exponential.exponential_minus_one, complex_exponential.exponential_minus_one
)
_register("exp2", exponential.exponential_base_2, complex_exponential.exponential_base_2)
_register("log", logarithm.logarithm, complex_exponential.logarithm)
_register("log-plus-one", logarithm.logarithm_plus_one, complex_exponential.logarithm_plus_one)
_register("log2", logarithm.logarithm_base_2, complex_exponential.logarithm_base_2)
_register("logistic", exponential.logistic, complex_exponential.logistic)
_register("sine", trigonometry.sine, complex_trigonometry.sine)
_register("cosine", trigonometry.cosine, complex_trigonometry.cosine)
_register("tan", trigonometry.tangent, complex_trigonometry.tangent)
_register("asin", inverse_trigonometry.arc_sine, complex_inverse.arc_sine)
_register("acos", inverse_trigonometry.arc_cosine, complex_inverse.arc_cosine)
_register("atan2", inverse_trigonometry.arc_tangent, complex_inverse.inverse_tangent)
_register("sinh", exponential.sinh, complex_trigonometry.sinh)
_register("cosh", exponential.cosh, complex_trigonometry.cosh)
_register("tanh", exponential.tanh, complex_trigonometry.tanh)
_register("asinh", logarithm.asinh, complex_inverse.inverse_hyperbolic_sine)
_register("acosh", logarithm.acosh, complex_inverse.inverse_hyperbolic_cosine)
_register("atanh", logarithm.atanh, complex_inverse.inverse_hyperbolic_tangent)
_register("erf", error_function.error_function)
_register("erfc", error_function.complementary_error_function)
