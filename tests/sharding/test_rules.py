"""The list of operations that state a sharding rule."""

from __future__ import annotations

import pytest

import hloom.operations
from hloom.ir.operation import REGISTRY, Operation
from hloom.ir.traits import Family
from tests.evaluation import parse
from tests.reducers import binary

assert hloom.operations

WHOLE = {
    "batch-norm-grad", "batch-norm-inference", "batch-norm-training", "bitcast", "bitcast-convert",
    "constant", "domain",
    "dynamic-reshape", "get-dimension-size", "map", "ragged-dot", "rng", "rng-bit-generator",
    "rng-get-and-update-state", "scaled-dot", "scan", "set-dimension-size", "topk",
}  # fmt: skip
"""Operations on arrays that run on whole arrays: right, but slow."""
TRAVERSED = {Family.CONTROL, Family.COLLECTIVE, Family.TRANSFER}
"""Families that the partitioner enters, or that a program has in manual regions."""
PLUMBING = {
    "parameter", "tuple", "get-tuple-element", "after-all", "add-dependency", "opt-barrier", "partition-id",
    "replica-id", "copy-start", "copy-done", "async-start", "async-update", "async-done",
}  # fmt: skip


def test_every_operation_on_arrays_has_a_rule_or_is_listed() -> None:
    lacking = {
        opcode
        for opcode, declared in REGISTRY.items()
        if declared.sharding_rule is Operation.sharding_rule
        and not declared.elementwise
        and declared.family not in TRAVERSED
    }
    assert lacking - PLUMBING == WHOLE


BATCHED = f"""{binary("add")}
ENTRY e {{
  x = f32[5,4] parameter(0)
  i = s32[4,3,1] parameter(1)
  u = f32[4,3] parameter(2)
  s = f32[5,4] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, input_batching_dims={{1}}, scatter_indices_batching_dims={{0}},
    index_vector_dim=2, to_apply=f
  g = f32[4,3] gather(x, i), offset_dims={{}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
    operand_batching_dims={{1}}, start_indices_batching_dims={{0}}, index_vector_dim=2, slice_sizes={{1,1}}
  ROOT r = tuple(s, g)
}}
"""


@pytest.mark.parametrize(("number", "operands", "result"), [(0, {0: 1, 1: 0, 2: 0}, 1), (1, {0: 1, 1: 0}, 0)])
def test_batches_are_different_dimensions_of_operand_and_indices(
    number: int, operands: dict[int, int], result: int
) -> None:
    i = parse(BATCHED).entry.root.operands[number]
    (batch,) = [f for f in i.operation.sharding_rule(i, [o.shape for o in i.operands]) if f.size == 4]
    assert dict(batch.operands) == operands and batch.result == result
