"""Tolerances: bounds of the difference between two correct computations of a program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from hloom.debug.error_analysis import ErrorAnalysis, NoBound
from hloom.debug.floating import ulp, wide
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.shape.element_type import ElementType

_NUMBER: Final = r"\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
_ULPS: Final = re.compile(rf"({_NUMBER})\s*ulps?")
_RELATIVE: Final = re.compile(rf"(?:rtol=({_NUMBER}))?,?(?:atol=({_NUMBER}))?")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The distance allowed for each element.

    Attributes:
        ulps: units in the last place of the wanted number; 0 demands equal bits.
        rtol, atol: ``rtol * abs(wanted) + atol``.

    If none is given, the distance is the largest rounding error that the program can have there for the
    arguments (`ErrorAnalysis`).
    """

    ulps: float | None = None
    rtol: float | None = None
    atol: float | None = None

    @staticmethod
    def parse(text: str) -> Tolerance:
        """Parse ``analysis``, ``exact``, ``4ulp``, ``rtol=1e-5``, ``atol=1e-8`` or ``rtol=1e-5,atol=1e-8``.

        Raises HloError by ``check.tolerance``.
        """
        if text == "analysis":
            return Tolerance()
        if text == "exact":
            return Tolerance(ulps=0.0)
        units = _ULPS.fullmatch(text)
        if units is not None:
            return Tolerance(ulps=float(units[1]))
        found = _RELATIVE.fullmatch(text) if text else None
        if found is None:
            message = f"a tolerance is analysis, exact, 4ulp, or rtol=1e-5,atol=1e-8, not {text!r}"
            raise HloError(message, rule="check.tolerance")
        return Tolerance(rtol=float(found[1] or 0), atol=float(found[2] or 0))

    @property
    def analyses(self) -> bool:
        """Return whether distances come from the error analysis."""
        return self.ulps is None and self.rtol is None and self.atol is None

    def bounds(self, module: HloModule, arguments: Sequence[Any], wanted: Any) -> Any:
        """Return the allowed distance of each element of a result; raise NoBound if there is none."""
        if self.analyses:
            return analysed(module, arguments)
        return self._around(wanted)

    def _around(self, wanted: Any) -> Any:
        if isinstance(wanted, tuple):
            return tuple([self._around(part) for part in wanted])  # pyright: ignore[reportUnknownVariableType]
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


def analysed(module: HloModule, arguments: Sequence[Any]) -> Any:
    """Return the bounds of a program's rounding errors; raise NoBound if an operation has no rule."""
    try:
        return ErrorAnalysis(module).run(arguments)[1]
    except (KeyError, AttributeError, TypeError, AssertionError, IndexError, ValueError) as error:
        if isinstance(error, HloError):
            raise
        raise NoBound(f"the error analysis has no rule for a part of this program ({error})") from error
