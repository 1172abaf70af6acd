"""The types of values during evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, Any]
    """A value of array shape; dynamic dimensions have their actual size."""
    Value: TypeAlias = "Array | tuple[Value, ...] | None"
    """An array, a tuple of values, or None for a token."""
else:
    Array = Value = Any
