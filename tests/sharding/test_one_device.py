"""Calls that one device makes for all, on whole operands; the others get the results from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hloom.ir.module import HloModule
from hloom.runtime.custom_call import register_custom_call, unregister_custom_call
from tests import agreement
from tests.sharding.runs import run_partitioned

CALLS: list[Any] = []


@pytest.fixture(autouse=True)
def reversed_on_the_host() -> Iterator[None]:
    def reverse(x: Any, y: Any = None) -> Any:
        CALLS.append(x.shape)
        return x[::-1] if y is None else (x[::-1], y + 1)

    register_custom_call("one-device-reverse", reverse)
    CALLS.clear()
    yield
    unregister_custom_call("one-device-reverse")


@pytest.mark.parametrize(
    "tiles", ["{devices=[4]<=[4]}", "{devices=[2,2]<=[4] last_tile_dim_replicate}", "{replicated}"]
)
@pytest.mark.parametrize("one", ["{maximal device=0}", "{maximal device=3}", "{maximal_mesh[device_id=3]}"])
def test_an_array(tiles: str, one: str) -> None:
    module = HloModule.from_text(f"""HloModule m
ENTRY e {{
  x = f32[8] parameter(0), sharding={tiles}
  c = f32[8] custom-call(x), custom_call_target="one-device-reverse", sharding={one}
  ROOT r = f32[8] negate(c), sharding={tiles}
}}""")
    x = np.arange(8, dtype=np.float32)
    _, (found,) = run_partitioned(module, 4, [x])
    agreement.same(found, -x[::-1])
    assert CALLS == [(8,)]


def test_a_tuple() -> None:
    module = HloModule.from_text("""HloModule m
ENTRY e {
  x = f32[8] parameter(0), sharding={devices=[4]<=[4]}
  y = s32[4,2] parameter(1), sharding={devices=[2,2]<=[4]}
  c = (f32[8], s32[4,2]) custom-call(x, y), custom_call_target="one-device-reverse",
    sharding={{maximal device=2}, {maximal device=2}}
  a = f32[8] get-tuple-element(c), index=0
  b = s32[4,2] get-tuple-element(c), index=1
  ROOT r = (f32[8], s32[4,2]) tuple(a, b)
}""")
    x, y = np.arange(8, dtype=np.float32), np.arange(8, dtype=np.int32).reshape(4, 2)
    _, found = run_partitioned(module, 4, [x, y])
    agreement.same(tuple(found), (x[::-1], y + 1))
    assert CALLS == [(8,)]
