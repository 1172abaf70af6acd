"""Evaluate one operation on arrays, in tests: the program around it is written here."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.errors import HloError
from hloom.shape.element_type import ElementType
from hloom.shape.shape import Shape
from tests import agreement
from tests.evaluation import evaluate, refused


def array(element_type: str, values: Any) -> np.ndarray[Any, Any]:
    """Return the values in an element type."""
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(ElementType.parse(element_type).numpy_dtype)


def apply(opcode: str, *operands: Any, attributes: str = "", result: Any = "") -> Any:
    """Return the value of ``opcode(operands)``; the result shape is stated if one is given."""
    shapes = [str(Shape.of(np.asarray(o))) for o in operands]
    return evaluate(program(opcode, *shapes, attributes=attributes, result=result), *operands)


def refusal(opcode: str, *shapes: str, attributes: str = "", result: str = "") -> HloError:
    """Return the error for an operation on operands of these shapes."""
    return refused(program(opcode, *shapes, attributes=attributes, result=result))


def program(opcode: str, *shapes: str, attributes: str = "", result: str = "") -> str:
    """Return the text of a program with one operation."""
    parameters = "".join(f"  p{i} = {shape} parameter({i})\n" for i, shape in enumerate(shapes))
    names = ", ".join(f"p{i}" for i in range(len(shapes)))
    return f"{parameters}  ROOT r = {result} {opcode}({names}){', ' * bool(attributes)}{attributes}"


def every(element_type: str) -> np.ndarray[Any, Any]:
    """Return all values of a type of at most 16 bits."""
    kind = ElementType.parse(element_type)
    if kind.is_integer and kind.bits < 8:
        lowest = -(1 << (kind.bits - 1)) if kind.is_signed else 0
        return np.arange(lowest, lowest + (1 << kind.bits)).astype(kind.numpy_dtype)
    return np.arange(1 << kind.bits).astype(f"u{kind.bytes}").view(kind.numpy_dtype)


def numbers(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return floats of any type in f64."""
    with np.errstate(all="ignore"):
        return values.astype(np.float64)


def nearest(values: Any, element_type: str) -> np.ndarray[Any, Any]:
    """Round numbers to a type of at most 16 bits by a search among its values, ties to even patterns.

    Numbers beyond the largest one by half a step are infinite, or NaN in a type without infinities.
    """
    known = numbers(every(element_type))
    positive = np.unique(known[np.isfinite(known) & (known >= 0)])
    has_infinity = bool(np.isinf(known).any())
    beyond = positive[-1] + (positive[-1] - positive[-2])
    ladder = np.append(positive, beyond)
    size = np.abs(np.asarray(values, np.float64))
    above = np.clip(np.searchsorted(ladder, size), 1, len(ladder) - 1)
    low, high = ladder[above - 1], ladder[above]
    with np.errstate(all="ignore"):
        tie, up = size - low == high - size, size - low > high - size
    odd = (above - 1) % 2 == 1
    rounded = np.where(up | (tie & odd), high, low)
    rounded = np.where(rounded >= beyond, np.inf if has_infinity else np.nan, rounded)
    rounded = np.where(np.isinf(size), np.inf if has_infinity else np.nan, rounded)
    return np.copysign(np.where(np.isnan(size), np.nan, rounded), values)


def same(got: Any, wanted: Any) -> None:
    """Assert equality of dtype-independent values, NaN equal to NaN, -0 different from +0."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    if got.dtype.kind != "c" and wanted.dtype.kind != "c":
        got, wanted = numbers(got), numbers(wanted)
        zeros = (got == 0) & (wanted == 0)
        agreement.equal(np.signbit(got[zeros]), np.signbit(wanted[zeros]))
    agreement.equal(got, wanted)


FLOAT_TYPES = ("f8e5m2", "f8e4m3fn", "f8e4m3", "f8e3m4", "bf16", "f16")
"""The narrow float types with a sign and a zero of each sign."""
