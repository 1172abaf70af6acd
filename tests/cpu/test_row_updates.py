"""Updates of rows in arrays of any size: every element is that of the row, or kept."""

from __future__ import annotations

import numpy as np
import pytest

import hloom


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
