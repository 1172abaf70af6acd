"""Fingerprints of modules, from which the keys of compiled code are made."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

import numpy as np

from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions
from hloom.ir.value import Array
from hloom.operations.structure import Constant
from hloom.shape.literal import Literal
from hloom.text.printer import print_module

_OPTIONS: Final = PrintOptions.short_parsable().replace(
    print_large_constants=False, print_control_dependencies=True, print_original_value=False
)


def fingerprint(module: HloModule) -> str:
    """Return a digest of a module's text and of the bytes of its constants.

    Raises EvaluationError for a constant whose elements were elided.
    """
    digest = hashlib.sha256(print_module(module, _OPTIONS).encode("utf-8", "surrogateescape"))
    for instruction in module.instructions():
        if isinstance(instruction.operation, Constant):
            try:
                for array in _arrays(instruction.operation.literal):
                    digest.update(array.view(np.uint8).data if array.size and array.ndim else array.tobytes())
            except HloError as error:
                raise error.at(instruction=instruction.name) from error.__cause__
    return digest.hexdigest()


def _arrays(literal: Literal) -> Iterator[Array]:
    """Yield the arrays of a literal, row-major."""
    if literal.shape.is_tuple:
        for element in literal.elements:
            yield from _arrays(element)
    elif literal.shape.is_array:
        yield np.ascontiguousarray(literal.array)
