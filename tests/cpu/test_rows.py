"""Rows at a time: what is reduced along rows and made of the results, for rows of any length."""

from __future__ import annotations

import numpy as np
import pytest

import agreement
from native_runs import agree, arguments, compiled

PROGRAM = """
HloModule rows
max {{ a = {kind}[] parameter(0)  b = {kind}[] parameter(1)  ROOT r = {kind}[] maximum(a, b) }}
add {{ a = {kind}[] parameter(0)  b = {kind}[] parameter(1)  ROOT r = {kind}[] add(a, b) }}
ENTRY main {{
  x = {kind}[{sizes}] parameter(0)
  least = {kind}[] constant(-inf)
  zero = {kind}[] constant(0)
  top = {kind}[{rows}] reduce(x, least), dimensions={{{last}}}, to_apply=max
  tops = {kind}[{sizes}] broadcast(top), dimensions={{{kept}}}
  shifted = {kind}[{sizes}] subtract(x, tops)
  e = {kind}[{sizes}] exponential(shifted)
  sum = {kind}[{rows}] reduce(e, zero), dimensions={{{last}}}, to_apply=add
  sums = {kind}[{sizes}] broadcast(sum), dimensions={{{kept}}}
  soft = {kind}[{sizes}] divide(e, sums)
  {result}
}}
"""


def softmax(kind: str, *sizes: int, result: str = "ROOT r = {kind}[{sizes}] copy(soft)") -> str:
    """A softmax along the last dimension."""
    words = {
        "kind": kind,
        "sizes": ",".join(map(str, sizes)),
        "rows": ",".join(map(str, sizes[:-1])),
        "last": len(sizes) - 1,
        "kept": ",".join(map(str, range(len(sizes) - 1))),
    }
    return PROGRAM.format(**words, result=result.format(**words))


@pytest.mark.parametrize("length", [*range(1, 20), 31, 32, 33, 100])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_rows_of_any_length(kind: str, length: int) -> None:
    text = softmax(kind, 53, length)
    agree(text, *arguments(np.random.default_rng(length), text), rounded=True)


@pytest.mark.parametrize("sizes", [(1, 3), (7, 5), (16, 16), (3, 5, 7, 4), (40, 1, 6), (1000, 11)])
def test_rows_in_arrays_of_any_rank(sizes: tuple[int, ...]) -> None:
    text = softmax("f32", *sizes)
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)


@pytest.mark.parametrize("length", [3, 9, 40])
def test_values_of_rows_beside_whole_rows(length: int) -> None:
    result = "ROOT r = ({kind}[{sizes}], {kind}[{rows}], {kind}[{rows}]) tuple(soft, top, sum)"
    text = softmax("f32", 37, length, result=result)
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)


@pytest.mark.parametrize("length", [2, 7, 12, 24])
def test_a_nan_stays_in_its_row(length: int) -> None:
    x = np.random.default_rng(0).normal(size=(40, length)).astype(np.float32)
    x[3, 1], x[20, 0], x[39, length - 1] = np.nan, -np.inf, np.nan
    found = compiled(softmax("f32", 40, length))(x)
    undefined = np.isnan(found).any(axis=1)
    assert np.flatnonzero(undefined).tolist() == [3, 39]
    sums = found[~undefined].astype(np.float64).sum(axis=1)
    agreement.within(sums, np.ones(len(sums)), (length + 4) * np.finfo(np.float32).eps)


@pytest.mark.parametrize("length", [3, 8, 13])
def test_a_vector_for_every_row(length: int) -> None:
    result = """v = f32[{last_size}] parameter(1)
  scale = f32[{sizes}] broadcast(v), dimensions={{{last}}}
  ROOT r = f32[{sizes}] multiply(soft, scale)""".replace("{last_size}", str(length))
    text = softmax("f32", 65, length, result=result)
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)
