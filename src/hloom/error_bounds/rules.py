"""Error rules shared by operations: a class states one of them as its ``errors`` or ``propagate``.

Each is a method that takes the `ErrorRun` and returns the largest error of each result element. Values that
decide (an index, the condition of a selection) may lie within their errors of another one. Either outcome is
then correct, and the bound spans both.
"""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np

from hloom.error_bounds.bounded import Bounded, bounded, distance, finite, is_inexact_type, parts_of
from hloom.error_bounds.floating import Array, ulp, wide
from hloom.errors import NoBound
from hloom.ir.operation import ErrorRun, Operation
from hloom.ir.traits import Roundoff
from hloom.shape.element_type import ElementType

ULPS: Final = 4.0
"""Largest distance in ulp of two results of a real function, each at most 2 ulp off."""
COMPLEX_ULPS: Final = 32.0
"""The same for a complex function, in units of the larger part."""


# -- elements


def rounding(roundoff: Roundoff, value: Array, errors: Array, *, inexact: bool) -> Array:
    """Return the rounding error of elementwise results.

    Results below 32 bits are computed in a wider type and rounded once.

    Args:
        roundoff: roundings of the operation.
        value, errors: its result, and the errors that the operands cause.
        inexact: whether any operand has errors; equal operands rounded once give equal bits.
    """
    if roundoff is Roundoff.NONE or (roundoff is Roundoff.ONCE and not inexact):
        return np.zeros(value.shape)
    if value.dtype.kind == "c":
        units = ULPS if roundoff is Roundoff.ONCE else COMPLEX_ULPS
    else:
        narrow = ElementType.from_dtype(value.dtype).bits < 32
        units = 1.0 if narrow or roundoff is Roundoff.ONCE else ULPS
    return units * ulp(finite(value) + errors, value.dtype)


def added(self: Operation, run: ErrorRun) -> Array:
    """Add the errors of the operands: sums, differences, and functions with slope 1."""
    errors: Array = run.operands[0].spread
    for operand in run.operands[1:]:
        errors = errors + operand.spread
    return errors


def multiplied(self: Operation, run: ErrorRun) -> Array:
    """Bound the errors of products."""
    x, y = run.operands
    a, b = magnitude(x), magnitude(y)
    return a * y.spread + x.spread * b + x.spread * y.spread


def largest(self: Operation, run: ErrorRun) -> Array:
    """Return the largest error of the operands, one of which is the result; complex order is not analysed."""
    if run.value.dtype.kind == "c":
        raise no_bound(run)
    return np.max(np.broadcast_arrays(*(o.spread for o in run.operands)), axis=0)


def monotone(self: Operation, run: ErrorRun) -> Array:
    """Return the largest change of a real function at the ends of its arguments' intervals."""
    if run.value.dtype.kind == "c":
        raise no_bound(run)
    values = [wide(o.value) for o in run.operands]
    middle = run.apply(values)
    worst = np.zeros(middle.shape)
    for signs in np.ndindex(*[2] * len(values)):
        ends = [v + (2 * s - 1) * o.spread for v, o, s in zip(values, run.operands, signs, strict=True)]
        worst = np.maximum(worst, distance(run.apply(ends), middle))
    return worst


def any_bits(self: Operation, run: ErrorRun) -> Array:
    """Return infinity for integers computed from the bits of undecided integers."""
    if is_inexact_type(run.value):
        raise no_bound(run)
    undecided = np.logical_or.reduce(np.broadcast_arrays(*(o.spread > 0 for o in run.operands)))
    return np.where(undecided, np.inf, 0.0)


def wrapped(value: Array, errors: Array) -> Array:
    """Return the errors of integers; infinity where a number may leave its type, and so wrap around."""
    exact = np.asarray(errors) == 0
    if value.dtype.kind not in "iu" or not value.dtype.itemsize:
        return np.where(exact, 0.0, np.inf)
    limits = np.iinfo(value.dtype)
    in_range = (wide(value) - errors >= limits.min) & (wide(value) + errors <= limits.max)
    return np.where(exact | in_range, errors, np.inf)


# -- movement


def linear(self: Operation, run: ErrorRun) -> Array:
    """Apply the operation to the errors of all operands."""
    return moved(run, len(run.operands))


def linear_in_first(self: Operation, run: ErrorRun) -> Array:
    """Apply the operation to the errors of its first operand; the others are sizes."""
    return moved(run, 1)


def independent(self: Operation, run: ErrorRun) -> Array:
    """Return zeros: the result depends on the operands' sizes only."""
    return np.zeros(np.shape(run.value))


def moved(run: ErrorRun, count: int) -> Array:
    """Apply an instruction to the errors of its first operands and to the values of the others."""
    return run.apply([o.spread if n < count else o.value for n, o in enumerate(run.operands)])


def indexed(self: Operation, run: ErrorRun) -> Array:
    """Bound elements at undecided indices by all elements of the array; others keep their own errors."""
    array, *indices = run.operands
    errors = moved(run, 1)
    if all(index.error is None for index in indices):
        return errors
    numbers: Array = np.arange(array.value.size, dtype=np.float64)
    numbers = numbers.reshape(array.value.shape)
    ends = [run.apply([numbers, *(_end_of_index(index, sign) for index in indices)]) for sign in (-1, 1)]
    return np.where(ends[0] != ends[1], span(array), errors)


def _end_of_index(index: Bounded, sign: int) -> Array:
    limits = np.iinfo(index.value.dtype)
    end = wide(index.value) + sign * index.spread
    return np.clip(end, limits.min, limits.max).astype(index.value.dtype)


def span(*arrays: Bounded) -> float:
    """Return the distance of the largest and the smallest element of all arrays, with their errors."""
    if any(np.iscomplexobj(a.value) for a in arrays):
        return max(float(2 * np.max(np.abs(wide(a.value)) + a.spread, initial=0.0)) for a in arrays)
    ends = [wide(a.value) + s * a.spread for a in arrays for s in (-1, 1)]
    most = max(float(np.max(e, initial=-np.inf)) for e in ends)
    return most - min(float(np.min(e, initial=np.inf)) for e in ends)


# -- alternatives


def either(a: Any, b: Any) -> Any:
    """Return the value ``a`` with bounds that include ``b``; of tuples each element."""
    if isinstance(a, tuple):
        return tuple(either(x, y) for x, y in zip(parts_of(cast("Any", a)), b, strict=True))
    return a if a.value is None else bounded(a.value, apart(a, b))


def apart(a: Bounded, b: Bounded) -> Array:
    """Return the errors of elements that are those of either array."""
    return distance(a.value, b.value) + np.maximum(a.spread, b.spread)


def magnitude(x: Bounded) -> Array:
    """Return magnitudes in f64; infinities and NaN count as 0."""
    return finite(x.value)


def no_bound(run: ErrorRun, reason: str = "of inexact operands has no bound") -> NoBound:
    """Return the error that an instruction has no bound."""
    return NoBound(f"{run.instruction.opcode} %{run.instruction.name} {reason}")
