"""Comparison of two results of one program, element by element, within given bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hloom.error_bounds.bounded import Bounds
from hloom.error_bounds.floating import Array, component, just_overflowed, same_bits, ulp, wide
from hloom.errors import EvaluationError
from hloom.ir.value import Value
from hloom.records import dataclass
from hloom.shape.element_type import ElementType
from hloom.shape.shape import Shape


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of comparing an array with the wanted one, element by element.

    Attributes:
        name: the path of the array in the result: ``result``, ``result.1.0``, ``device 1 result``.
        shape: the shape, as text.
        elements: the number of elements.
        unequal: the number of elements with different bits; any NaN equals any other.
        wrong: the number of elements that differ by more than their bound.
        unjudged: the number of unequal elements whose bound is infinite, that is, not known.
        ulps, difference: the largest distance of finite elements, in units in the last place and absolute.
        index: the element furthest beyond its bound; if none is, the one with the largest distance.
        got, expected, bound: the two values and the bound at this index; None, None and 0 in an empty array.
    """

    name: str
    shape: str
    elements: int
    unequal: int
    wrong: int
    unjudged: int
    ulps: float
    difference: float
    index: tuple[int, ...]
    got: Any
    expected: Any
    bound: float

    @property
    def agrees(self) -> bool:
        """True if all elements of the compared array are within their bounds, finite ones if unequal."""
        return self.wrong == 0 and self.unjudged == 0


def compare(got: Value, wanted: Value, bounds: Bounds, name: str = "result") -> list[Comparison]:
    """Compare two values, arrays or nested tuples; return a comparison for each array, in order.

    Args:
        got, wanted: the values.
        bounds: the allowed distance of each element, in the structure of the values; a number applies to all.
        name: the name of the values in the comparisons.

    Raises EvaluationError by the rule ``check.form`` if structures, shapes or element types differ.
    """
    return [_compared(location, g, w, b) for location, g, w, b in _leaves(got, wanted, bounds, name)]


def _leaves(
    got: Value, wanted: Value, bounds: Bounds, name: str
) -> Iterator[tuple[str, Array, Array, Bounds]]:
    if isinstance(wanted, tuple) and isinstance(got, tuple):
        if len(got) != len(wanted):
            raise _other_form(name, got, wanted)
        for n, (g, w) in enumerate(zip(got, wanted, strict=True)):
            yield from _leaves(g, w, bounds[n] if isinstance(bounds, tuple) else bounds, f"{name}.{n}")
        return
    if got is None and wanted is None:
        return
    if got is None or wanted is None or isinstance(got, tuple) or isinstance(wanted, tuple):
        raise _other_form(name, got, wanted)
    g, w = np.asarray(got), np.asarray(wanted)
    if g.shape != w.shape or g.dtype != w.dtype:
        raise _other_form(name, g, w)
    yield name, g, w, bounds


def _other_form(name: str, got: Value, wanted: Value) -> EvaluationError:
    message = f"{name} is {form_text(got)} in one run and {form_text(wanted)} in the other"
    return EvaluationError(message, rule="check.form")


def form_text(value: Value) -> str:
    """Return the shape of a value as text without layout, such as ``(f32[2], token[])``."""
    if isinstance(value, tuple):
        return "(" + ", ".join(form_text(v) for v in value) + ")"
    return "token[]" if value is None else Shape.of(np.asarray(value)).to_string(layout=False)


def _compared(name: str, got: Array, wanted: Array, bound: Bounds) -> Comparison:
    shape = form_text(got)
    if not got.size:
        return Comparison(name, shape, 0, 0, 0, 0, 0.0, 0.0, (), None, None, 0.0)
    with np.errstate(all="ignore"):
        allowed = np.broadcast_to(np.asarray(bound, np.float64), got.shape)
        equal = np.broadcast_to(same_bits(got, wanted), got.shape)
        good = within(got, wanted, allowed)
        unjudged = ~equal & (allowed == np.inf)
        distance = np.abs(wide(got) - wide(wanted))
        finite = np.where(np.isfinite(distance), distance, 0.0)
        units = finite / ulp(np.maximum(np.abs(wide(wanted)), np.abs(wide(got))), _measure(got))
        beyond = np.where(good, -1.0, np.nan_to_num(distance - allowed, nan=np.inf, posinf=np.inf))
        beyond = np.where(good, beyond, np.maximum(beyond, 0.0))
    worst = beyond if not good.all() else finite * (unjudged if unjudged.any() else 1.0)
    index = tuple(int(n) for n in np.unravel_index(int(np.argmax(worst)), got.shape))
    counts = got.size, int((~equal).sum()), int((~good).sum()), int(unjudged.sum())
    there = got[index].item(), wanted[index].item(), float(allowed[index])
    return Comparison(name, shape, *counts, float(units.max()), float(finite.max()), index, *there)


def _measure(array: Array) -> Any:
    """Return the float type in whose ulps the distances between elements of ``array`` are measured.

    It is the array's own type, that of the parts of complex numbers, or f64 for integers and predicates.
    """
    kind = component(array.dtype)
    return kind.numpy_dtype if kind.is_floating else np.float64


# -- elements


def within(got: Array, wanted: Array, bound: Bounds) -> Array:
    """Return a boolean mask of the elements of ``got`` that differ from ``wanted`` by at most ``bound``.

    If all bounds are 0, the bits must be equal, but any NaN equals any other.
    """
    with np.errstate(all="ignore"):
        allowed = np.broadcast_to(np.asarray(bound, np.float64), got.shape)
        equal = np.broadcast_to(same_bits(got, wanted), got.shape)
        near = agrees(got, wanted, allowed) & ((allowed > 0) | (got.dtype.kind not in "biu"))
    return equal | near if np.any(allowed) else equal


def agrees(got: Array, wanted: Array, bound: Bounds) -> Array:
    """Return a boolean mask of the elements of ``got`` and ``wanted`` whose values agree within ``bound``.

    NaN agrees with NaN, 0 with -0, any numbers if their bound is infinite, and an infinity with a finite
    number whose bound reaches the overflow threshold.
    """
    with np.errstate(all="ignore"):
        return _agrees(got, wanted, bound)


def _agrees(got: Array, wanted: Array, bound: Bounds) -> Array:
    g, w = wide(got), wide(wanted)
    finite = np.isfinite(g) & np.isfinite(w)
    near = (g == w) | (np.abs(g - w) <= bound)
    if got.dtype.kind == "c" or wanted.dtype.kind == "c":
        # A number with an infinite or NaN part has no magnitude: each part is compared separately.
        parts = _agrees(g.real, w.real, bound) & _agrees(g.imag, w.imag, bound)
        return (finite & near) | (~finite & parts)
    allowed: Array = np.asarray(bound, np.float64)
    agrees: Array = (finite & near) | (~finite & (g == w)) | (np.isnan(g) & np.isnan(w)) | (allowed == np.inf)
    may_overflow = got.dtype == wanted.dtype and bool(np.any(allowed > 0)) and not finite.all()
    if may_overflow and ElementType.from_dtype(got.dtype).is_floating:
        overflowed = just_overflowed(got, wanted, bound) | just_overflowed(wanted, got, bound)
        agrees = agrees | ((allowed > 0) & overflowed)
    return np.asarray(agrees)
