"""Preparation of a program for propagation: inlining, canonical forms, sharding groups."""

from __future__ import annotations

from collections.abc import Iterable

from hloom.ir.cloning import clone_module
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.window import PaddingDimension
from hloom.operations.control_flow import Conditional, While
from hloom.operations.conversion import Copy
from hloom.operations.custom_call import SHARDING_GROUP, CustomCall, is_constraint
from hloom.operations.movement import Pad, Slice, rotation_in_slices
from hloom.operations.structure import GetTupleElement, Parameter, Tuple
from hloom.passes.expand.async_collective_custom_calls import AsyncCollectiveCustomCalls
from hloom.passes.expand.call_inliner import CallInliner
from hloom.passes.expand.composite_functions import CompositeFunctions
from hloom.passes.expand.control_dependency_calls import ControlDependencyCalls
from hloom.passes.expand.flatten_call_graph import FlattenCallGraph
from hloom.passes.expand.multi_slice_calls import MultiSliceCalls
from hloom.passes.expand.rotation_calls import rotation_call
from hloom.passes.expand.sharding_remover import drop
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.passes.writing import Writer
from hloom.sharding.reading.named_regions import normalize_regions


def prepared(module: HloModule) -> HloModule:
    """Return a copy of a module that is ready for sharding propagation.

    In the copy, calls are inlined, the call graph is flat (as by XLA's FlattenCallGraph), and sharding
    annotations are canonical. Tuples that inlined calls leave between producers and users are removed, as
    shardings would not propagate through them.
    """
    copy = clone_module(module)
    normalize_regions(copy)
    AsyncCollectiveCustomCalls().run(copy)
    CompositeFunctions().run(copy)
    CallInliner().run(copy)
    FlattenCallGraph().run(copy)
    ControlDependencyCalls().run(copy)
    MultiSliceCalls().run(copy)
    for computation in copy.computations:
        forward_tuple_elements(computation)
        for i in computation.post_order():
            _annotate_operand(i)
        for i in computation.post_order():
            _merge_slice_into_pad(i)
            if (rotation := rotation_in_slices(i)) is not None:
                rotation_call(i, rotation)
    DeadCodeElimination().run(copy)
    return copy


def forward_tuple_elements(computation: HloComputation) -> None:
    """Rewrite ``get-tuple-element(tuple(x0, x1, ...)), index=n`` to ``xn`` unless it has an annotation."""
    for i in computation.post_order():
        if isinstance(i.operation, GetTupleElement) and not is_annotated(i):
            (source,) = i.operands
            if isinstance(source.operation, Tuple):
                computation.replace(i, source.operands[i.operation.index])


def _merge_slice_into_pad(i: HloInstruction) -> None:
    """Rewrite ``slice(pad(x, v))`` to a single ``pad(x, v)`` with less or negative padding.

    After partitioning this takes one halo exchange instead of two. Copies between pad and slice are dropped.
    Does nothing if the result would contain no element of ``x``. Values stay bitwise the same.
    """
    if not isinstance(i.operation, Slice):
        return
    (source,) = i.operands
    while isinstance(source.operation, Copy) and len(source.users) == 1:
        (source,) = source.operands
    if not isinstance(source.operation, Pad) or len(source.users) > 1 or i.control_predecessors:
        return
    merged: list[PaddingDimension] = []
    pairs = zip(i.operation.slice, source.operation.padding, source.shape.dimensions, strict=True)
    for bounds, pad, extent in pairs:
        if (bounds.start, bounds.limit, bounds.stride) == (0, extent, 1):
            merged.append(pad)
        elif bounds.stride == 1 and not pad.interior:
            merged.append(PaddingDimension(pad.low - bounds.start, pad.high - (extent - bounds.limit), 0))
        else:
            return
    extents = source.operands[0].shape.dimensions
    if any(min(pad.low, pad.high) <= -extent for pad, extent in zip(merged, extents, strict=True)):
        return
    value = Writer(i).op(Pad(padding=tuple(merged)), *source.operands, shape=i.shape)
    value.sharding, value.frontend_attributes = i.sharding, i.frontend_attributes
    Writer(i).replace(value)


def _annotate_operand(i: HloInstruction) -> None:
    """Move the annotation of a sharding constraint to its operand, and remove the constraint.

    Does nothing if the operand has another user or its own annotation, or if it is a parameter, tuple
    element, loop, conditional or custom call.
    """
    if not is_constraint(i) or not is_annotated(i):
        return
    (operand,) = i.operands
    passes_on = isinstance(operand.operation, (Parameter, GetTupleElement, CustomCall, While, Conditional))
    if passes_on or is_annotated(operand) or len(operand.users) > 1 or operand.is_root:
        return
    if i.control_predecessors or i.control_successors or "unspecified_dims" in str(i.backend_config):
        return
    operand.sharding = i.sharding
    text = (i.frontend_attributes or {}).get("xla.sdy.sharding")
    if text is not None:
        operand.frontend_attributes = {**(operand.frontend_attributes or {}), "xla.sdy.sharding": text}
    Writer(i).replace(operand)


def sharding_groups(computations: Iterable[HloComputation]) -> list[list[HloInstruction]]:
    """Remove the calls that define sharding groups; return a list of the member instructions of each group.

    The members of a group must have the same sharding. The call ``() custom-call(x),
    custom_call_target="xla.sdy.ShardingGroup"`` adds ``x`` to the group whose id is in the call's frontend
    attribute ``xla.sdy.sharding_group_id``.
    """
    groups: dict[str, dict[HloInstruction, None]] = {}
    for i in [i for computation in computations for i in computation.post_order()]:
        operation = i.operation
        if not isinstance(operation, CustomCall) or operation.custom_call_target != SHARDING_GROUP:
            continue
        name = (i.frontend_attributes or {}).get("xla.sdy.sharding_group_id", "")
        groups.setdefault(name, {}).update((o, None) for o in i.operands if o.shape.is_array)
        drop(i)
    return [list(members) for members in groups.values() if members]


def is_annotated(i: HloInstruction) -> bool:
    """Return true if an instruction has a sharding annotation, in HLO's or in Shardy's notation."""
    return i.sharding is not None or "xla.sdy.sharding" in (i.frontend_attributes or {})
