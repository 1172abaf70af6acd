"""JAX's ``cu_threefry2x32``: the random bits of a key, 20 rounds of the Threefry hash of two words."""

from __future__ import annotations

from typing import Final

import hloom.ops as ops
from hloom.builder.builder import XlaOp
from hloom.library_calls.emulation import LibraryCall, Results, emulates
from hloom.shape.element_type import U32

_ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY: Final = 0x1BD11BDA
"""The constant of Skein that gives the third word of the key."""


@emulates("cu_threefry2x32", "cu_threefry2x32_ffi", "hip_threefry2x32", "hip_threefry2x32_ffi", operands=4)
def threefry(call: LibraryCall) -> Results:
    """Return the hashes of pairs of words (operands 2 and 3) with keys (operands 0 and 1)."""
    sizes = call.shapes[0].dimensions
    first, second, x, y = (ops.BroadcastInDim(o, sizes, range(len(sizes))) for o in call.operands[:4])
    parity = ops.ConstantR0(call.builder, _PARITY, U32)
    keys = (first, second, first ^ second ^ parity)
    x, y = x + keys[0], y + keys[1]
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            x = x + y
            y = x ^ _rotated(y, distance)
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + (group + 1)
    return [x, y]


def _rotated(x: XlaOp, distance: int) -> XlaOp:
    return (x << distance) | (x >> (32 - distance))
