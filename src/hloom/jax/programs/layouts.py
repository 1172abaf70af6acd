"""PJRT's layouts extension."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Final

from hloom.jax.devices.memory_layouts import layout, row_major
from hloom.jax.pjrt import abi
from hloom.jax.pjrt.api import callback
from hloom.jax.pjrt.handles import CArray
from hloom.jax.pjrt.native import native
from hloom.jax.programs.compiled import Leaf
from hloom.jax.programs.executables import executable_at
from hloom.lifetime import keep_for_ever

_EXTENSION: Final = 4
"""The number of the extension's type."""
_RANKS: Final = 65
"""Number of possible ranks: JAX's arrays have at most 64 dimensions."""


@cache
def _layouts(leaves: tuple[Leaf, ...]) -> CArray:
    return CArray([layout(leaf.order or row_major(leaf.rank)).handle for leaf in leaves])


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


@cache
def layouts_extension() -> int:
    """Return the address of PJRT's layouts extension, the last element of the linked list of extensions."""
    table = CArray([layout(row_major(rank)).handle for rank in range(_RANKS)])
    keep_for_ever(table)
    native().call("pjrt_set_layouts", table.address)
    symbols = native().symbols
    functions = [
        symbols.get(f"PJRT_{name}") or callback(_FUNCTIONS[name], name) for name in abi.LAYOUT_FUNCTIONS
    ]
    return abi.extension(_EXTENSION, 0, functions)
