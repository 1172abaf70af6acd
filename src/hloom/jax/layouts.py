"""PJRT's extension for layouts. Every buffer is row-major; a layout is serialized as text, ``{1,0}``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from hloom.jax import abi
from hloom.jax.api import callback
from hloom.jax.executables import executable_at
from hloom.jax.handles import Handle, LayoutWords, Words
from hloom.jax.native import native

_HEAD_WORDS: Final = 3
"""The extension begins with its size, its type, and the next extension."""
_RANKS: Final = 65
"""Arrays of JAX have at most 64 dimensions."""


class RowMajor(Handle):
    """The row-major layout of a rank."""

    def __init__(self, rank: int) -> None:
        text = "{" + ",".join(map(str, range(rank - 1, -1, -1))) + "}"
        super().__init__(LayoutWords(text.encode(), len(text)))


@cache
def _row_major() -> list[RowMajor]:
    return [RowMajor(rank) for rank in range(_RANKS)]


@cache
def _layouts(ranks: tuple[int, ...]) -> Words:
    return Words([_row_major()[rank].handle for rank in ranks])


def _of_outputs(args: Any) -> None:
    layouts = _layouts(tuple(s.rank for s in executable_at(args.executable).outputs))
    args.num_outputs, args.layouts = layouts.size, layouts.address


def _of_parameters(args: Any) -> None:
    layouts = _layouts(tuple(s.rank for s in executable_at(args.executable).inputs))
    args.num_parameters, args.layouts = layouts.size, layouts.address


_FUNCTIONS: Final[dict[str, Callable[[Any], None]]] = {
    "Layouts_PJRT_Executable_GetOutputLayouts": _of_outputs,
    "Layouts_PJRT_Executable_GetParameterLayouts": _of_parameters,
}
_held: Final[list[Any]] = []


@cache
def layouts_extension() -> int:
    """Return the address of the extension."""
    table = Words([layout.handle for layout in _row_major()])
    native().call("pjrt_set_layouts", table.address)
    functions = {name: callback(function, name) for name, function in _FUNCTIONS.items()}
    addresses = [
        native().symbols.get(f"PJRT_{name}") or ctypes.cast(functions[name], ctypes.c_void_p).value or 0
        for name in abi.LAYOUT_FUNCTIONS
    ]
    words = (ctypes.c_uint64 * (_HEAD_WORDS + len(addresses)))(0, abi.LAYOUTS_EXTENSION, 0, *addresses)
    words[0] = ctypes.sizeof(words)
    _held.extend((table, functions, words))
    return ctypes.addressof(words)
