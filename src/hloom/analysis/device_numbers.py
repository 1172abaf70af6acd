"""Evaluation of scalars that depend on the device id only, as partitioned programs compute them."""

from __future__ import annotations

from typing import Final, cast

import numpy as np

from hloom.analysis.purity import is_pure
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array
from hloom.operations.device_ids import PartitionId
from hloom.operations.structure import Constant

_LARGEST: Final = 1 << 16
"""Maximum number of elements of evaluated arrays; tables of per-device constants have one per device."""


def number_on(i: HloInstruction, device: int) -> int | None:
    """Return the value of a scalar on a device; None if it depends on more than the device id."""
    with np.errstate(all="ignore"):
        value = _value(i, device, Evaluator())
    return int(value.reshape(-1)[0]) if value is not None and value.size == 1 else None


def _value(i: HloInstruction, device: int, evaluator: Evaluator) -> Array | None:
    """Return the value of a small array on a device; None if it depends on more than the device id."""
    if isinstance(i.operation, PartitionId):
        return np.asarray(device, np.uint32)
    if not i.shape.is_array or i.shape.element_count > _LARGEST:
        return None
    if isinstance(i.operation, Constant):
        return i.operation.literal.numpy()
    operands = [_value(operand, device, evaluator) for operand in i.operands] if is_pure(i) else []
    values = [operand for operand in operands if operand is not None]
    if not operands or len(values) < len(operands):
        return None
    return cast("Array", evaluator.apply(i, values))
