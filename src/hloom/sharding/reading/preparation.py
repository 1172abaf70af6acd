"""Preparation of a program for propagation and partitioning: values flow from operation to operation."""

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
from hloom.operations.movement import Pad, Slice
from hloom.operations.structure import GetTupleElement, Parameter, Tuple
from hloom.passes.expand.call_inliner import CallInliner
from hloom.passes.expand.control_dependency_calls import ControlDependencyCalls
from hloom.passes.expand.flatten_call_graph import FlattenCallGraph
from hloom.passes.expand.multi_slice_calls import MultiSliceCalls
from hloom.passes.expand.rotation_calls import rotated, rotation_call
from hloom.passes.expand.sharding_remover import drop
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.passes.writing import Writer
from hloom.sharding.reading.named_regions import state_regions


def prepared(module: HloModule) -> HloModule:
    """Return a copy with calls inlined, a computation of its own for each caller, and no needless tuples.

    Inlined calls leave tuples from which elements are taken, through which shardings would not spread.
    """
    copy = clone_module(module)
    state_regions(copy)
    CallInliner().run(copy)
    FlattenCallGraph().run(copy)
    ControlDependencyCalls().run(copy)
    MultiSliceCalls().run(copy)
    take_elements(copy)
    for computation in copy.computations:
        for i in computation.post_order():
            _state_at_operand(i)
        for i in computation.post_order():
            _slice_padding(i)
            if (found := rotated(i)) is not None:
                rotation_call(i, *found)
    DeadCodeElimination().run(copy)
    return copy


def take_elements(module: HloModule) -> None:
    """Let users of an element of a tuple take it directly, but where an annotation is stated for it."""
    for computation in module.computations:
        for i in computation.post_order():
            operation = i.operation
            if not isinstance(operation, GetTupleElement) or states_sharding(i):
                continue
            (source,) = i.operands
            if isinstance(source.operation, Tuple):
                computation.replace(i, source.operands[operation.index])


def _slice_padding(i: HloInstruction) -> None:
    """``slice(pad(x, v))`` → ``pad(x, v)`` of less or negative padding, so that halos are exchanged once.

    There may be copies between them; the slice has elements of ``x``. Bitwise.
    """
    if not isinstance(i.operation, Slice):
        return
    (source,) = i.operands
    while isinstance(source.operation, Copy) and len(source.users) == 1:
        (source,) = source.operands
    if not isinstance(source.operation, Pad) or len(source.users) > 1 or i.control_predecessors:
        return
    made: list[PaddingDimension] = []
    pairs = zip(i.operation.slice, source.operation.padding, source.shape.dimensions, strict=True)
    for one, pad, extent in pairs:
        if (one.start, one.limit, one.stride) == (0, extent, 1):
            made.append(pad)
        elif one.stride == 1 and not pad.interior:
            made.append(PaddingDimension(pad.low - one.start, pad.high - (extent - one.limit), 0))
        else:
            return
    extents = source.operands[0].shape.dimensions
    if any(min(pad.low, pad.high) <= -extent for pad, extent in zip(made, extents, strict=True)):
        return
    value = Writer(i).op(Pad(padding=tuple(made)), *source.operands, shape=i.shape)
    value.sharding, value.frontend_attributes = i.sharding, i.frontend_attributes
    Writer(i).replace(value)


def _state_at_operand(i: HloInstruction) -> None:
    """Move the annotation of a constraint to the operation that computes its operand for it alone."""
    if not is_constraint(i) or not states_sharding(i):
        return
    (operand,) = i.operands
    passes_on = isinstance(operand.operation, (Parameter, GetTupleElement, CustomCall, While, Conditional))
    if passes_on or states_sharding(operand) or len(operand.users) > 1 or operand.is_root:
        return
    if i.control_predecessors or i.control_successors or "unspecified_dims" in str(i.backend_config):
        return
    operand.sharding = i.sharding
    text = (i.frontend_attributes or {}).get("xla.sdy.sharding")
    if text is not None:
        operand.frontend_attributes = {**(operand.frontend_attributes or {}), "xla.sdy.sharding": text}
    Writer(i).replace(operand)


def sharding_groups(computations: Iterable[HloComputation]) -> list[list[HloInstruction]]:
    """Return the arrays of each sharding group of a program; remove the calls that make up the groups.

    A call ``() custom-call(x), custom_call_target="xla.sdy.ShardingGroup"`` puts ``x`` into the group that
    its attribute ``xla.sdy.sharding_group_id`` names.
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


def states_sharding(i: HloInstruction) -> bool:
    """Return true if an instruction has an annotation."""
    return i.sharding is not None or "xla.sdy.sharding" in (i.frontend_attributes or {})
