"""Values of programs on fingerprints: arrays, and nested tuples of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from hloom.proofs import field
from hloom.proofs.field import salt_of
from hloom.proofs.prints import Prints
from hloom.proofs.sums import TooLarge
from hloom.shape.shape import Shape

MOST_ELEMENTS: Final = 1 << 25
"""Maximum number of elements of an array."""


def unknown(shape: Shape, name: str) -> Any:
    """Return the fingerprints of an unknown value of a shape; equal names give equal fingerprints.

    Raises TooLarge if an array is dynamic or too large.
    """
    if shape.is_tuple:
        return tuple([unknown(each, f"{name}.{n}") for n, each in enumerate(shape.tuple_shapes)])
    if not shape.is_array:
        return None
    if shape.is_dynamic or shape.is_unbounded or shape.element_count > MOST_ELEMENTS:
        raise TooLarge("sizes are dynamic or too large")
    positions = np.arange(shape.element_count, dtype=np.uint64).reshape(shape.dimensions)
    return Prints(np.asarray(field.mix(salt_of("unknown", name), positions)))


def mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """Return a value, an array or nested tuples of arrays, with a function applied to each array."""
    if isinstance(value, tuple):
        return tuple([mapped(part, function) for part in value])  # pyright: ignore[reportUnknownVariableType]
    return None if value is None else function(value)


def hash_of(value: Any) -> int:
    """Return one hash of all fingerprints of a value, an array or nested tuples of arrays."""
    if isinstance(value, tuple):
        return salt_of(*map(hash_of, value))  # pyright: ignore[reportUnknownArgumentType]
    return int(value.whole(0)) if isinstance(value, Prints) else 0
