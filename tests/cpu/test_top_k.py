"""topk of the cpu backend."""

from __future__ import annotations

import numpy as np
import pytest

from tests.native_runs import agree, special_values


def top_k(kind: str, sizes: str, k: int, largest: bool = True) -> str:
    ahead = sizes.rpartition(",")[0]
    result = f"{ahead},{k}" if ahead else str(k)
    flag = "true" if largest else "false"
    return (
        f"x = {kind}[{sizes}] parameter(0)\n"
        f"ROOT r = ({kind}[{result}], s32[{result}]) topk(x), k={k}, largest={flag}"
    )


KINDS = ("f32", "f64", "f16", "bf16", "f8e4m3fn", "f8e5m2", "s8", "u16", "s32", "u32", "s64", "pred", "s4")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("largest", [True, False])
def test_every_type(kind: str, largest: bool) -> None:
    sizes = [(5, 2), (200, 7), (1, 1), (40, 40), (1500, 20)]
    for seed, (n, k) in enumerate(sizes if largest else sizes[:2]):
        x = special_values(np.random.default_rng(seed), kind, (3, n))
        agree(top_k(kind, f"3,{n}", k, largest), x)


@pytest.mark.parametrize("n", [129, 1000, 5000])
@pytest.mark.parametrize("k", [1, 16, 100])
def test_worst_orders(n: int, k: int) -> None:
    ascending = np.arange(n, dtype=np.int32).reshape(1, n)
    agree(top_k("s32", f"1,{n}", k), ascending)
    agree(top_k("s32", f"1,{n}", k), ascending[:, ::-1])
    agree(top_k("s32", f"1,{n}", k), ascending // 7)
    agree(top_k("s32", f"1,{n}", k), np.zeros((1, n), np.int32))


def test_smallest_integers_count() -> None:
    agree(top_k("u32", "1000", 990), np.zeros(1000, np.uint32))
    agree(top_k("u32", "1000", 990, largest=False), np.full(1000, 2**32 - 1, np.uint32))


@pytest.mark.parametrize(("sizes", "k"), [("0", 0), ("4", 0), ("0,5", 2), ("2,3,20", 3), ("2,0,5", 1)])
def test_empty_and_batched(sizes: str, k: int) -> None:
    x = np.random.default_rng(0).normal(size=tuple(map(int, sizes.split(",")))).astype(np.float32)
    agree(top_k("f32", sizes, k), x)


def test_most_of_a_long_row() -> None:
    x = np.random.default_rng(0).normal(size=(2, 6000)).astype(np.float32)
    agree(top_k("f32", "2,6000", 2500), x)
    agree(top_k("f32", "2,6000", 1500), x)
