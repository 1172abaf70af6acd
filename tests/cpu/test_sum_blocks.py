"""Long sums add up blocks: a term passes through few additions, so that rounding errors stay small."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hloom.codegen.accumulators import BLOCK
from tests.evaluation import parse
from tests.native_runs import Native
from tests.reducers import with_reducers

PROGRAM = """HloModule sums
ENTRY main {{
  x = f32[{shape}] parameter(0)
  zero = f32[] constant(0)
  ROOT total = f32[{kept}] reduce(x, zero), dimensions={{{dimensions}}}, to_apply=add
}}"""


def program(shape: tuple[int, ...], dimensions: tuple[int, ...]) -> str:
    kept = [size for d, size in enumerate(shape) if d not in dimensions]
    lists = {"shape": shape, "kept": kept, "dimensions": dimensions}
    return with_reducers(PROGRAM.format(**{k: ",".join(map(str, v)) for k, v in lists.items()}))


@pytest.mark.parametrize(
    ("shape", "dimensions"),
    [
        ((3, 200_000), (1,)),
        ((2, 3, 70_000), (1, 2)),
        ((2, 300, 700), (1, 2)),
        ((4, 8192, 64), (1,)),
        ((112, 112, 64), (0, 1)),
        ((8, 56, 56, 64), (0, 1, 2)),
        ((30_000, 200), (0,)),
    ],
)
def test_a_term_passes_through_few_additions(shape: tuple[int, ...], dimensions: tuple[int, ...]) -> None:
    """Sums of equal numbers are rounded in one direction, which makes their errors the largest."""
    x = np.full(shape, 0.1, np.float32)
    terms = math.prod(shape[d] for d in dimensions)
    total = terms * np.float64(np.float32(0.1))
    additions = BLOCK + 64 + terms // (8 * BLOCK)
    error = np.abs(Native(parse(program(shape, dimensions)))(x) - total).max()
    assert error <= additions * 2.0**-24 * total


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (7, 300), (200, 33), (1, 64)])
def test_a_product_adds_blocks_of_a_deep_sum(rows: int, columns: int) -> None:
    depth = 60_000
    a, b = np.full((rows, depth), 0.1, np.float32), np.full((depth, columns), 0.3, np.float32)
    product = parse(
        f"a = f32[{rows},{depth}] parameter(0)\nb = f32[{depth},{columns}] parameter(1)\n"
        f"ROOT c = f32[{rows},{columns}] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    )
    total = depth * np.float64(a[0, 0]) * np.float64(b[0, 0])
    error = np.abs(Native(product)(a, b) - total).max()
    assert error <= (1024 + depth // 256) * 2.0**-24 * total


def cumulative_sum(count: int, initial: float = 0.0) -> Native:
    text = f"""HloModule sums
ENTRY main {{
  x = f32[{count}] parameter(0)
  initial = f32[] constant({initial})
  ROOT sums = f32[{count}] reduce-window(x, initial), window={{size={count} pad={count - 1}_0}}, to_apply=add
}}"""
    return Native(parse(with_reducers(text)))


def test_a_cumulative_sum_carries_its_rounding_error() -> None:
    x = np.full(300_000, 0.1, np.float32)
    exact = np.cumsum(x.astype(np.float64))
    additions = 16 + 8 + 2  # within a vector, of the vectors of a block, and of the prefix
    assert (np.abs(cumulative_sum(len(x))(x) - exact) <= additions * 2.0**-24 * exact).all()


def test_a_cumulative_sum_stays_infinite_and_keeps_zeros_negative() -> None:
    x = np.ones(1000, np.float32)
    x[300] = np.inf
    sums = cumulative_sum(1000)(x)
    assert (sums[300:] == np.inf).all()
    assert sums[299] == 300
    zeros = cumulative_sum(1000, -0.0)(np.full(1000, -0.0, np.float32))
    assert np.signbit(zeros).all()


def test_a_convolution_adds_the_sums_of_its_taps() -> None:
    x, w = np.full((1, 9, 9, 1024), 0.1, np.float32), np.full((3, 3, 1024, 16), 0.3, np.float32)
    convolution = parse(
        "x = f32[1,9,9,1024] parameter(0)\nw = f32[3,3,1024,16] parameter(1)\n"
        "ROOT y = f32[1,7,7,16] convolution(x, w), window={size=3x3}, dim_labels=b01f_01io->b01f"
    )
    terms = 9 * 1024
    total = terms * np.float64(x.flat[0]) * np.float64(w.flat[0])
    additions = 1024 + 16  # of the channels of a tap or of a block of them, and of the taps
    assert np.abs(Native(convolution)(x, w) - total).max() <= additions * 2.0**-24 * total
