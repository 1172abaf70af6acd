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
    """Parse a module; a bare list of instructions becomes the body of an entry."""
    if "HloModule" not in text:
        text = "HloModule test\n" + (text if "ENTRY" in text else f"ENTRY entry {{\n{text}\n}}")
    return HloModule.from_text(text)


def evaluate(text: str, *arguments: Any) -> Any:
    """Verify a program and return its value."""
    module = parse(text)
    module.verify()
    values = [a if isinstance(a, tuple) or a is None else np.asarray(a) for a in arguments]
    return Evaluator().run(module.entry, values)


def refused(text: str) -> HloError:
    """Return the error of parsing or verifying a program."""
    with pytest.raises(HloError) as caught:
        parse(text).verify()
    return caught.value
