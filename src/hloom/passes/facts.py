"""Facts about modules that passes rely on, each with a name and a test.

A pass that ``needs`` a fact must run after one that ``establishes`` it, without a pass between them that
``breaks`` it; `hloom.passes.pipeline` rejects any other order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hloom.ir.computation import HloComputation
from hloom.ir.module import HloModule
from hloom.operations.control_flow import Call, Fusion

FLAT: Final = "flat-call-graph"
"""Every computation called by control flow has one caller."""
INLINED: Final = "inlined"
"""The module contains no calls and no fusions."""
UNORDERED: Final = "unordered"
"""Instruction order has no meaning; required order is expressed by control dependencies."""
NO_BATCH_NORM: Final = "no-batch-norm"
"""Batch normalization of static arrays is expanded."""


def _is_flat(module: HloModule) -> bool:
    callers: dict[HloComputation, int] = {}
    for i in module.instructions():
        if i.operation.calls_program:
            for computation in i.called_computations:
                callers[computation] = callers.get(computation, 0) + 1
    return all(count == 1 for count in callers.values())


def _is_inlined(module: HloModule) -> bool:
    return all(not isinstance(i.operation, (Call, Fusion)) for i in module.instructions())


def _is_unordered(module: HloModule) -> bool:
    return not module.config.is_scheduled


def _has_no_batch_norm(module: HloModule) -> bool:
    return not any(
        i.opcode.startswith("batch-norm-") and i.operands[0].shape.is_static for i in module.instructions()
    )


FACTS: Final[dict[str, Callable[[HloModule], bool]]] = {
    FLAT: _is_flat,
    INLINED: _is_inlined,
    UNORDERED: _is_unordered,
    NO_BATCH_NORM: _has_no_batch_norm,
}
"""Tests of the facts, for checking that passes establish them."""
