"""The text of constants, in full or elided."""

from __future__ import annotations

from typing import Final

import numpy as np

from hloom.ir.print_options import PrintOptions
from hloom.shape.literal import Literal

_ELIDED: Final = "{...}"
_LARGE: Final = 10
_LARGEST_ESSENTIAL: Final = 500_000


def constant_text(literal: Literal, options: PrintOptions) -> str:
    """Return the text in the parentheses of a constant."""
    shape = literal.shape
    if options.print_only_essential_constants:
        return _essential_text(literal)
    if options.print_large_constants or (shape.is_array and shape.element_count <= _LARGE):
        return literal.to_text()
    return _ELIDED


def _essential_text(literal: Literal) -> str:
    """Return the text of a constant that is kept in fingerprints: zeros (except -0), ones, integers."""
    shape = literal.shape
    if not shape.is_array or literal.is_elided:
        return _ELIDED
    values = literal.numpy()
    if (values == 0).all() and not np.frombuffer(values.tobytes(), np.uint8).any():
        return "0"
    if (values == 1).all():
        return "1"
    if shape.element_type.is_integer and shape.element_count <= _LARGEST_ESSENTIAL:
        return literal.to_text()
    return _ELIDED
