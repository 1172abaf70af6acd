"""Values with error bounds, and the interface through which operations bound the errors of their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from hloom.errors import HloError
from hloom.ir.value import Array

if TYPE_CHECKING:
    from hloom.ir.instruction import HloInstruction


class NoBound(HloError):
    """Rounding errors affect a result without limit, or the operation has no rule for them."""

    def __init__(self, message: str) -> None:
        super().__init__(message, rule="check.no-bound")


@dataclass(frozen=True)
class Bounded:
    """An array (or token) and the largest error of each element in f64; None if all are exact.

    The error of a predicate is 1 where rounding decides it; the error of an integer is a distance.
    """

    value: Any
    error: Array | None = None

    @property
    def spread(self) -> Array:
        """Return the errors as an array, zeros if the value is exact."""
        return np.zeros(np.shape(self.value)) if self.error is None else self.error


Tree: TypeAlias = "Bounded | tuple[Tree, ...]"
"""A value with error bounds: an array, or a tuple of values."""


class ErrorRun(Protocol):
    """The error analysis of one instruction, as its operation sees it."""

    @property
    def instruction(self) -> HloInstruction:
        """The analysed instruction."""
        ...

    @property
    def operands(self) -> Sequence[Any]:
        """The operands with error bounds."""
        ...

    @property
    def value(self) -> Any:
        """The value of the instruction, in the types of its shape."""
        ...

    @property
    def inexact(self) -> bool:
        """Whether any operand has errors."""
        ...

    def apply(self, operands: Sequence[Any], output: int | None = None) -> Array:
        """Evaluate the instruction in f64 on other values of its operands; complex results as magnitudes.

        Args:
            operands: an array, or a value, for each operand.
            output: the result wanted from an instruction with several.
        """
        ...

    def call(self, index: int, *operands: Any) -> Any:
        """Bound the errors of the called computation number ``index``."""
        ...

    def map(self, index: int, *operands: Bounded) -> Bounded:
        """Bound the errors of a computation of scalars applied to whole arrays; raise NoBound if it loops."""
        ...

    def bounded(self) -> Any:
        """Return the value with the bounds that `Operation.errors` gives."""
        ...
