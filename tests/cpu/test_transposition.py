"""Transposes and what is computed with them, in tiles of registers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hloom
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import agree, arguments, draw


def transpose(kind: str, sizes: tuple[int, ...], order: tuple[int, ...]) -> str:
    before, after = (",".join(map(str, s)) for s in (sizes, [sizes[d] for d in order]))
    dims = ",".join(map(str, order))
    return f"x = {kind}[{before}] parameter(0)\nROOT r = {kind}[{after}] transpose(x), dimensions={{{dims}}}"


def check(kind: str, sizes: tuple[int, ...], order: tuple[int, ...]) -> None:
    text = transpose(kind, sizes, order)
    agree(text, draw(np.random.default_rng(0), f"{kind}[{','.join(map(str, sizes))}]"))


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "f16", "s8", "pred", "c64", "c128", "s4", "u64"])
@pytest.mark.parametrize("sizes", [(16, 16), (48, 33), (7, 64), (70, 9), (100, 131), (8, 8), (1, 50)])
def test_matrices(kind: str, sizes: tuple[int, int]) -> None:
    check(kind, sizes, (1, 0))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("sizes", [(3, 20, 40), (33, 17, 16), (16, 1, 16), (0, 3, 4)])
def test_three_dimensions(sizes: tuple[int, int, int], order: tuple[int, int, int]) -> None:
    check("f32", sizes, order)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[::3])
def test_four_dimensions(order: tuple[int, ...]) -> None:
    check("f32", (18, 5, 19, 20), order)
    check("u8", (2, 9, 16, 8), order)


@pytest.mark.parametrize("sizes", [(1003, 1001), (30, 17, 31, 18), (2049, 24)])
def test_threads_share_tiles_that_overlap(sizes: tuple[int, ...]) -> None:
    order = (*range(len(sizes) - 2), len(sizes) - 1, len(sizes) - 2)
    x = draw(np.random.default_rng(0), f"f32[{','.join(map(str, sizes))}]")
    agreement.same(hloom.compile(parse(transpose("f32", sizes, order)))(x), np.transpose(x, order))


def test_with_arithmetic_around() -> None:
    text = """
    x = f32[50,70] parameter(0)
    y = f32[70,50] parameter(1)
    a = f32[50,70] multiply(x, x)
    t = f32[70,50] transpose(a), dimensions={1,0}
    r = f32[70,50] add(t, y)
    u = f32[50,70] transpose(y), dimensions={1,0}
    s = f32[50,70] subtract(u, x)
    ROOT both = (f32[70,50], f32[50,70]) tuple(r, s)"""
    rng = np.random.default_rng(0)
    agree(text, draw(rng, "f32[50,70]"), draw(rng, "f32[70,50]"))


def test_reversed_and_sliced() -> None:
    text = """
    x = f32[90,80] parameter(0)
    v = f32[90,80] reverse(x), dimensions={0}
    s = f32[64,40] slice(v), slice={[10:74], [0:80:2]}
    ROOT t = f32[40,64] transpose(s), dimensions={1,0}"""
    agree(text, draw(np.random.default_rng(0), "f32[90,80]"))


def test_padded() -> None:
    text = """
    x = f32[60,50] parameter(0)
    z = f32[] constant(7)
    p = f32[64,56] pad(x, z), padding=1_3x2_4
    ROOT t = f32[56,64] transpose(p), dimensions={1,0}"""
    agree(text, draw(np.random.default_rng(0), "f32[60,50]"))


def test_reshape_across() -> None:
    text = """
    x = f32[8,6,40] parameter(0)
    t = f32[40,8,6] transpose(x), dimensions={2,0,1}
    ROOT r = f32[20,96] reshape(t)"""
    agree(text, draw(np.random.default_rng(0), "f32[8,6,40]"))


@pytest.mark.parametrize("kind", ["f32", "f64", "s8"])
@pytest.mark.parametrize("rows", [8, 16, 17, 20, 31, 33, 63])
@pytest.mark.parametrize("columns", [256, 300, 1031])
def test_threads_share_the_columns_of_few_rows(kind: str, rows: int, columns: int) -> None:
    text = (
        f"x = {kind}[{columns},{rows}] parameter(0)\n"
        f"t = {kind}[{rows},{columns}] transpose(x), dimensions={{1,0}}\n"
        f"ROOT r = {kind}[{rows},{columns}] add(t, t)"
    )
    agree(text, *arguments(np.random.default_rng(0), text))
