"""Updates of parts of arrays of any size: every element is that of the part, or kept."""

from __future__ import annotations

import numpy as np
import pytest

import hloom
from tests.native_runs import agree, arguments


@pytest.mark.parametrize("row", [(3,), (300, 1001), (1, 70000), (7, (1 << 15) + 3), (1 << 17,)])
@pytest.mark.parametrize("at", [-5, 0, 2, 9])
def test_a_computed_row_is_stored_in_a_copy_of_the_argument(row: tuple[int, ...], at: int) -> None:
    shape, part = (",".join(map(str, (n, *row))) for n in (4, 1))
    zeros = ", zero" * len(row)
    text = f"""
HloModule row

ENTRY main {{
  x = s32[{shape}] parameter(0)
  u = s32[{part}] parameter(1)
  i = s32[] parameter(2)
  zero = s32[] constant(0)
  computed = s32[{part}] multiply(u, u)
  ROOT r = s32[{shape}] dynamic-update-slice(x, computed, i{zeros})
}}
"""
    x = np.arange(4 * np.prod(row), dtype=np.int32).reshape(4, *row)
    u = -np.arange(np.prod(row), dtype=np.int32).reshape(1, *row)
    expected = x.copy()
    expected[min(max(at, 0), 3)] = u[0] * u[0]
    kept = x.copy()
    assert np.array_equal(
        np.asarray(hloom.compile(hloom.HloModule.from_text(text))(x, u, np.int32(at))), expected
    )
    assert np.array_equal(x, kept)


OLD = {
    "the replaced part": "old = f32[SIZES] dynamic-slice(x, i, at), dynamic_slice_sizes={SIZES}",
    "another part": "old = f32[SIZES] dynamic-slice(x, at, i), dynamic_slice_sizes={SIZES}",
    "the reversed part": """
        part = f32[SIZES] dynamic-slice(x, i, at), dynamic_slice_sizes={SIZES}
        old = f32[SIZES] reverse(part), dimensions={0,1}""",
    "maxima of the part": """
        part = f32[SIZES] dynamic-slice(x, i, at), dynamic_slice_sizes={SIZES}
        zero = f32[] constant(0)
        maxima = f32[ROWS] reduce(part, zero), dimensions={1}, to_apply=maximum
        old = f32[SIZES] broadcast(maxima), dimensions={0}""",
    "a part at a constant": "old = f32[SIZES] slice(x), slice={[2:ROWS+2],[3:COLUMNS+3]}",
}


@pytest.mark.parametrize("old", OLD.values(), ids=OLD)
@pytest.mark.parametrize("index", ["s32[] parameter(2)", "s32[] constant(2)", "s32[] constant(-7)"])
@pytest.mark.parametrize(("rows", "columns"), [(5, 7), (150, 130)])
def test_updates_that_read_the_array(rows: int, columns: int, index: str, old: str) -> None:
    """The loop over five iterations carries the array in one buffer."""
    words = {"ROWS+2": rows + 2, "COLUMNS+3": columns + 3, "SIZES": f"{rows},{columns}", "ROWS": rows}
    for word, value in words.items():
        old = old.replace(word, str(value))
    sizes, part = f"{rows + 9},{columns + 9}", f"{rows},{columns}"
    text = f"""HloModule m
maximum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b)
}}
step {{
  s = (s32[], f32[{sizes}], f32[{part}], s32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[{sizes}] get-tuple-element(s), index=1
  v = f32[{part}] get-tuple-element(s), index=2
  i = s32[] get-tuple-element(s), index=3
  at = s32[] constant(3)
  {old}
  w = f32[{part}] subtract(v, old)
  u = f32[{part}] multiply(w, v)
  y = f32[{sizes}] dynamic-update-slice(x, u, i, at)
  one = s32[] constant(1)
  m = s32[] add(n, one)
  ROOT t = (s32[], f32[{sizes}], f32[{part}], s32[]) tuple(m, y, v, i)
}}
more {{
  s = (s32[], f32[{sizes}], f32[{part}], s32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  five = s32[] constant(5)
  ROOT l = pred[] compare(n, five), direction=LT
}}
ENTRY main {{
  x = f32[{sizes}] parameter(0)
  v = f32[{part}] parameter(1)
  i = {index}
  z = s32[] constant(0)
  s = (s32[], f32[{sizes}], f32[{part}], s32[]) tuple(z, x, v, i)
  l = (s32[], f32[{sizes}], f32[{part}], s32[]) while(s), condition=more, body=step
  ROOT r = f32[{sizes}] get-tuple-element(l), index=1
}}"""
    agree(text, *arguments(np.random.default_rng(0), text))
