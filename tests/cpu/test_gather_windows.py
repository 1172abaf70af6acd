"""Gathers whose indices are affine functions of their own: rows of overlapping windows."""

from __future__ import annotations

import re

import numpy as np
import pytest

import hloom
from hloom import HloModule
from tests.native_runs import agree, arguments

WINDOWS = """HloModule windows
ENTRY main {{
  x = f32[{size}] parameter(0)
  i = {kind}[{rows},{width}] iota(), iota_dimension=0
  j = {kind}[{rows},{width}] iota(), iota_dimension=1
  hop = {kind}[] constant({hop})
  hops = {kind}[{rows},{width}] broadcast(hop), dimensions={{}}
  first = {kind}[] constant({first})
  firsts = {kind}[{rows},{width}] broadcast(first), dimensions={{}}
  s = {kind}[{rows},{width}] multiply(i, hops)
  t = {kind}[{rows},{width}] add(s, j)
  k = {kind}[{rows},{width}] add(t, firsts)
  ROOT r = f32[{rows},{width}] gather(x, k), offset_dims={{}}, collapsed_slice_dims={{0}},
    start_index_map={{0}}, index_vector_dim=2, slice_sizes={{1}}
}}"""


def windows(
    kind: str = "s32", *, size: int = 200, rows: int = 40, width: int = 30, hop: int = 4, first: int = 3
) -> str:
    """Return a program that reads ``rows`` windows of ``width`` elements, ``hop`` elements apart."""
    return WINDOWS.format(kind=kind, size=size, rows=rows, width=width, hop=hop, first=first)


@pytest.mark.parametrize("kind", ["s32", "s64", "u32", "s16", "u8"])
@pytest.mark.parametrize("hop, first", [(1, 0), (4, 3), (-3, 120), (5, 0), (4, -2), (9, 0), (0, 7)])
def test_windows_inside_and_beyond_the_array(kind: str, hop: int, first: int) -> None:
    """Windows beyond the ends are clamped, element by element; indices wrap as their type does."""
    if kind[0] == "u" and min(hop, first) < 0:
        hop, first = hop % 256, first % 256
    text = windows(kind, hop=hop, first=first)
    agree(text, *arguments(np.random.default_rng(0), text))


def loads(text: str) -> tuple[int, int]:
    """Return the number of vector loads and of gathers in a program's code."""
    code = hloom.compile(HloModule.from_text(text)).to_llvm()
    return len(re.findall(r"= load <\d+ x float>", code)), len(re.findall(r"@llvm.masked.gather", code))


def test_windows_inside_the_array_are_read_as_vectors() -> None:
    vectors, gathers = loads(windows())
    assert vectors > 0
    assert gathers == 0
    assert loads(windows(hop=9)) != (vectors, gathers)


PATCHES = """HloModule patches
ENTRY main {
  x = f32[30,40] parameter(0)
  rows = s32[26,5,36,5] iota(), iota_dimension=0
  row = s32[5] iota(), iota_dimension=0
  down = s32[26,5,36,5] broadcast(row), dimensions={1}
  columns = s32[26,5,36,5] iota(), iota_dimension=2
  column = s32[26,5,36,5] iota(), iota_dimension=3
  a = s32[26,5,36,5] add(rows, down)
  b = s32[26,5,36,5] add(columns, column)
  a1 = s32[26,5,36,5,1] reshape(a)
  b1 = s32[26,5,36,5,1] reshape(b)
  k = s32[26,5,36,5,2] concatenate(a1, b1), dimensions={4}
  ROOT r = f32[26,5,36,5] gather(x, k), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1},
    index_vector_dim=4, slice_sizes={1,1}
}"""


def test_patches_of_an_image() -> None:
    agree(PATCHES, *arguments(np.random.default_rng(0), PATCHES))
    assert loads(PATCHES)[1] == 0


MOVED = """HloModule moved
ENTRY main {
  x = f32[50,8] parameter(0)
  i = s32[6,7] iota(), iota_dimension=1
  t = s32[7,6] transpose(i), dimensions={1,0}
  flat = s32[42] reshape(t)
  wide = s64[42] convert(flat)
  five = s64[] constant(5)
  fives = s64[42] broadcast(five), dimensions={}
  k = s64[42] subtract(wide, fives)
  ROOT r = f32[42,8] gather(x, k), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1,8}
}"""


def test_moved_and_converted_indices() -> None:
    agree(MOVED, *arguments(np.random.default_rng(0), MOVED))
    inside = MOVED.replace("subtract", "add")
    agree(inside, *arguments(np.random.default_rng(0), inside))
