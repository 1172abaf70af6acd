"""Calls that slice or pad an array several times become slices and pads, whole and on tiles."""

from __future__ import annotations

import numpy as np
import pytest

import hloom
from hloom.ir.module import HloModule
from hloom.passes.expand.multi_slice_calls import MultiSliceCalls
from hloom.sharding.reporting.traffic import bytes_sent
from tests import agreement
from tests.sharding.runs import run_partitioned

SLICES = """HloModule m
  ENTRY e { x = f64[4,12] parameter(0), sharding={devices=[1,4]<=[4]}
    ROOT c = (f64[3,10], f64[3,10]) custom-call(x), custom_call_target="_SPMDInternalOp_MultiSlice",
      backend_config="dimension=1,amount=1,start_indices=[1,0],limit_indices=[4,10],strides=[1,1],bufferize=0",
      sharding={{devices=[1,4]<=[4]}, {devices=[1,4]<=[4]}} }"""
PADS = """HloModule m
  ENTRY e { x = f64[11] parameter(0), sharding={devices=[4]<=[4]}
    v = f64[] constant(7)
    ROOT c = (f64[12], f64[12]) custom-call(x, v), custom_call_target="_SPMDInternalOp_MultiPad",
      backend_config="dimension=0,amt=1,bufferize=0", sharding={{devices=[4]<=[4]}, {devices=[4]<=[4]}} }"""
X = np.arange(48, dtype=np.float64).reshape(4, 12)


@pytest.mark.parametrize(
    ("text", "x", "wanted", "sent"),
    [
        # Of tiles of 3 rows and columns, the second slice needs one column of the next tile.
        (SLICES, X, (X[1:4, 0:10], X[1:4, 1:11]), 3),
        # The first pad shifts by one element, the second by none.
        (PADS, X[0, :11], (np.r_[7, X[0, :11]], np.r_[X[0, :11], 7]), 1),
    ],
)
def test_results_are_shifted_by_one_element_each(
    text: str, x: np.ndarray, wanted: tuple[np.ndarray, np.ndarray], sent: int
) -> None:
    module = HloModule.from_text(text)
    for found, one in zip(hloom.compile(module, "cpu")(x), wanted, strict=True):
        agreement.same(found, one)
    partitioned, parts = run_partitioned(module, 4, [x])
    for found, one in zip(parts, wanted, strict=True):
        agreement.same(found, one)
    assert bytes_sent(partitioned.module) == 8 * sent


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("dimension=1", "dimension=2"), ("limit_indices=[4,10]", "limit_indices=[4,12]"), ("strides", "steps")],
)
def test_calls_of_another_form_stay(right: str, wrong: str) -> None:
    module = HloModule.from_text(SLICES.replace(right, wrong))
    assert not MultiSliceCalls().run(module)
    assert module.entry.root.opcode == "custom-call"
