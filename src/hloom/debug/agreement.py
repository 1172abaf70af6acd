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
    """The outcome of comparing an array with a reference array, element by element.

    Attributes:
        name: the path of the array in the result: ``result``, ``result.1.0``, ``device 1 result``.
        shape: the shape, as text.
        elements: the number of elements.
        unequal: the number of elements with different bits; any NaN equals any other.
        wrong: the number of elements that differ from the reference by more than their bound.
        unjudged: the number of unequal elements whose bound is infinite, that is, not known.
        ulps, difference: the largest finite difference, in units in the last place and as an absolute number;
            for integers and predicates the unit is 1, so that both are equal.
        index: the index of the element furthest beyond its bound; if no element is beyond its bound, that of
            the largest difference, among the unjudged elements if there are any.
        got, expected, bound: the element, its reference and its bound at this index; None, None and 0 if the
            array is empty.
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
        """True if no element is beyond its bound, and every unequal element has a finite bound."""
        return self.wrong == 0 and self.unjudged == 0


def compare(got: Value, wanted: Value, bounds: Bounds, name: str = "result") -> list[Comparison]:
    """Compare two values, each an array or a nested tuple; return a comparison for each array, in order.

    Args:
        got: the computed value.
        wanted: the reference.
        bounds: the allowed difference of each element, nested like the values; a number applies to all
            elements.
        name: the name of the value in the comparisons; those of tuple elements append their indices.

    Raises EvaluationError (rule ``check.form``) if structures, shapes or element types differ.
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
        units = finite / _unit(np.maximum(np.abs(wide(wanted)), np.abs(wide(got))), got.dtype)
        beyond = np.where(good, -1.0, np.nan_to_num(distance - allowed, nan=np.inf, posinf=np.inf))
        beyond = np.where(good, beyond, np.maximum(beyond, 0.0))
    worst = beyond if not good.all() else finite * (unjudged if unjudged.any() else 1.0)
    index = tuple(int(n) for n in np.unravel_index(int(np.argmax(worst)), got.shape))
    counts = got.size, int((~equal).sum()), int((~good).sum()), int(unjudged.sum())
    there = got[index].item(), wanted[index].item(), float(allowed[index])
    return Comparison(name, shape, *counts, float(units.max()), float(finite.max()), index, *there)


def _unit(sizes: Array, dtype: np.dtype) -> Any:
    """Return the unit of distances between numbers of these magnitudes: that in the last place.

    For a complex type, it is that of the real part's type; for integers and predicates, the unit is 1.
    """
    return ulp(sizes, dtype) if component(dtype).is_floating else 1.0


# -- elements


def within(got: Array, wanted: Array, bound: Bounds) -> Array:
    """Return a boolean mask of the elements of ``got`` that differ from ``wanted`` by at most ``bound``.

    If all bounds are 0, the bits must be equal, except that any NaN equals any other.
    """
    with np.errstate(all="ignore"):
        allowed = np.broadcast_to(np.asarray(bound, np.float64), got.shape)
        equal = np.broadcast_to(same_bits(got, wanted), got.shape)
        near = agrees(got, wanted, allowed) & ((allowed > 0) | (got.dtype.kind not in "biu"))
    return equal | near if np.any(allowed) else equal


def agrees(got: Array, wanted: Array, bound: Bounds) -> Array:
    """Return a boolean mask of the elements whose values in ``got`` and ``wanted`` agree within ``bound``.

    NaN agrees with NaN, and 0 with -0. With an infinite bound, any two values agree. An infinity agrees with
    a finite number if the bound is so large that the number could have overflowed.
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
