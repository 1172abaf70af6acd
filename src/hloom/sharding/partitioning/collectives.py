"""Writer of the collectives of a partitioned program, which records their causes."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from hloom.ir.computation import HloComputation
from hloom.ir.device_groups import DeviceList
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.operations.collectives import AllGather, AllReduce, ReduceScatter
from hloom.operations.exchanges import AllToAll, CollectivePermute
from hloom.operations.rooted_collectives import CollectiveBroadcast
from hloom.passes.writing import Inserter
from hloom.shape.shape import Shape
from hloom.sharding.planning.decisions import Cause
from hloom.sharding.tiling.coordinates import DeviceGroups, group_size


class CollectiveWriter:
    """Emits collectives, each with a channel id of its own, and records why the program needs them.

    Attributes:
        causes: for each collective that was emitted in a ``with`` statement of `because`, why it is needed.
    """

    def __init__(self, module: HloModule) -> None:
        self.causes: dict[HloInstruction, Cause] = {}
        self._cause: Cause | None = None
        used = [getattr(i.operation, "channel_id", None) or 0 for i in module.instructions()]
        self._channels: Final = itertools.count(max(used, default=0) + 1)

    @contextmanager
    def because(self, cause: Cause) -> Generator[None]:
        """Record ``cause`` as the reason of each collective that is emitted inside the ``with`` statement."""
        outer, self._cause = self._cause, cause
        try:
            yield
        finally:
            self._cause = outer

    def channel(self) -> int:
        """Return an unused channel id."""
        return next(self._channels)

    def permute(self, value: HloInstruction, pairs: Sequence[tuple[int, int]]) -> HloInstruction:
        """Emit a collective-permute of ``value`` along (source, target) pairs.

        Devices that are no target get zeros.
        """
        operation = CollectivePermute(channel_id=self.channel(), source_target_pairs=tuple(pairs))
        return self._add(operation, value, value.shape.dimensions)

    def all_reduce(self, value: HloInstruction, combiner: Operation, groups: DeviceGroups) -> HloInstruction:
        """Emit an all-reduce of the ``value`` of each device by ``combiner`` in each group of devices."""
        operation = AllReduce(
            replica_groups=groups,
            channel_id=self.channel(),
            use_global_device_ids=True,
            constrain_layout=False,
        )
        computation = Inserter(value).combiner(combiner, value.shape.element_type)
        return self._add(operation, value, value.shape.dimensions, [computation])

    def reduce_scatter(
        self, value: HloInstruction, combiner: Operation, d: int, groups: DeviceGroups
    ) -> HloInstruction:
        """Emit a reduce-scatter of the ``value`` of each device by ``combiner`` in each group of devices.

        ``d`` is the scattered dimension.
        """
        operation = ReduceScatter(
            replica_groups=groups,
            channel_id=self.channel(),
            use_global_device_ids=True,
            constrain_layout=False,
            scatter_dimensions=(d,),
        )
        dimensions = list(value.shape.dimensions)
        dimensions[d] //= group_size(groups)
        computation = Inserter(value).combiner(combiner, value.shape.element_type)
        return self._add(operation, value, dimensions, [computation])

    def all_gather(self, value: HloInstruction, d: int, groups: DeviceGroups) -> HloInstruction:
        """Emit an all-gather that concatenates the values of each group along dimension ``d``."""
        operation = AllGather(
            all_gather_dimensions=(d,),
            replica_groups=groups,
            channel_id=self.channel(),
            use_global_device_ids=True,
            constrain_layout=False,
        )
        dimensions = list(value.shape.dimensions)
        dimensions[d] *= group_size(groups)
        return self._add(operation, value, dimensions)

    def all_to_all(self, value: HloInstruction, d: int, groups: DeviceGroups) -> HloInstruction:
        """Emit an all-to-all that sends the slice at index n of dimension ``d`` to device n of the group.

        The extent of the dimension is the group size. The received slices are concatenated along it, in the
        order of their senders.
        """
        operation = AllToAll(
            channel_id=self.channel(),
            replica_groups=groups,
            constrain_layout=False,
            split_dimension=(d,),
        )
        return self._add(operation, value, value.shape.dimensions)

    def broadcast(self, value: HloInstruction, groups: DeviceGroups) -> HloInstruction:
        """Emit a collective-broadcast of the value of the first device of each group to the others."""
        operation = CollectiveBroadcast(replica_groups=groups, channel_id=self.channel())
        return self._add(operation, value, value.shape.dimensions)

    def broadcast_from(self, value: HloInstruction, source: int, devices: int) -> HloInstruction:
        """Emit a collective-broadcast of the value of device ``source`` to all ``devices`` devices."""
        group = (source, *(n for n in range(devices) if n != source))
        return self.broadcast(value, DeviceList((group,)))

    def _add(
        self,
        operation: Operation,
        value: HloInstruction,
        dimensions: Sequence[int],
        computations: Sequence[HloComputation] = (),
    ) -> HloInstruction:
        shape = Shape(value.shape.element_type, tuple(dimensions))
        collective = Inserter(value).op(operation, value, shape=shape, computations=computations)
        if self._cause is not None:
            self.causes[collective] = self._cause
        return collective
