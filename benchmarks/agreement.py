"""Comparison of the results of two sides, up to the rounding of floats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
ROUNDINGS = 2.0**14
"""Units in the last place of the largest element by which results may differ: sums of thousands of terms."""

FEW = 1e-3
"""The part of integers that may differ: those that were chosen by comparing floats."""


@dataclass(frozen=True)
class Agreement:
    """The difference of two results.

    Attributes:
        agree: whether they are equal up to rounding.
        worst: the largest difference, relative to the largest element of the same array; for integers the
            fraction of elements that differ.
    """

    agree: bool
    worst: float

    def __str__(self) -> str:
        return ("yes" if self.agree else "NO") + (f" {self.worst:.0e}" if self.worst else "")


def agreement(ours: Sequence[Array], theirs: Sequence[Array]) -> Agreement:
    """Compare the leaves of two results."""
    if [a.shape for a in ours] != [b.shape for b in theirs]:
        return Agreement(False, float("inf"))
    pairs = [_difference(a, b) for a, b in zip(ours, theirs, strict=True) if a.size]
    return Agreement(all(ok for ok, _ in pairs), max((worst for _, worst in pairs), default=0.0))


def _difference(a: Array, b: Array) -> tuple[bool, float]:
    kind = np.dtype(a.dtype).kind
    if kind in "iub":
        wrong = float(np.mean(a != b))
        return wrong <= FEW, wrong
    wide: Any = np.complex128 if kind == "c" else np.float64
    x, y = a.astype(wide), b.astype(wide)
    finite = np.isfinite(x) & np.isfinite(y)
    same = bool(np.array_equal(x[~finite], y[~finite], equal_nan=True))
    if not finite.any():
        return same, 0.0 if same else float("inf")
    largest = float(np.max(np.abs(y[finite]))) or 1.0
    worst = float(np.max(np.abs(x[finite] - y[finite]))) / largest
    unit = float(ml_dtypes.finfo(a.real.dtype).eps)
    return same and worst <= min(ROUNDINGS * unit, 0.05), worst
