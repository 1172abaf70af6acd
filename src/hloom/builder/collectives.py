"""Functions of several devices: gather, reduce, exchange, broadcast, permute; device numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from hloom.builder.builder import Computation, XlaBuilder, XlaComputation, XlaOp
from hloom.builder.data_movement import Parameter, Reshape, Transpose, Tuple
from hloom.builder.elementwise import Add, Or
from hloom.builder.messages import listed_groups
from hloom.builder.messages import source_target_pairs as pairs_of
from hloom.builder.operands import Operands, op_list, page_function
from hloom.errors import ShapeError
from hloom.ir.device_groups import DeviceList, IotaDeviceList, MeshDeviceList, group_mode
from hloom.shape.element_type import U32, ElementType
from hloom.shape.shape import Shape

__all__: list[str] = ["AllGather", "AllGatherDone", "AllGatherStart", "AllGatherTuple"]
__all__ += ["AllReduce", "AllReduceDone", "AllReduceStart"]
__all__ += ["AllReduceTuple", "CrossReplicaSum", "ReduceScatter"]
__all__ += ["AllToAll", "AllToAllTuple", "CollectiveBroadcast", "CollectiveReduce", "RaggedAllToAll"]
__all__ += ["CollectivePermute", "CollectivePermuteDone", "CollectivePermuteStart", "MultiCollectivePermute"]
__all__ += ["PartitionId", "ReplicaId"]

ReplicaGroupsLike: TypeAlias = "Sequence[Sequence[int]] | DeviceList | IotaDeviceList | MeshDeviceList | None"
"""Groups of devices: lists of numbers, ReplicaGroup messages, or an iota or mesh list. None: one group
of all devices."""


def _groups(groups: ReplicaGroupsLike) -> DeviceList | IotaDeviceList | MeshDeviceList:
    if isinstance(groups, DeviceList | IotaDeviceList | MeshDeviceList):
        return groups
    return DeviceList(listed_groups(groups))


def _group_size(
    opcode: str,
    groups: DeviceList | IotaDeviceList | MeshDeviceList,
    shard_count: int | None,
    *,
    per_partition: bool = False,
) -> int:
    """Return the number of devices in a group, from the groups or else from `shard_count`.

    `per_partition`: the numbers are replicas with all their partitions, so that a group has a multiple of
    the number of listed devices.

    Raises ShapeError if neither states it, and if they disagree.
    """
    listed = len(groups.groups[0]) if groups.groups else None
    if shard_count is None:
        if listed is None or per_partition:
            why = (
                "replica_groups is empty" if listed is None else "groups of replicas meet in every partition"
            )
            message = f"{opcode} needs shard_count, the number of devices in a group, where {why}"
            raise ShapeError(message, rule="collective.shard-count")
        return listed
    fits = listed is None or (shard_count % max(listed, 1) == 0 if per_partition else shard_count == listed)
    if shard_count < 1 or not fits:
        description = (
            "1 or more"
            if listed is None
            else f"{'a multiple of ' * per_partition}{listed}, as in {groups.text()}"
        )
        message = f"{opcode}: the number of devices in a group is {description}, got {shard_count}"
        raise ShapeError(message, rule="collective.shard-count")
    return shard_count


def _meet_in_every_partition(channel_id: object, use_global_device_ids: bool | None) -> bool:
    return group_mode(channel(channel_id), use_global_device_ids) == "cross_replica_and_partition"


def _parts_of_tuple(values: list[XlaOp]) -> tuple[list[XlaOp], bool]:
    """Return the elements of a tuple operand and True; else the operands and False."""
    is_tuple = len(values) == 1 and values[0].shape.is_tuple
    return (list(values[0]), True) if is_tuple else (values, False)


def channel(handle: Any) -> int | None:
    """Return the number of a channel handle: an integer, or a handle object or mapping; None for none."""
    if isinstance(handle, Mapping):
        handle = cast("Mapping[str, Any]", handle)["handle"]
    return None if handle is None else int(getattr(handle, "handle", handle))


def scalar_computation(name: str, element_type: ElementType) -> XlaComputation:
    """Return the computation that adds two scalars (`or` for pred)."""
    b = XlaBuilder(name)
    x, y = (Parameter(b, number, Shape(element_type), word) for number, word in enumerate("xy"))
    return b.build(Or(x, y) if element_type.is_predicate else Add(x, y))


@page_function(operand="operands", all_gather_dimension="all_gather_dim", replica_group_ids="replica_groups")
def AllGather(
    operands: Operands,
    all_gather_dim: int,
    shard_count: int | None = None,
    replica_groups: ReplicaGroupsLike = None,
    channel_id: object = None,
    use_global_device_ids: bool | None = None,
    *,
    opcode: str = "all-gather",
) -> XlaOp:
    """Concatenate the operands of all devices of a group along a dimension.

    `shard_count` is the size of a group; it may be left out if `replica_groups` imply it. Several operands,
    or a tuple, give a tuple.
    """
    values, is_tuple = _parts_of_tuple(op_list(operands))
    groups = _groups(replica_groups)
    apart = _meet_in_every_partition(channel_id, use_global_device_ids)
    count = _group_size("AllGather", groups, shard_count, per_partition=apart)
    widened = [_scaled(v.shape, all_gather_dim, count, 1) for v in values]
    result = Shape.maybe_tuple(widened)
    if opcode == "all-gather-start":
        sources = [v.shape for v in values]
        result = Shape.tuple_([Shape.maybe_tuple(sources), result])
    op = values[0].builder.emit(
        opcode,
        values,
        shape=result,
        dimensions=(all_gather_dim,),
        replica_groups=groups,
        channel_id=channel(channel_id),
        use_global_device_ids=use_global_device_ids,
    )
    return Tuple([op]) if is_tuple and len(values) == 1 and opcode == "all-gather" else op


AllGatherTuple = AllGather


def _scaled(shape: Shape, dimension: int, factor: int, divisor: int) -> Shape:
    """Return the shape with one dimension multiplied, or divided, by the number of shards."""
    axis = shape.axis(dimension)
    if shape.dimensions[axis] == Shape.UNBOUNDED:
        return shape
    size = shape.dimensions[axis] * factor
    if divisor < 1 or size % divisor:
        message = f"dimension {dimension} of {shape} is not divisible by {divisor} shards"
        raise ShapeError(message, rule="collective.shards-divide")
    sizes = (*shape.dimensions[:axis], size // divisor, *shape.dimensions[axis + 1 :])
    return shape.with_dimensions(sizes, shape.dynamic_dimensions)


@page_function(operand="operands", replica_group_ids="replica_groups")
def AllReduce(
    operands: Operands,
    computation: Computation,
    replica_groups: ReplicaGroupsLike = None,
    channel_id: object = None,
    shape_with_layout: Shape | None = None,
    use_global_device_ids: bool | None = None,
    *,
    opcode: str = "all-reduce",
) -> XlaOp:
    """Reduce the operands of all devices of a group element by element.

    The elements of a tuple, or several operands, are reduced independently and give a tuple.
    """
    values, is_tuple = _parts_of_tuple(op_list(operands))
    op = values[0].builder.emit(
        opcode,
        values,
        shape=shape_with_layout,
        computations=[computation],
        replica_groups=_groups(replica_groups),
        channel_id=channel(channel_id),
        use_global_device_ids=use_global_device_ids,
    )
    return Tuple([op]) if is_tuple and len(values) == 1 and opcode == "all-reduce" else op


AllReduceTuple = AllReduce


@page_function(replica_group_ids="replica_groups")
def CrossReplicaSum(operand: XlaOp, replica_groups: ReplicaGroupsLike = None) -> XlaOp:
    """Sum over the replicas of a group: an all-reduce with addition (`or` for pred)."""
    summed = operand.shape.tuple_shapes[0] if operand.shape.is_tuple else operand.shape
    return AllReduce(operand, scalar_computation("sum", summed.element_type), replica_groups)


@page_function(scatter_dimension="scatter_dim", replica_group_ids="replica_groups", operand="operands")
def ReduceScatter(
    operands: Operands,
    computation: Computation,
    scatter_dim: int,
    shard_count: int | None = None,
    replica_groups: ReplicaGroupsLike = None,
    channel_id: object = None,
    use_global_device_ids: bool | None = None,
) -> XlaOp:
    """Reduce across a group; every device keeps its own part of the result along a dimension.

    `shard_count` is the size of a group; it may be left out if `replica_groups` imply it. The elements
    of a tuple, or several operands, are reduced independently and give a tuple.
    """
    values, is_tuple = _parts_of_tuple(op_list(operands))
    groups = _groups(replica_groups)
    apart = _meet_in_every_partition(channel_id, use_global_device_ids)
    count = _group_size("ReduceScatter", groups, shard_count, per_partition=apart)
    parts = [_scaled(v.shape, scatter_dim, 1, count) for v in values]
    op = values[0].builder.emit(
        "reduce-scatter",
        values,
        shape=Shape.maybe_tuple(parts),
        computations=[computation],
        dimensions=(scatter_dim,),
        replica_groups=groups,
        channel_id=channel(channel_id),
        use_global_device_ids=use_global_device_ids,
    )
    return Tuple([op]) if is_tuple and len(values) == 1 else op


@page_function(replica_group_ids="replica_groups")
def AllToAll(
    operand: XlaOp,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    replica_groups: ReplicaGroupsLike = None,
    channel_id: object = None,
) -> XlaOp:
    """Split the operand, send part i to device i of the group, and concatenate the received parts.

    `split_count` is the size of a group. Empty `replica_groups` stand for all replicas in their order; as in
    XlaBuilder they are written out, so that a run on another number of replicas is refused.
    """
    shape = operand.shape
    if not shape.is_array:
        raise ShapeError(f"AllToAll takes an array, got {shape}", rule="all-to-all.operand-arrays")
    for split_or_concat in (split_dimension, concat_dimension):
        if not 0 <= split_or_concat < shape.rank:
            message = f"dimension {split_or_concat} is not one of {shape}; dimensions are counted from 0"
            raise ShapeError(message, rule="all-to-all.split-dimension")
    split, concat = split_dimension, concat_dimension
    groups = _groups(replica_groups)
    count = _group_size("AllToAll", groups, split_count)
    _scaled(shape, split, 1, count)
    exchanged = operand.builder.emit(
        "all-to-all",
        [operand],
        dimensions=(split,),
        replica_groups=groups if groups.groups else DeviceList((tuple(range(split_count)),)),
        channel_id=channel(channel_id),
    )
    if split == concat:
        return exchanged
    # The parts lie one after the other along the split dimension: their number moves before the other one.
    sizes = list(shape.dimensions)
    sizes[split : split + 1] = [split_count, sizes[split] // split_count]
    parts = Reshape(exchanged, sizes)  # refuses an unbounded dimension
    order = [axis for axis in range(len(sizes)) if axis != split]
    order.insert(order.index(concat if concat < split else concat + 1), split)
    final = list(shape.dimensions)
    final[split] //= split_count
    final[concat] *= split_count
    return Reshape(Transpose(parts, order), final)


@page_function(replica_group_ids="replica_groups")
def AllToAllTuple(
    operands: Operands, replica_groups: ReplicaGroupsLike = None, channel_id: object = None
) -> XlaOp:
    """Send operand i to device i of the group; return the tuple of the received values."""
    values = op_list(operands)
    return values[0].builder.emit(
        "all-to-all",
        values,
        shape=Shape.tuple_([v.shape for v in values]),
        replica_groups=_groups(replica_groups),
        channel_id=channel(channel_id),
    )


@page_function(operand="operands", replica_group_ids="replica_groups")
def CollectiveBroadcast(
    operands: Operands,
    replica_groups: ReplicaGroupsLike = None,
    channel_id: object = None,
    has_dynamic_root: bool = False,
) -> XlaOp:
    """Broadcast the operands of the first device of each group; devices in no group get zeros.

    With `has_dynamic_root` the last operand has the place of the root of each of the others in its group.
    """
    values = op_list(operands)
    return values[0].builder.emit(
        "collective-broadcast",
        values,
        replica_groups=_groups(replica_groups),
        channel_id=channel(channel_id),
        has_dynamic_root=has_dynamic_root,
    )


@page_function(operand="operands", replica_group_ids="replica_groups")
def CollectiveReduce(
    operands: Operands,
    computation: Computation,
    replica_groups: ReplicaGroupsLike = None,
    channel_id: object = None,
    use_global_device_ids: bool | None = None,
    has_dynamic_root: bool = False,
) -> XlaOp:
    """Reduce the operands across each group; its first device gets the result, the others zeros.

    With `has_dynamic_root` the last operand has the place of the root of each of the others in its group.
    """
    values = op_list(operands)
    return values[0].builder.emit(
        "collective-reduce",
        values,
        computations=[computation],
        replica_groups=_groups(replica_groups),
        channel_id=channel(channel_id),
        use_global_device_ids=use_global_device_ids,
        has_dynamic_root=has_dynamic_root,
    )


@page_function(operand="operands", source_target_pair="source_target_pairs")
def CollectivePermute(
    operands: Operands,
    source_target_pairs: Sequence[tuple[int, int]],
    channel_id: object = None,
    *,
    opcode: str = "collective-permute",
) -> XlaOp:
    """Send the operand of every source to its target; devices that are no target get zeros."""
    values = op_list(operands)
    return values[0].builder.emit(
        opcode,
        values,
        source_target_pairs=pairs_of(source_target_pairs),
        channel_id=channel(channel_id),
    )


MultiCollectivePermute = CollectivePermute


@page_function(replica_group_ids="replica_groups")
def RaggedAllToAll(
    input: XlaOp,
    input_offsets: XlaOp,
    send_sizes: XlaOp,
    output: XlaOp,
    output_offsets: XlaOp,
    recv_sizes: XlaOp,
    replica_groups: ReplicaGroupsLike = None,
    channel_id: object = None,
) -> XlaOp:
    """Exchange parts of run-time sizes, each written into `output` at a run-time position."""
    return input.builder.emit(
        "ragged-all-to-all",
        [input, output, input_offsets, send_sizes, output_offsets, recv_sizes],
        replica_groups=_groups(replica_groups),
        channel_id=channel(channel_id),
    )


# -- asynchronous forms


@page_function(operand="operands", all_gather_dimension="all_gather_dim", replica_group_ids="replica_groups")
def AllGatherStart(
    operands: Operands,
    all_gather_dim: int,
    shard_count: int | None = None,
    replica_groups: ReplicaGroupsLike = None,
    channel_id: object = None,
    use_global_device_ids: bool | None = None,
) -> XlaOp:
    """Start an all-gather; the result is the context for AllGatherDone."""
    groups = shard_count, replica_groups, channel_id, use_global_device_ids
    return AllGather(operands, all_gather_dim, *groups, opcode="all-gather-start")


@page_function()
def AllGatherDone(context: XlaOp) -> XlaOp:
    """Wait for an all-gather."""
    return context.builder.emit("all-gather-done", [context])


@page_function(operand="operands", replica_group_ids="replica_groups")
def AllReduceStart(
    operands: Operands,
    computation: Computation,
    replica_groups: ReplicaGroupsLike = None,
    channel_id: object = None,
    use_global_device_ids: bool | None = None,
) -> XlaOp:
    """Start an all-reduce; the result is the context for AllReduceDone."""
    groups = replica_groups, channel_id, None, use_global_device_ids
    return AllReduce(operands, computation, *groups, opcode="all-reduce-start")


@page_function()
def AllReduceDone(context: XlaOp) -> XlaOp:
    """Wait for an all-reduce."""
    return context.builder.emit("all-reduce-done", [context])


@page_function(operand="operands", source_target_pair="source_target_pairs")
def CollectivePermuteStart(
    operands: Operands, source_target_pairs: Sequence[tuple[int, int]], channel_id: object = None
) -> XlaOp:
    """Start a collective permute; the result is the context for CollectivePermuteDone."""
    return CollectivePermute(operands, source_target_pairs, channel_id, opcode="collective-permute-start")


@page_function()
def CollectivePermuteDone(context: XlaOp) -> XlaOp:
    """Wait for a collective permute."""
    return context.builder.emit("collective-permute-done", [context])


# -- numbers of the device


@page_function()
def ReplicaId(builder: XlaBuilder) -> XlaOp:
    """Return the number of the replica, a u32 scalar."""
    return builder.emit("replica-id", shape=Shape(U32))


@page_function()
def PartitionId(builder: XlaBuilder) -> XlaOp:
    """Return the number of the partition, a u32 scalar."""
    return builder.emit("partition-id", shape=Shape(U32))
