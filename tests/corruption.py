"""Corrupt values as errors of a compiler do, so that comparisons can be tried on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hloom.error_bounds.floating import Array, same_bits, ulp, wide
from hloom.shape.element_type import ElementType

LARGE = 0.25
"""A corruption that moves no element by this part of the largest number may go unnoticed."""


def corruptions(wanted: Array, bound: Any, *, exact: bool) -> Iterator[tuple[str, Array]]:
    """Yield values that a comparison with these bounds must refuse, each with its name.

    Zeros, negated, reversed and rolled values are judged without bounds: bounds as large as the values do not
    excuse a comparison. The others change one element beyond its bound.
    """
    if not wanted.size:
        return
    numbers = wide(wanted)
    finite = np.isfinite(numbers)
    for name, made in (
        ("of zeros", np.zeros_like(wanted)),
        ("negated", _negated(wanted)),
        ("reversed", wanted.reshape(-1)[::-1].reshape(wanted.shape)),
        ("rolled", np.roll(wanted.reshape(-1), 1).reshape(wanted.shape)),
    ):
        if _large(wide(made), numbers, finite):
            yield name, made
    allowed = np.broadcast_to(np.asarray(bound, np.float64), wanted.shape).reshape(-1)
    for place in dict.fromkeys((int(np.argmax(np.abs(np.where(finite, numbers, 0)))), wanted.size - 1)):
        if np.isfinite(numbers.reshape(-1)[place]) and np.isfinite(allowed[place]):
            yield from _at(wanted, place, float(allowed[place]), exact)
    if not finite.reshape(-1).all() and _has_nan(wanted) and np.isnan(numbers).any():
        bounded = np.isnan(numbers.reshape(-1)) & np.isfinite(allowed)
        if bounded.any():  # an infinite bound lets any number pass
            yield "with a number for NaN", _with(wanted, int(np.argmax(bounded)), wanted.dtype.type(1))


def _at(wanted: Array, place: int, allowed: float, exact: bool) -> Iterator[tuple[str, Array]]:
    """Yield values with one element beyond its bound, stale, or NaN."""
    number = wide(wanted).reshape(-1)[place]
    for name, moved in (
        ("off by four bounds", _moved(wanted, place, allowed)),
        ("stale", _stale(wanted, place)),
    ):
        if moved is None:
            continue
        distance = np.abs(wide(moved) - number)
        changed = not same_bits(np.asarray(moved), wanted.reshape(-1)[place]) if exact else distance > 0
        if changed and (exact or not distance <= 2 * allowed):
            yield f"with element {place} {name}", _with(wanted, place, moved)
    if _has_nan(wanted):
        yield f"with NaN for element {place}", _with(wanted, place, wanted.dtype.type(np.nan))


def _moved(wanted: Array, place: int, allowed: float) -> Any:
    """Return the element moved from 0 by four times its bound, or to the next number; None if impossible."""
    kind = ElementType.from_dtype(wanted.dtype)
    element = wanted.reshape(-1)[place]
    if kind.is_predicate:
        return ~element
    if kind.is_integer:
        return (
            wanted.dtype.type(int(element) ^ 1)
            if allowed == 0
            else _converted(int(element) + 4 * allowed, wanted)
        )
    step = max(4 * allowed, 2 * float(ulp(np.abs(wide(element)), wanted.dtype)))
    moved = _converted(wide(element) + (step if wide(element).real >= 0 else -step), wanted)
    return (
        moved
        if np.isfinite(wide(moved))
        else _converted(wide(element) - np.sign(wide(element).real) * step, wanted)
    )


def _converted(value: Any, like: Array) -> Any:
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(like.dtype)


def _stale(wanted: Array, place: int) -> Any:
    """Return the value with one element stale: replaced by the element before it."""
    return wanted.reshape(-1)[place - 1] if wanted.size > 1 else None


def _negated(wanted: Array) -> Array:
    kind = ElementType.from_dtype(wanted.dtype)
    with np.errstate(all="ignore"):
        if kind.is_predicate:
            return ~wanted
        if kind.is_integer and kind.bits < 64:
            return (0 - wanted.astype(np.int64)).astype(wanted.dtype)
        return np.negative(wanted)


def _large(made: Array, numbers: Array, finite: Array) -> bool:
    """Return whether some element moved by a large part of the largest number."""
    if not finite.any():
        return False
    both = finite & np.isfinite(made)
    with np.errstate(all="ignore"):
        distance = np.where(both, np.abs(made - numbers), 0.0)
    largest = np.max(np.abs(np.where(finite, numbers, 0)))
    return bool(np.max(distance) > LARGE * largest) and largest > 0


def _has_nan(wanted: Array) -> bool:
    kind = ElementType.from_dtype(wanted.dtype)
    return kind.is_complex or (kind.is_floating and bool(np.isnan(wide(wanted.dtype.type(np.nan)))))


def _with(wanted: Array, place: int, element: Any) -> Array:
    made = wanted.copy()
    made.reshape(-1)[place] = element
    return made
