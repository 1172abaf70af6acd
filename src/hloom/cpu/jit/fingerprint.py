"""Fingerprints of modules, from which the keys of compiled code are made."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np

from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.text.options import PrintOptions
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
        if instruction.opcode == "constant":
            literal: Any = getattr(instruction.operation, "literal", None)
            if literal is not None:
                try:
                    _add(digest, literal.numpy())
                except HloError as error:
                    raise error.at(instruction=instruction.name) from error.__cause__
    return digest.hexdigest()


def _add(digest: Any, value: object) -> None:
    if isinstance(value, tuple):
        for element in cast("Sequence[object]", value):
            _add(digest, element)
    elif value is not None:
        array = np.ascontiguousarray(cast("Any", value))
        digest.update(array.view(np.uint8).data if array.size and array.ndim else array.tobytes())
