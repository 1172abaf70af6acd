"""Tolerances: bounds of the difference between two correct computations of a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from hloom.debug.error_analysis import ErrorAnalysis
from hloom.debug.sampling import sampled
from hloom.error_bounds.bounded import Bounds, finite, is_inexact_type, parts_of
from hloom.error_bounds.floating import ulp, wide
from hloom.errors import HloError, NoBound
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.module import HloModule
from hloom.ir.value import Value
from hloom.records import dataclass
from hloom.regex import regex
from hloom.shape.element_type import ElementType

LOOSE: Final = 1 / 8
"""Bounds above this fraction of an array's largest number are loose; for integers see `is_loose`."""
GROWTH: Final = "rounding errors grow as large as the numbers"
"""The reason why differing elements have no bound."""
_NUMBER: Final = r"\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
_ULPS: Final = regex(rf"({_NUMBER})\s*ulps?")
_RELATIVE: Final = regex(rf"(?:rtol=({_NUMBER}))?,?(?:atol=({_NUMBER}))?")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The allowed difference between a result's elements and the reference.

    Attributes:
        ulps: the difference in units in the last place of the reference; 0 demands equal bits.
        rtol, atol: the difference is ``rtol * abs(reference) + atol``; None is 0 if the other is stated.

    If any is stated, integers and predicates must be equal. If all are None, the bound of an element is the
    largest rounding error that the program may make on the arguments (`ErrorAnalysis`) or, where that is not
    known, a bound estimated from runs with random errors (`sampled`).
    """

    ulps: float | None = None
    rtol: float | None = None
    atol: float | None = None

    @staticmethod
    def parse(text: str) -> Tolerance:
        """Parse ``analysis``, ``exact``, ``4ulp``, ``rtol=1e-5``, ``atol=1e-8`` or ``rtol=1e-5,atol=1e-8``.

        Raises HloError (rule ``check.tolerance``) for any other text.
        """
        if text == "analysis":
            return Tolerance()
        if text == "exact":
            return Tolerance(ulps=0.0)
        units = _ULPS.fullmatch(text)
        if units is not None:
            return Tolerance(ulps=float(units[1]))
        match = _RELATIVE.fullmatch(text) if text else None
        if match is None:
            message = f"a tolerance is analysis, exact, 4ulp, or rtol=1e-5,atol=1e-8, not {text!r}"
            raise HloError(message, rule="check.tolerance")
        return Tolerance(rtol=float(match[1] or 0), atol=float(match[2] or 0))

    @property
    def analyses(self) -> bool:
        """True if no tolerance is stated, so that the bounds come from the error analysis."""
        return self.ulps is None and self.rtol is None and self.atol is None

    def bounds(self, module: HloModule, arguments: Sequence[Value], wanted: Value) -> Bounds:
        """Return the difference from ``wanted`` that this tolerance allows for each element of a result.

        The bounds are nested like the result, and infinite where none is known.
        """
        return analysed(module, arguments) if self.analyses else self._around(wanted)

    def bounds_of_devices(
        self, module: HloModule, arguments: Sequence[Sequence[Value]], wanted: Sequence[Value]
    ) -> list[Bounds]:
        """Return, for each device, the differences from ``wanted`` that this tolerance allows for its result.

        ``arguments`` and ``wanted`` have an item for each device. For several devices, bounds of rounding
        errors come from runs with random errors (`sampled`).
        """
        if self.analyses and len(wanted) > 1:
            return sampled(module, arguments, wanted)
        return [self.bounds(module, a, w) for a, w in zip(arguments, wanted, strict=True)]

    def _around(self, wanted: Value) -> Bounds:
        if isinstance(wanted, tuple):
            return tuple([self._around(part) for part in wanted])
        if wanted is None:
            return 0.0
        array = np.asarray(wanted)
        kind = ElementType.from_dtype(array.dtype)
        if not (kind.is_floating or kind.is_complex):
            return 0.0
        sizes = np.nan_to_num(np.abs(wide(array)), nan=0.0, posinf=0.0)
        if self.ulps is not None:
            return self.ulps * ulp(sizes, array.dtype) if self.ulps else 0.0
        return (self.rtol or 0.0) * sizes + (self.atol or 0.0)


def analysed(module: HloModule, arguments: Sequence[Value]) -> Bounds:
    """Return the bounds of a program's rounding errors for given arguments, nested like its result.

    They come from error analysis. For arrays whose bounds are too large (`is_loose`), runs with random errors
    (`sampled`) replace larger bounds. A bound is infinite where neither method finds one.
    """
    try:
        value, bounds = ErrorAnalysis(module).run(arguments)
    except NoBound:
        return sampled(module, [arguments], [Evaluator().run(module.entry, arguments)])[0]
    if not is_loose(value, bounds):
        return bounds
    return tightened(value, bounds, sampled(module, [arguments], [value])[0])


def is_loose(value: Value, bounds: Bounds) -> bool:
    """Return whether the bounds of any array in ``value`` are so large that wrong results are within them.

    For floats, this is a bound above the fraction `LOOSE` of the array's largest number. For integers and
    predicates, it is an infinite bound, or nonzero bounds for more than the fraction `LOOSE` of the elements.
    """
    if isinstance(value, tuple):
        return any(is_loose(v, b) for v, b in zip(value, parts_of(bounds), strict=True))
    assert not isinstance(bounds, tuple)
    if value is None or not value.size or not np.any(bounds):
        return False
    if is_inexact_type(value):
        return bool(np.max(bounds) > LOOSE * np.max(finite(value)))
    return bool(np.isinf(bounds).any() or np.mean(np.asarray(bounds) > 0) > LOOSE)


def tightened(value: Value, bounds: Bounds, others: Bounds) -> Bounds:
    """Return ``bounds``, lowered to ``others`` where these are less in arrays whose bounds are loose.

    Args:
        value: the result that the bounds are for; `is_loose` compares its elements with them.
        bounds: error bounds of its elements.
        others: error bounds of the same elements from a different analysis.
    """
    if isinstance(value, tuple):
        parts = zip(value, parts_of(bounds), parts_of(others), strict=True)
        return tuple([tightened(v, b, o) for v, b, o in parts])
    assert not isinstance(bounds, tuple) and not isinstance(others, tuple)
    return np.minimum(bounds, others) if is_loose(value, bounds) else bounds


def unlimited(module: HloModule, arguments: Sequence[Value]) -> str:
    """Return the reason, as text, why elements of a program's result have no bound."""
    analysis = ErrorAnalysis(module)
    try:
        analysis.run(arguments)
    except NoBound as error:
        return f"{GROWTH} ({error.message})"
    location = f"; first in {analysis.unlimited}" if analysis.unlimited else ""
    return f"{GROWTH}{location}"
