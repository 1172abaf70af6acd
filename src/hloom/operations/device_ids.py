"""The numbers of the device that runs the program: replica-id, partition-id."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hloom.ir.device import DeviceContext
from hloom.ir.operation import Array, Operation, Run, operation
from hloom.ir.traits import ElementCost, Family, Roundoff
from hloom.shape.element_type import U32
from hloom.shape.shape import Shape


class _DeviceNumber(Operation):
    """One number of the id (replica, partition) of a device."""

    __slots__ = ()
    family: ClassVar[Family] = Family.COLLECTIVE
    element_cost: ClassVar[ElementCost] = ElementCost.FREE
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    distinct: ClassVar[bool] = True
    position: ClassVar[int]
    """The position of the number in the id."""

    def traffic(self, shape: Shape, *operands: Shape) -> int:
        return 0

    def infer(self) -> Shape:
        return Shape(U32)

    def evaluate(self, run: Run) -> Array:
        """Return the number of the device."""
        device: DeviceContext = run.device
        return np.asarray(device.id[self.position], run.dtype)


@operation("replica-id")
class ReplicaId(_DeviceNumber):
    """The number of this device's replica, as u32[]."""

    position: ClassVar[int] = 0


@operation("partition-id")
class PartitionId(_DeviceNumber):
    """The number of this device's partition, as u32[]."""

    position: ClassVar[int] = 1
