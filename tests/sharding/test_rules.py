"""The list of operations that state a sharding rule."""

from __future__ import annotations

import hloom.operations
from hloom.ir.operation import REGISTRY, Operation
from hloom.ir.traits import Family

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
