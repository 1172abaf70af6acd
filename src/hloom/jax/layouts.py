"""PJRT's extension for layouts. Every buffer is row-major; a layout is serialized as text, ``{1,0}``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from hloom.jax import abi
from hloom.jax.api import callback
from hloom.jax.client import NOTHING
from hloom.jax.handles import Handle, Text, Words, object_at
from hloom.jax.transfers import head_of

_HEAD_WORDS: Final = 3
"""The extension begins with its size, its type, and the next extension."""


class RowMajor(Handle):
    """The row-major layout of a rank."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.text = Text("{" + ",".join(map(str, range(rank - 1, -1, -1))) + "}")


@cache
def row_major(rank: int) -> RowMajor:
    """Return the layout of a rank, which lives for ever."""
    return RowMajor(rank)


@cache
def _layouts(ranks: tuple[int, ...]) -> Words:
    return Words([row_major(rank).handle for rank in ranks])


def _destroy(args: Any) -> None:
    """Do nothing: layouts live for ever."""


def _serialize(args: Any) -> None:
    object_at(args.layout, RowMajor).text.write(args, "serialized_bytes")
    args.serialized_layout, args.serialized_layout_deleter = args.layout, NOTHING


def _default(args: Any) -> None:
    args.layout = row_major(args.num_dims).handle


def _of_buffer(args: Any) -> None:
    args.layout = row_major(head_of(args.buffer).rank).handle


def _of_outputs(args: Any) -> None:
    from hloom.jax.executables import executable_at

    layouts = _layouts(tuple(s.rank for s in executable_at(args.executable).outputs))
    args.num_outputs, args.layouts = layouts.size, layouts.address


def _of_parameters(args: Any) -> None:
    from hloom.jax.executables import executable_at

    layouts = _layouts(tuple(s.rank for s in executable_at(args.executable).inputs))
    args.num_parameters, args.layouts = layouts.size, layouts.address


_FUNCTIONS: Final[dict[str, Callable[[Any], None]]] = {
    "Layouts_MemoryLayout_Destroy": _destroy,
    "Layouts_MemoryLayout_Serialize": _serialize,
    "Layouts_PJRT_Client_GetDefaultLayout": _default,
    "Layouts_PJRT_Buffer_MemoryLayout": _of_buffer,
    "Layouts_PJRT_Topology_GetDefaultLayout": _default,
    "Layouts_PJRT_Executable_GetOutputLayouts": _of_outputs,
    "Layouts_PJRT_Executable_GetParameterLayouts": _of_parameters,
}
_held: Final[list[Any]] = []


@cache
def layouts_extension() -> int:
    """Return the address of the extension."""
    functions = [callback(_FUNCTIONS[name], name) for name in abi.LAYOUT_FUNCTIONS]
    addresses = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions]
    words = (ctypes.c_uint64 * (_HEAD_WORDS + len(addresses)))(0, abi.LAYOUTS_EXTENSION, 0, *addresses)
    words[0] = ctypes.sizeof(words)
    _held.extend((functions, words))
    return ctypes.addressof(words)
