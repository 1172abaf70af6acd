"""Evaluate HLO text in tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom.operations  # noqa: F401  (declares the operations)
from hloom.errors import HloError
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.module import HloModule


def parse(text: str) -> HloModule:
    """The module of a text; a bare list of instructions becomes the body of an entry."""
    if "HloModule" not in text:
        text = "HloModule test\n" + (text if "ENTRY" in text else f"ENTRY entry {{\n{text}\n}}")
    return HloModule.from_text(text)


def evaluate(text: str, *arguments: Any) -> Any:
    """The value of a program after it was verified."""
    module = parse(text)
    module.verify()
    values = [a if isinstance(a, tuple) or a is None else np.asarray(a) for a in arguments]
    return Evaluator().run(module.entry, values)


def refused(text: str) -> HloError:
    """The error with which parsing or verifying a program ends."""
    with pytest.raises(HloError) as caught:
        parse(text).verify()
    return caught.value
