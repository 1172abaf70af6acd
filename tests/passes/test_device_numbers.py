"""Scalars that depend on the device id only: their values on each device."""

from __future__ import annotations

import pytest

from hloom.analysis.device_numbers import number_on
from tests.evaluation import parse

TABLE = """ENTRY e {
  table = s32[4] constant({7,5,3,1})
  device = u32[] partition-id()
  entry = s32[1] dynamic-slice(table, device), dynamic_slice_sizes={1}
  ROOT r = s32[] reshape(entry)
}"""
LARGE = """ENTRY e {
  one = s32[] constant(1)
  ones = s32[SIZE] broadcast(one), dimensions={}
  first = s32[1] slice(ones), slice={[0:1]}
  ROOT r = s32[] reshape(first)
}"""
ARGUMENT = "ENTRY e { x = s32[] parameter(0) ROOT r = s32[] add(x, x) }"
TUPLE = """ENTRY e {
  device = u32[] partition-id()
  both = (u32[], u32[]) tuple(device, device)
  ROOT r = u32[] get-tuple-element(both), index=1
}"""


def test_an_entry_of_a_table_of_devices() -> None:
    root = parse(TABLE).entry.root
    assert [number_on(root, device) for device in range(4)] == [7, 5, 3, 1]


@pytest.mark.parametrize(("size", "value"), [(1 << 16, 1), ((1 << 16) + 1, None)])
def test_large_arrays_are_not_evaluated(size: int, value: int | None) -> None:
    assert number_on(parse(LARGE.replace("SIZE", str(size))).entry.root, 0) == value


@pytest.mark.parametrize("text", [ARGUMENT, TUPLE], ids=["argument", "tuple"])
def test_other_values_are_unknown(text: str) -> None:
    assert number_on(parse(text).entry.root, 0) is None
