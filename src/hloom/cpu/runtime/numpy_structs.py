"""numpy's arrays in memory: fields of its binary interface, which `entry.layout_is_known` tests."""

from __future__ import annotations

from typing import Final

from hloom.codegen.structs import I32, I64, PTR, Struct

ARRAY: Final = Struct(
    "PyArrayObject",
    references=I64,
    type=PTR,
    data=PTR,
    rank=I32,
    dimensions=PTR,
    strides=PTR,
    base=PTR,
    dtype=PTR,
    flags=I32,
    weak_references=PTR,
    buffer_info=PTR,
    handler=PTR,
)
C_CONTIGUOUS, OWNS_DATA, ALIGNED, WRITABLE = 0x1, 0x4, 0x100, 0x400
"""Flags of arrays."""
