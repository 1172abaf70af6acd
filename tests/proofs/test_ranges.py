"""Ranges that operations declare hold for all numbers of small types."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hloom import HloModule
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.operation import REGISTRY
from hloom.ir.traits import Range
from hloom.shape.element_type import PRED, S8, U8, ElementType

DRAWS = 20
LEFT_OUT = ("compare", "reduce-precision")


def declared() -> list[str]:
    """Return the elementwise operations on integers that declare a range."""
    return [
        opcode
        for opcode, operation in sorted(REGISTRY.items())
        if operation.elementwise
        and (count := operation.arity())
        and opcode not in LEFT_OUT
        and operation().value_range(S8, *[(1, 3)] * count) is not None
    ]


def drawn(draw: random.Random, kind: ElementType) -> Range:
    low, high = sorted(draw.choice([draw.randint(*kind.limits), draw.randint(0, 9)]) for _ in "ab")
    return low, high


@pytest.mark.parametrize("kind", [S8, U8])
@pytest.mark.parametrize("opcode", declared())
def test_results_are_in_the_declared_range(opcode: str, kind: ElementType) -> None:
    count = REGISTRY[opcode].arity() or 0
    kinds = [PRED if opcode == "select" and n == 0 else kind for n in range(count)]
    parameters = " ".join(f"p{n} = {k.name}[N] parameter({n})" for n, k in enumerate(kinds))
    operands = ", ".join(f"p{n}" for n in range(count))
    draw = random.Random(1)
    for _ in range(DRAWS):
        ranges = [(0, 1) if k is PRED else drawn(draw, k) for k in kinds]
        derived = REGISTRY[opcode]().value_range(kind, *ranges)
        if derived is None or derived[0] < kind.limits[0] or derived[1] > kind.limits[1]:
            continue
        steps = [np.unique(np.linspace(low, high, 12).astype(np.int64)) for low, high in ranges]
        grids = [grid.reshape(-1) for grid in np.meshgrid(*steps, indexing="ij")]
        body = f"{parameters} ROOT r = {kind.name}[N] {opcode}({operands})".replace(
            "[N]", f"[{len(grids[0])}]"
        )
        module = HloModule.from_text(f"HloModule m\nENTRY e {{ {body} }}")
        arguments = [grid.astype(k.numpy_dtype) for grid, k in zip(grids, kinds, strict=True)]
        result = np.asarray(Evaluator().run(module.entry, arguments)).astype(np.int64)
        assert derived[0] <= result.min(), (ranges, derived)
        assert result.max() <= derived[1], (ranges, derived)
