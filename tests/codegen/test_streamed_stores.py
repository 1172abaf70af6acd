"""Stores past the caches: the same values at every distance of results and operands, and in place."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hloom
from hloom.codegen import loops
from hloom.codegen.target import host
from hloom.plan import kernel
from tests.agreement import same

COUNT = 1003
PROGRAM = """
HloModule step
ENTRY main {
  p = f32[1003] parameter(0)
  m = f32[1003] parameter(1)
  g = f32[1003] parameter(2)
  n = f32[1003] add(m, g)
  q = f32[1003] subtract(p, n)
  ROOT t = (f32[1003], f32[1003]) tuple(q, n)
}
"""
IN_PLACE = """
HloModule sum, input_output_alias={ {}: (0, {}, may-alias) }
ENTRY main {
  m = f32[1003] parameter(0)
  g = f32[1003] parameter(1)
  ROOT n = f32[1003] add(m, g)
}
"""
PRODUCT = """
HloModule descent
ENTRY main {
  x = f32[70,50] parameter(0)
  y = f32[70,96] parameter(1)
  p = f32[50,96] parameter(2)
  g = f32[50,96] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT q = f32[50,96] subtract(p, g)
}
"""


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store all results of programs past the caches."""
    monkeypatch.setenv("HLOOM_CACHE", "0")
    monkeypatch.setattr(kernel, "CACHED", 0)
    monkeypatch.setattr(loops, "STREAMED_LAST", 0)


def placed(offset: int, seed: int, *sizes: int) -> np.ndarray:
    """Return an array that begins a number of bytes behind a page."""
    count = math.prod(sizes)
    memory = np.empty(2 * 4096 + 4 * count, np.uint8)
    first = -memory.ctypes.data % 4096 + offset
    array = memory[first : first + 4 * count].view(np.float32)
    array[:] = np.random.default_rng(seed).normal(size=count)
    return array.reshape(sizes)


@pytest.mark.parametrize("offset", [0, 4, 16, 64, 128, 576, 1024, 2048, 4032])
def test_values_do_not_depend_on_addresses(offset: int):
    p, m, g = (placed(offset, seed, COUNT) for seed in range(3))
    q, n = hloom.compile(hloom.HloModule.from_text(PROGRAM))(p, m, g)
    same(n, m + g)
    same(q, p - (m + g))


@pytest.mark.parametrize("offset", [0, 4, 64, 1024])
def test_epilogues_of_products_do_not_depend_on_addresses(offset: int):
    x, y, p = placed(0, 0, 70, 50), placed(0, 1, 70, 96), placed(offset, 2, 50, 96)
    g = hloom.compile(hloom.HloModule.from_text(PRODUCT.replace("ROOT q", "q").replace(" g =", " ROOT g =")))
    same(hloom.compile(hloom.HloModule.from_text(PRODUCT))(x, y, p), p - g(x, y, p))


def test_a_donated_array_is_updated_in_place():
    m, g = (placed(0, seed, COUNT).copy() for seed in range(2))
    expected = m + g
    n = hloom.compile(hloom.HloModule.from_text(IN_PLACE)).donate(m, g)
    assert n is m
    same(n, expected)


@pytest.mark.skipif(host().architecture != "x86_64", reason="other processors have no such stores")
@pytest.mark.parametrize("program", [PROGRAM, IN_PLACE, PRODUCT])
def test_code_stores_past_the_caches(program: str):
    if program is PRODUCT and host().vector_bytes < 64:
        pytest.skip("a vector of a tile is no whole line")
    assert "movnt" in hloom.compile(hloom.HloModule.from_text(program)).to_asm()
