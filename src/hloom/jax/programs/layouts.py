"""PJRT's extension for layouts."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Final

from hloom.jax.devices.memory_layouts import layout, row_major
from hloom.jax.pjrt import abi
from hloom.jax.pjrt.api import callback
from hloom.jax.pjrt.handles import Words
from hloom.jax.pjrt.native import native
from hloom.jax.programs.compiled import Leaf
from hloom.jax.programs.executables import executable_at

_RANKS: Final = 65
"""Arrays of JAX have at most 64 dimensions."""


@cache
def _layouts(leaves: tuple[Leaf, ...]) -> Words:
    return Words([layout(leaf.order or row_major(leaf.rank)).handle for leaf in leaves])


def _of_outputs(args: ctypes.Structure) -> None:
    layouts = _layouts(tuple(executable_at(args.executable).outputs))
    args.num_outputs, args.layouts = layouts.size, layouts.address


def _of_parameters(args: ctypes.Structure) -> None:
    layouts = _layouts(tuple(executable_at(args.executable).inputs))
    args.num_parameters, args.layouts = layouts.size, layouts.address


_FUNCTIONS: Final[dict[str, Callable[[ctypes.Structure], None]]] = {
    "Layouts_PJRT_Executable_GetOutputLayouts": _of_outputs,
    "Layouts_PJRT_Executable_GetParameterLayouts": _of_parameters,
}
_held: Final[list[object]] = []


@cache
def layouts_extension() -> int:
    """Return the address of the extension."""
    table = Words([layout(row_major(rank)).handle for rank in range(_RANKS)])
    native().call("pjrt_set_layouts", table.address)
    functions = {name: callback(function, name) for name, function in _FUNCTIONS.items()}
    addresses = [
        native().symbols.get(f"PJRT_{name}") or ctypes.cast(functions[name], ctypes.c_void_p).value or 0
        for name in abi.LAYOUT_FUNCTIONS
    ]
    extension = abi.extension(abi.LAYOUTS_EXTENSION, 0, addresses)
    _held.extend((table, functions, extension))
    return extension.address
