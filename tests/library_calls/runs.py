"""Run one library call on both backends."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

import hloom
from hloom.errors import NoBound
from hloom.shape.shape import Shape
from tests import agreement


def program(shape: str, target: str, operands: Sequence[Any], config: str, attributes: str = "") -> str:
    """Return the text of a program of one custom call."""
    lines = [f"  p{n} = {Shape.of(np.asarray(operand))} parameter({n})" for n, operand in enumerate(operands)]
    names = ", ".join(f"p{n}" for n in range(len(operands)))
    call = f'custom-call({names}), custom_call_target="{target}"{attributes}, backend_config={config}'
    return "\n".join(["HloModule m", "ENTRY e {", *lines, f"  ROOT r = {shape} {call}", "}"])


def run(
    shape: str,
    target: str,
    operands: Sequence[Any],
    config: str = "{}",
    attributes: str = "",
    *,
    backends: Sequence[str] = ("evaluator", "cpu"),
) -> Any:
    """Return the result of a call; the backends agree within its rounding errors."""
    module = hloom.HloModule.from_text(program(shape, target, operands, config, attributes))
    module.verify()
    results = [hloom.compile(module, backend)(*operands) for backend in backends]
    if len(results) == 2:
        from hloom.library_calls.emulation import program_of

        expanded = program_of(module.entry.root)
        if any(np.asarray(leaf).itemsize == 1 for leaf in agreement.flat(results[0])[:1]):
            agreement.same(results[1], results[0])
            return results[0]
        with suppress(NoBound):  # the caller compares with numbers of its own
            agreement.computed(results[1], expanded, operands, wanted=results[0])
    return results[0]
