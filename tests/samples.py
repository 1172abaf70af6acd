"""Numbers of every element type for tests: random patterns, small numbers, and all the special ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.fuzzing.generators.draw import Draw
from hloom.shape.element_type import ElementType
from tests.one_operation import every, numbers

Array = np.ndarray[Any, Any]

ARRAY_TYPES = tuple(t.name for t in ElementType.all() if t.is_array)
FLOATS = tuple(t.name for t in ElementType.all() if t.is_floating)
INTEGERS = tuple(t.name for t in ElementType.all() if t.is_integer)
COMPLEX = ("c64", "c128")


def sample(name: str, count: int = 512, seed: int = 0) -> Array:
    """Return ``count`` numbers of a type, deterministic for a seed: of up to 16 bits, all of them in turn."""
    draw = Draw(seed, "sample", name)
    kind = ElementType.parse(name)
    if kind.bits <= 16 and not kind.is_predicate:
        return np.resize(draw.numbers.permutation(every(name)), count)
    return draw.any_values(name, (count,))


def equal_bits(got: Any, wanted: Any) -> Array:
    """Return a mask of the elements that are equal: NaN as NaN, -0 unlike +0."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.dtype == wanted.dtype
    if got.dtype.kind == "c":
        return equal_bits(got.real, wanted.real) & equal_bits(got.imag, wanted.imag)
    kind = ElementType.from_dtype(got.dtype)
    if not kind.is_floating:
        return got.astype(object) == wanted.astype(object)
    a, b = numbers(got), numbers(wanted)
    return (np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))


def assert_equal_bits(got: Any, wanted: Any, *operands: Any) -> None:
    """Fail with the first operands for which the results differ."""
    wrong = np.flatnonzero(~equal_bits(got, wanted))
    if wrong.size:
        shown = [(*(o[i] for o in operands), got[i], wanted[i]) for i in wrong[:4]]
        raise AssertionError(f"{wrong.size} of {len(got)} differ (operands, got, wanted): {shown}")


def steps_off(got: Array, wanted: Array) -> Array:
    """Return errors in units in the last place of the wanted value; infinite if only one is NaN."""
    a, b = numbers(got), numbers(wanted)
    limits = np.finfo(wanted.dtype)
    with np.errstate(all="ignore"):
        unit = np.spacing(np.maximum(np.abs(wanted), limits.tiny).astype(wanted.dtype)).astype(np.float64)
        off = np.abs(a - b) / unit
    off = np.where(np.isnan(a) != np.isnan(b), np.inf, off)
    return np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, off)
