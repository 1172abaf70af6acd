"""CUB's radix sort along the last dimension, of keys or of pairs of key and value."""

from __future__ import annotations

import hloom.ops as ops
from hloom.builder.builder import XlaBuilder, XlaComputation, XlaOp
from hloom.errors import plural
from hloom.library_calls.emulation import LibraryCall, Results, emulates
from hloom.shape.shape import Shape


@emulates("__cub$DeviceRadixSort")
def radix_sort(call: LibraryCall) -> Results:
    """Return keys, and values if there are any, sorted stably by the bits of the keys; -0 equals 0."""
    descending = call.settings("sort_options").flag("descending")
    count = len(call.operands)
    call.require(count in (1, 2), f"it has {plural(count, 'operand')}")
    values = [o.shape for o in call.operands]
    ordered = ops.Sort(call.operands, _comparator(values, descending), values[0].rank - 1, True)
    return [ordered] if count == 1 else list(ordered)


def _comparator(shapes: list[Shape], descending: bool) -> XlaComputation:
    builder = XlaBuilder("comparator")
    scalars = [Shape(shape.element_type) for shape in shapes for _ in range(2)]
    parameters = [ops.Parameter(builder, number, shape) for number, shape in enumerate(scalars)]
    before, after = map(_key, parameters[:2])
    order = ops.GtTotalOrder if descending else ops.LtTotalOrder
    return builder.build(order(before, after))


def _key(x: XlaOp) -> XlaOp:
    """Replace -0 by 0 in a key."""
    return ops.Select(x == 0, 0, x) if x.shape.element_type.is_floating else x
