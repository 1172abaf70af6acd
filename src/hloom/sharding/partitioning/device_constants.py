"""Scalars that depend on the device id: per-device constants and device coordinates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import Add, Divide, Multiply, Remainder
from hloom.operations.conversion import Convert
from hloom.operations.device_ids import PartitionId
from hloom.operations.dynamic_slicing import DynamicSlice
from hloom.operations.structure import Constant
from hloom.passes.writing import Inserter
from hloom.shape.element_type import S32, U32
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape
from hloom.sharding.tiling.coordinates import MOST_LISTED, Coordinate


def device_constant(inserter: Inserter, table: Sequence[int]) -> HloInstruction:
    """Emit code that computes ``table[device id]`` on each device; return the s32 scalar.

    ``table`` has an integer for each device. If all are equal, the scalar is a constant; otherwise the code
    slices a constant array at the partition id.
    """
    if len(set(table)) == 1:
        return inserter.scalar(table[0], S32)
    numbers = np.asarray(table, np.int32)
    literal = Literal(numbers, Shape(S32, numbers.shape))
    constant = inserter.op(Constant(literal=literal), shape=literal.shape)
    device = inserter.op(PartitionId(), shape=Shape(U32, ()))
    entry = inserter.op(DynamicSlice(dynamic_slice_sizes=(1,)), constant, device, shape=Shape(S32, (1,)))
    return inserter.reshape(entry, ())


def device_coordinate(inserter: Inserter, coordinate: Coordinate, factor: int = 1) -> HloInstruction:
    """Emit code that computes a device's index along ``coordinate``, times ``factor``; return the s32 scalar.

    The code reads a constant table or, if there are many devices, computes the index from the partition id.
    """
    if coordinate.devices <= MOST_LISTED or coordinate.listed:
        return device_constant(inserter, [index * factor for index in coordinate.indices])
    partition = inserter.op(PartitionId(), shape=Shape(U32, ()))
    device = inserter.op(Convert(), partition, shape=Shape(S32, ()))
    total = inserter.scalar(0, S32)
    for stride, size in reversed(coordinate.digits):
        digit = device
        for operation, number in ((Divide(), stride), (Remainder(), size), (Multiply(), factor)):
            digit = inserter.op(operation, digit, inserter.scalar(number, S32), shape=digit.shape)
        total = inserter.op(Add(), total, digit, shape=digit.shape)
        factor *= size
    return total
