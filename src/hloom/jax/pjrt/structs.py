"""Structs of the plug-in's objects, whose addresses PJRT's callers have as handles.

Callers of PJRT 0.105 and later read a table of functions at the beginning of errors and memories.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.structs import I32, I64, PTR, Array, Struct

STORAGE: Final = Struct(
    "storage",
    references=I64,
    data=PTR,
    release=PTR,  # called with the storage when the last reference is dropped
    argument=PTR,
    second_argument=PTR,
    unused=Array(I64, 3),  # the data of small arrays follow, aligned to 64 bytes
)
"""Memory of arrays, with a count of references."""

BUFFER: Final = Struct(
    "buffer",
    storage=PTR,
    data=PTR,
    device=PTR,
    memory=PTR,
    event=PTR,  # completes when the data are there; null: they are
    bytes=I64,
    rank=I64,
    type=I32,
    deleted=I32,
    layout=PTR,  # null: row-major
    donation=I64,  # number of the call that it was donated to
    dimensions=Array(I64),
)
"""An immutable array on a device."""

DEVICE: Final = Struct("device", memory=PTR, worker=PTR, memories=PTR)
"""A device: its default memory, its worker, and the addresses of all its memories."""

MEMORY: Final = Struct("memory", functions=PTR, kind_size=I64, device=PTR, kind=PTR)
"""A memory of a device; its table of functions is null."""

LAYOUT: Final = Struct("layout", text=PTR, text_size=I64, order=PTR)
"""A layout: its text, and the order of the dimensions, minor to major."""
