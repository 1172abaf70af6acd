"""multi-slice-calls: expand the custom calls of Enzyme that slice or pad an array several times.

``dimension=D,amount=N,start_indices=[..],limit_indices=[..],strides=[..]`` of ``_SPMDInternalOp_MultiSlice``
gives N + 1 slices, each one element further along D than the one before. ``dimension=D,amt=N`` of
``_SPMDInternalOp_MultiPad`` gives N + 1 pads: N - n elements before the operand and n behind it. XLA's
partitioner knows these calls (``xla/service/spmd/custom_call_handler.cc``).
"""

from __future__ import annotations

import re
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.ir.window import PaddingDimension, SliceDimension
from hloom.operations.custom_call import TARGETS, CustomCall
from hloom.operations.movement import Pad, Slice
from hloom.operations.structure import Tuple
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer
from hloom.regex import regex

_NUMBER: Final = regex(r"(dimension|amount|amt)=(\d+)")
_LIST: Final = regex(r"(start_indices|limit_indices|strides)=\[([\d,; ]*)\]")


class MultiSliceCalls(OpExpander, name="multi-slice-calls", of=CustomCall):
    """``custom-call(x)`` of the targets → ``tuple(slice(x), ...)`` or ``tuple(pad(x, v), ...)``. Bitwise."""

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        """Return the tuple of the operations' results, which have the shardings of the call's elements."""
        operations = _operations(i)
        if not _has_their_results(i, operations):
            return None
        shardings = i.sharding.elements if i.sharding is not None and i.sharding.kind == "tuple" else ()
        parts = [w.op(operation, *i.operands) for operation in operations]
        for part, sharding in zip(parts, shardings, strict=False):
            part.sharding = sharding
        joined = w.op(Tuple(), *parts, shape=i.shape)
        joined.sharding = i.sharding
        return joined


def _operations(i: HloInstruction) -> list[Operation]:
    """Return the slices or pads that a call makes; none for other instructions."""
    operation = i.operation
    if not isinstance(operation, CustomCall) or operation.custom_call_target in TARGETS:
        return []
    text = str(i.backend_config)
    numbers = {key: int(value) for key, value in _NUMBER.findall(text)}
    lists = {key: [int(n) for n in re.findall(r"\d+", values)] for key, values in _LIST.findall(text)}
    d, amount = numbers.get("dimension", -1), numbers.get("amount", numbers.get("amt", -1))
    rank = i.operands[0].shape.rank if i.operands and i.operands[0].shape.is_array else 0
    if not 0 <= d < rank or amount < 0:
        return []
    match operation.custom_call_target, len(i.operands):
        case "_SPMDInternalOp_MultiSlice", 1:
            ranges = [lists.get(key, []) for key in ("start_indices", "limit_indices", "strides")]
            return [_slice(ranges, d, n) for n in range(amount + 1)] if _are_ranges(ranges, rank) else []
        case "_SPMDInternalOp_MultiPad", 2:
            return [_pad(rank, d, amount - n, n) for n in range(amount + 1)]
        case _:
            return []


def _are_ranges(ranges: list[list[int]], rank: int) -> bool:
    return all(len(values) == rank for values in ranges) and all(ranges[2])


def _slice(ranges: list[list[int]], d: int, shift: int) -> Slice:
    """Return the slice of some ranges, moved by ``shift`` elements along dimension ``d``."""
    parts = [
        SliceDimension(start + shift * (e == d), limit + shift * (e == d), stride)
        for e, (start, limit, stride) in enumerate(zip(*ranges, strict=True))
    ]
    return Slice(slice=tuple(parts))


def _pad(rank: int, d: int, low: int, high: int) -> Pad:
    """Return the pad with ``low`` and ``high`` elements along dimension ``d``."""
    none = PaddingDimension(0, 0, 0)
    return Pad(padding=tuple(PaddingDimension(low, high, 0) if e == d else none for e in range(rank)))


def _has_their_results(i: HloInstruction, operations: list[Operation]) -> bool:
    """Return whether the result shapes of a call are those of the slices or pads."""
    if not operations or not i.shape.is_tuple or len(i.shape.tuple_shapes) != len(operations):
        return False
    shapes = [operand.shape for operand in i.operands]
    limits = [one.limit for o in operations if isinstance(o, Slice) for one in o.slice]
    if any(limit > extent for limit, extent in zip(limits, shapes[0].dimensions * len(operations))):
        return False
    return all(
        o.infer(*shapes).compatible(shape) for o, shape in zip(operations, i.shape.tuple_shapes, strict=True)
    )
