"""Preparation of a program for propagation and partitioning: values flow from operation to operation."""

from __future__ import annotations

from hloom.ir.cloning import clone_module
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.structure import GetTupleElement, Tuple
from hloom.passes.expand.call_inliner import CallInliner
from hloom.passes.expand.flatten_call_graph import FlattenCallGraph
from hloom.passes.simplify.dead_code import DeadCodeElimination


def prepared(module: HloModule) -> HloModule:
    """Return a copy with calls inlined, a computation of its own for each caller, and no needless tuples.

    Inlined calls leave tuples from which elements are taken, through which shardings would not spread.
    """
    copy = clone_module(module)
    CallInliner().run(copy)
    FlattenCallGraph().run(copy)
    for computation in copy.computations:
        for i in computation.post_order():
            operation = i.operation
            if not isinstance(operation, GetTupleElement) or _states_sharding(i):
                continue
            (source,) = i.operands
            if isinstance(source.operation, Tuple):
                computation.replace(i, source.operands[operation.index])
    DeadCodeElimination().run(copy)
    return copy


def _states_sharding(i: HloInstruction) -> bool:
    return i.sharding is not None or "xla.sdy.sharding" in (i.frontend_attributes or {})
