"""split-k: products over many rows of few columns are sums of products of parts of the rows."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.ir.module import HloModule
from hloom.passes.layout.split_k import SplitK
from tests.evaluation import parse
from tests.native_runs import agree, arguments
from tests.pass_checks import after, opcodes


def product(rows: tuple[int, ...], left: tuple[int, ...], right: tuple[int, ...], kind: str = "f32") -> str:
    """Return a program that contracts all rows of two arrays."""
    shapes = [f"{kind}[{','.join(map(str, (*rows, *some)))}]" for some in (left, right)]
    summed = ",".join(map(str, range(len(rows))))
    return f"""
x = {shapes[0]} parameter(0)
y = {shapes[1]} parameter(1)
ROOT r = {kind}[{",".join(map(str, (*left, *right)))}] dot(x, y), lhs_contracting_dims={{{summed}}},
    rhs_contracting_dims={{{summed}}}"""


def divided(text: str) -> HloModule:
    """Return a program after the pass, whose sums are exact for small integers in any order."""
    numbers = np.random.default_rng(0)
    return after(text, SplitK(), arguments=[numbers.integers(-9, 9, p) for p in parameter_sizes(text)])


def parameter_sizes(text: str) -> list[tuple[int, ...]]:
    return [p.shape.dimensions for p in parse(text).entry.parameters]


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize(
    ("rows", "left", "right"),
    [
        ((512,), (3,), (2,)),
        ((1031,), (17,), (40,)),
        ((4096,), (33,), (33,)),
        ((40, 50), (5,), (2, 3)),
        ((3, 7, 100), (2, 2), (16,)),
    ],
)
def test_values_stay(kind: str, rows: tuple[int, ...], left: tuple[int, ...], right: tuple[int, ...]) -> None:
    text = product(rows, left, right, kind)
    assert opcodes(divided(text))["reduce"] == 1
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)


@pytest.mark.parametrize(
    ("rows", "shape"), [(512, "f32[4,128,3]"), (4096, "f32[32,128,3]"), (1031, "f32[8,128,3]")]
)
def test_parts_are_batches(rows: int, shape: str) -> None:
    """Their number divides the rows if one does that is not much smaller; else a few rows are left over."""
    module = divided(product((rows,), (3,), (2,)))
    dots = [i for i in module.entry.instructions if i.opcode == "dot"]
    assert str(dots[0].operands[0].shape).startswith(shape)
    assert len(dots) == 1 + bool(rows % 128)


@pytest.mark.parametrize(
    "text",
    [
        product((511,), (3,), (2,)),
        product((4096,), (1,), (2,)),
        product((4096,), (), (2,)),
        product((1000,), (900,), (900,)),
        product((4096,), (3,), (300,)),
        product((4096,), (3,), (2,), "s32"),
        product((4096,), (3,), (2,), "bf16"),
        """
        x = f32[3,4096] parameter(0)
        y = f32[4096,2] parameter(1)
        ROOT r = f32[3,2] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
        """
        x = f32[2,4096,3] parameter(0)
        y = f32[2,4096,3] parameter(1)
        ROOT r = f32[2,3,3] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1},
            rhs_contracting_dims={1}""",
    ],
)
def test_other_products_stay(text: str) -> None:
    counts = opcodes(divided(text))
    assert counts["dot"] == 1
    assert "reduce" not in counts
