"""Error bounds of sums: how roundings grow with the number of terms, and contractions."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.error_bounds.bounded import finite, is_inexact_type
from hloom.error_bounds.floating import Array, eps, ulp
from hloom.error_bounds.rules import no_bound
from hloom.ir.operation import ErrorRun, Operation
from hloom.shape.element_type import F32, ElementType


def growth(terms: object) -> Any:
    """Return the error of a sum of n terms in eps of the sum of magnitudes: n, from 16 terms on 4 √n.

    Independent roundings grow with the root (Higham and Mary 2019); four times the root is practically never
    reached.
    """
    count = np.maximum(np.asarray(terms, np.float64), 1.0)
    return np.minimum(count, 4 * np.sqrt(count))


def accumulated(value: Array, size: Array, rate: Any, errors: Array, *, in_place: bool = False) -> Array:
    """Return the rounding error of a sum, twice because both compared computations round.

    Sums of floats are formed in f32 at least; with ``in_place`` each partial sum is rounded to the result's
    type.

    Args:
        value: the results.
        size: the sum of the terms' magnitudes.
        rate: the `growth` of the number of terms.
        errors: errors that the operands cause.
    """
    kind = ElementType.from_dtype(value.dtype).component
    if not kind.is_floating:
        return np.zeros(value.shape)
    unit = eps(value.dtype) if in_place else min(eps(value.dtype), eps(np.float32))
    parts = 2.0 if value.dtype.kind == "c" else 1.0
    rounding = 2 * parts * rate * unit * finite(size)
    # Subnormal numbers: a product below the least of the type loses up to that much.
    least = rate * float(np.finfo(np.float64 if kind.bits == 64 else np.float32).smallest_subnormal)
    rounding = rounding + np.where(size > 0, least, 0.0)
    # Where partial sums can overflow, another order gives an infinity, its opposite or NaN.
    accumulator = kind if in_place or kind.bits >= 32 else F32
    rounding = np.where(size + errors <= float(accumulator.limits[1]), rounding, np.inf)
    return rounding + (ulp(finite(value) + errors + rounding, value.dtype) if kind.bits < 32 else 0.0)


def sum_of_products(self: Operation, run: ErrorRun) -> Array:
    """Bound a contraction of floats by `growth` times eps of the sum of the products' magnitudes."""
    if not is_inexact_type(run.value):
        raise no_bound(run)
    sizes = [finite(o.value) + o.spread if is_inexact_type(o.value) else o.value for o in run.operands]
    size = run.apply(sizes)
    errors = np.zeros(run.value.shape)
    for n, operand in enumerate(run.operands):
        if operand.error is not None:
            errors = errors + run.apply([*sizes[:n], operand.error, *sizes[n + 1 :]])
    terms = self.terms(*(np.shape(o.value) for o in run.operands))
    return errors + accumulated(run.value, size, growth(terms), errors, in_place=run.rounds_partial_sums)
