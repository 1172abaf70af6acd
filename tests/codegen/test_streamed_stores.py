"""Stores past the caches: the same values at every distance of results and operands, and in place."""

from __future__ import annotations

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


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store all results of programs past the caches."""
    monkeypatch.setenv("HLOOM_CACHE", "0")
    monkeypatch.setattr(kernel, "CACHED", 0)
    monkeypatch.setattr(loops, "STREAMED_LAST", 0)


def placed(offset: int, seed: int) -> np.ndarray:
    """Return an array that begins a number of bytes behind a page."""
    memory = np.empty(2 * 4096 + 4 * COUNT, np.uint8)
    first = -memory.ctypes.data % 4096 + offset
    array = memory[first : first + 4 * COUNT].view(np.float32)
    array[:] = np.random.default_rng(seed).normal(size=COUNT)
    return array


@pytest.mark.parametrize("offset", [0, 4, 16, 64, 128, 576, 1024, 2048, 4032])
def test_values_do_not_depend_on_addresses(offset: int):
    p, m, g = (placed(offset, seed) for seed in range(3))
    q, n = hloom.compile(hloom.HloModule.from_text(PROGRAM))(p, m, g)
    same(n, m + g)
    same(q, p - (m + g))


def test_a_donated_array_is_updated_in_place():
    m, g = (placed(0, seed).copy() for seed in range(2))
    expected = m + g
    n = hloom.compile(hloom.HloModule.from_text(IN_PLACE)).donate(m, g)
    assert n is m
    same(n, expected)


@pytest.mark.skipif(host().architecture != "x86_64", reason="other processors have no such stores")
@pytest.mark.parametrize("program", [PROGRAM, IN_PLACE])
def test_code_stores_past_the_caches(program: str):
    assert "movnt" in hloom.compile(hloom.HloModule.from_text(program)).to_asm()
