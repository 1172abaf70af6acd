"""Tiles that devices compute from other tiles of the operands, instead of receiving them."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.ir.module import HloModule
from hloom.sharding.reporting.traffic import bytes_sent
from tests import agreement
from tests.sharding.runs import run_partitioned

ROWS = "{devices=[4,1]<=[4]}"
COLUMNS = "{devices=[1,4]<=[4]}"
TURNED = "{devices=[4,1]3,1,2,0}"
X = np.arange(48, dtype=np.float32).reshape(8, 6)


def sent(body: str) -> int:
    """Return the bytes that a device sends in a program that takes X; its values are those of one device."""
    module = HloModule.from_text(f"HloModule m\nENTRY e {{\n{body}\n}}")
    partitioned, found = run_partitioned(module, 4, [X])
    agreement.computed(found, module, [X])
    return bytes_sent(partitioned.module)


@pytest.mark.parametrize("after", [ROWS, COLUMNS, TURNED, "{replicated}"])
def test_operations_on_a_whole_array_are_computed_in_any_tiling(after: str) -> None:
    assert not sent(f"""
      x = f32[8,6] parameter(0), sharding={{replicated}}
      n = f32[8,6] negate(x), sharding={ROWS}
      i = f32[8,6] iota(), iota_dimension=0, sharding={ROWS}
      s = f32[8,6] subtract(n, i), sharding={ROWS}
      ROOT c = f32[8,6] copy(s), sharding={after}""")


def test_the_operand_of_a_broadcast_is_gathered() -> None:
    """A tile of 2 rows of 6 goes to 3 devices, not 5 copies of it."""
    assert (
        sent(f"""
      x = f32[8,6] parameter(0), sharding={ROWS}
      b = f32[8,6,5] broadcast(x), dimensions={{0,1}}, sharding={{devices=[4,1,1]<=[4]}}
      n = f32[8,6,5] negate(b), sharding={{devices=[4,1,1]<=[4]}}
      ROOT c = f32[8,6,5] copy(n), sharding={{replicated}}""")
        == 3 * 2 * 6 * 4
    )


def test_narrow_elements_are_gathered() -> None:
    """The elements of bf16 have 2 bytes."""
    assert (
        sent(f"""
      x = f32[8,6] parameter(0), sharding={ROWS}
      n = bf16[8,6] convert(x), sharding={ROWS}
      w = f32[8,6] convert(n), sharding={ROWS}
      ROOT c = f32[8,6] copy(w), sharding={{replicated}}""")
        == 3 * 2 * 6 * 2
    )


def test_reductions_are_sent_not_computed_again() -> None:
    """A tile of 2 rows of 8 goes to 3 devices, though each has what all rows are computed from."""
    assert (
        sent(f"""
      x = f32[8,6] parameter(0), sharding={{replicated}}
      t = f32[6,8] transpose(x), dimensions={{1,0}}, sharding={COLUMNS}
      d = f32[8,8] dot(x, t), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, sharding={ROWS}
      ROOT c = f32[8,8] copy(d), sharding={{replicated}}""")
        == 3 * 2 * 8 * 4
    )
