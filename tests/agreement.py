"""Decide whether two values agree. All comparisons of arrays in tests are made here.

- `same`: the same bits (integers, moves, one rounding). Any NaN matches any NaN; zeros match by sign.
- `equal`: the same numbers; the element type and the sign of zeros are free.
- `within`: each element within a bound that the caller derives from the arithmetic.
- `near`: each element within a number of units in the last place of the wanted number, in the result's type.
- `computed`: results of a program: each element within the rounding error that the program can have there
(`hloom.debug.error_analysis`).

A bound belongs to one element. It is derived from the arithmetic, never fitted to a result. NaN and
infinities must be at the same positions, and shapes must be equal.

Each comparison checks itself: the wanted value is corrupted (zeros, negated, shuffled, one element moved by
four times its bound, an element replaced by its neighbor, NaN for a number, a number for NaN). A comparison
that accepts a corruption fails the test (`Toothless`), since on these data it could not detect such an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hloom.debug.agreement import agrees
from hloom.debug.error_analysis import ErrorAnalysis
from hloom.error_bounds.bounded import is_inexact_type
from hloom.error_bounds.floating import Array, same_bits, ulp, wide
from hloom.ir.module import HloModule
from tests.corruption import corruptions


class Toothless(AssertionError):
    """An oracle that accepts wrong values."""


# -- oracles


def same(got: Any, wanted: Any) -> None:
    """Assert equal structure, element types, shapes and bits; any NaN counts as any other."""
    for place, g, w in pairs(got, wanted):
        hold(_same, g, w, place)


def equal(got: Any, wanted: Any) -> None:
    """Assert equal shapes and numbers; element types and signs of zeros are free."""
    for place, g, w in pairs(got, wanted, types=False):
        hold(_equal, g, w, place)


def within(got: Any, wanted: Any, bound: Any, *, signs: bool = False) -> None:
    """Assert that each element lies within its bound, an array (or number) in the form of the value.

    Args:
        signs: zeros must have the signs of the wanted ones.
    """
    for place, g, w in pairs(got, wanted, types=False):
        hold(_agrees_in_signs if signs else agrees, g, w, place, _at(bound, place))


def near(got: Any, wanted: Any, units: float = 1.0, *, signs: bool = False) -> None:
    """Assert that each element lies within some units in the last place of the wanted number.

    Units are those of the result's type, so that wanted numbers may be given in f64. A complex number is
    measured by its absolute value.
    """
    for _, g, w in pairs(got, wanted, types=False):
        kind = next((a.dtype for a in (g, w) if is_inexact_type(a)), np.dtype(np.float64))
        within(g, w, units * ulp(np.abs(wide(w)), kind), signs=signs)


def computed(got: Any, module: HloModule, arguments: Sequence[Any], *, wanted: Any = None) -> None:
    """Assert that a result agrees with a module's, each element within its rounding error.

    The result has the form of the module's, or is a list of all its leaves.

    Args:
        wanted: another computation of it, in the same form; by default the evaluator's.
    """
    evaluated, bounds = ErrorAnalysis(module).run(arguments)
    if isinstance(got, list):
        evaluated, bounds = flat(evaluated), flat(bounds)
    wanted = evaluated if wanted is None else wanted
    for place, g, w in pairs(got, wanted):
        bound = _at(bounds, place)
        hold(agrees if np.any(bound) else _same, g, w, place, bound)


# -- elements


def _agrees_in_signs(got: Array, wanted: Array, bound: Any) -> Array:
    near = agrees(got, wanted, bound)
    for g, w in (
        ((got.real, wanted.real), (got.imag, wanted.imag)) if got.dtype.kind == "c" else ((got, wanted),)
    ):
        zeros = (wide(g) == 0) & (wide(w) == 0)
        near = near & ~(zeros & (np.signbit(wide(g)) != np.signbit(wide(w))))
    return near


def _same(got: Array, wanted: Array, bound: Any) -> Array:
    return same_bits(got, wanted)


def _equal(got: Array, wanted: Array, bound: Any) -> Array:
    if {got.dtype.kind, wanted.dtype.kind} <= set("iub"):
        return np.asarray(got == wanted)
    return agrees(got, wanted, 0.0)


# -- structure


def pairs(
    got: Any, wanted: Any, place: tuple[int, ...] = (), *, types: bool = True
) -> Iterator[tuple[Any, Array, Array]]:
    """Yield corresponding arrays of two values, with their position in the tuples."""
    if isinstance(wanted, tuple | list) and isinstance(got, tuple | list):
        assert len(got) == len(wanted), f"{len(got)} elements, {len(wanted)} wanted"
        for n, (g, w) in enumerate(zip(got, wanted)):
            yield from pairs(g, w, (*place, n), types=types)
        return
    if wanted is None or got is None:
        assert got is None and wanted is None, f"at {place}: {got} instead of {wanted}"
        return
    assert not isinstance(got, tuple), f"at {place}: a tuple instead of {wanted}"
    g, w = np.asarray(got), np.asarray(wanted)
    assert g.shape == w.shape, f"at {place}: shape {g.shape} instead of {w.shape}"
    assert not types or g.dtype == w.dtype, f"at {place}: {g.dtype} instead of {w.dtype}"
    yield place, g, w


def flat(value: Any) -> list[Any]:
    """Return the leaves of a value."""
    return [leaf for part in value for leaf in flat(part)] if isinstance(value, tuple) else [value]


def _at(bound: Any, place: tuple[int, ...]) -> Any:
    for number in place:
        if not isinstance(bound, tuple | list):
            break
        bound = bound[number]
    return np.asarray(bound, np.float64)


def hold(accepts: Any, got: Array, wanted: Array, place: Any, bound: Any = 0.0) -> None:
    """Assert that an oracle accepts every element of a result, and that it refuses corrupted ones."""
    with np.errstate(all="ignore"):
        _hold(accepts, got, wanted, place, bound)


def _hold(accepts: Any, got: Array, wanted: Array, place: Any, bound: Any) -> None:
    good = np.broadcast_to(np.asarray(accepts(got, wanted, bound)), wanted.shape)
    if not good.all():
        raise AssertionError(_report(got, wanted, good, place, bound))
    for name, corrupted in corruptions(wanted, bound, exact=accepts is _same):
        if np.all(accepts(corrupted, wanted, bound)):
            raise Toothless(
                f"at {place}: the comparison accepts the result {name}: {corrupted.reshape(-1)[:6]} "
                f"for {wanted.reshape(-1)[:6]}, bounds {np.broadcast_to(bound, wanted.shape).reshape(-1)[:6]}"
            )


def _report(got: Array, wanted: Array, good: Array, place: Any, bound: Any) -> str:
    where = np.argwhere(~good)
    spread = np.broadcast_to(bound, wanted.shape)
    lines = [f"at {place}: {len(where)} of {good.size} elements differ (index: got, wanted, bound)"]
    lines += [
        f"  {i.tolist()}: {got[tuple(i)]}, {wanted[tuple(i)]}, {spread[tuple(i)]:.3g}" for i in where[:8]
    ]
    return "\n".join(lines)
