"""Numbers of every element type for tests: random patterns, small numbers, and all the special ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.shape.element_type import ElementType
from tests.one_operation import every, numbers

Array = np.ndarray[Any, Any]

ARRAY_TYPES = tuple(t.name for t in ElementType.all() if t.is_array)
FLOATS = tuple(t.name for t in ElementType.all() if t.is_floating)
INTEGERS = tuple(t.name for t in ElementType.all() if t.is_integer)
COMPLEX = ("c64", "c128")


def sample(name: str, count: int = 512, seed: int = 0) -> Array:
    """Return ``count`` numbers of a type, deterministic for a seed."""
    kind = ElementType.parse(name)
    generator = np.random.default_rng([seed, kind.number])
    dtype = kind.numpy_dtype
    if kind.is_predicate:
        return generator.integers(0, 2, count).astype(bool)
    if kind.is_complex:
        parts = [sample(kind.component.name, count, 2 * seed + k) for k in range(2)]
        return np.stack(parts, axis=-1).view(dtype).reshape(count)
    if kind.bits <= 16:
        return np.resize(generator.permutation(every(name)), count)
    patterns = generator.integers(0, 256, (count, kind.bytes), dtype=np.uint8).view(dtype)[:, 0]
    special = _special_integers(kind) if kind.is_integer else _special_floats(dtype)
    small = (generator.integers(-40 if kind.is_signed or kind.is_floating else 0, 40, count) / 2).astype(
        dtype
    )
    which = generator.integers(0, 3, count)
    return np.choose(which, [patterns, small, special[generator.integers(0, len(special), count)]])


def _special_integers(kind: ElementType) -> Array:
    lowest, highest = kind.limits
    return np.array(
        [0, 1, 2, kind.bits - 1, kind.bits, lowest, lowest + 1, highest, highest // 2 + 1], kind.dtype
    )


def _special_floats(dtype: Any) -> Array:
    limits = np.finfo(dtype)
    extremes = [np.inf, limits.max, limits.tiny, limits.tiny / 2, limits.smallest_subnormal]
    positive = [
        *extremes,
        0.0,
        1.0,
        0.5,
        2.0,
        2.0**31,
        2.0**32,
        2.0**63,
        2.0**64,
        0.49999997,
        2.5,
        255.5,
        1e10,
    ]
    return np.array([*positive, *(-n for n in positive), np.nan], dtype)


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
