"""Functions of PJRT's interface in Python.

A Python function takes the struct of its arguments and reads and writes its fields. Its exceptions become
errors of the interface. ::

    @implements("Client_ProcessIndex")
    def process_index(args: ctypes.Structure) -> None:
        args.process_index = 0
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

from hloom.errors import HloError
from hloom.jax.pjrt import abi
from hloom.jax.pjrt.errors import INTERNAL, RESOURCE_EXHAUSTED, UNIMPLEMENTED, PjrtError
from hloom.jax.pjrt.native import native

Implementation = Callable[[ctypes.Structure], None]

_implementations: Final[dict[str, Implementation]] = {}
_FUNCTION: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def implements(*names: str) -> Callable[[Implementation], Implementation]:
    """Register a Python function for functions of the interface."""

    def register(function: Implementation) -> Implementation:
        for name in names:
            if name in _implementations:
                raise ValueError(f"{name} is implemented twice")
            abi.struct(name)
            _implementations[name] = function
        return function

    return register


def status_of(error: BaseException) -> tuple[int, str]:
    """Return code and message for an exception."""
    if isinstance(error, PjrtError):
        return error.code, error.message
    if isinstance(error, HloError):
        code = RESOURCE_EXHAUSTED if error.rule in ("evaluate.memory", "buffers.memory") else INTERNAL
        cause = error.__cause__
        reason = f"\n{type(cause).__name__}: {cause}" if cause is not None else ""
        return code, f"{error}{reason}"
    if isinstance(error, MemoryError):
        return RESOURCE_EXHAUSTED, f"not enough memory: {error}"
    if isinstance(error, NotImplementedError):
        return UNIMPLEMENTED, str(error)
    import traceback

    return INTERNAL, "".join(traceback.format_exception(error))


def callback(function: Implementation, name: str) -> Any:
    """Return a C function of the interface that calls a Python function; the caller keeps it alive."""
    return callback_of(function, abi.struct(name))


def callback_of(function: Implementation, arguments: type[ctypes.Structure]) -> Any:
    """Return a C function that calls a Python function with a struct; the caller keeps it alive."""

    def call(address: int) -> int | None:
        try:
            function(arguments.from_address(address))
        except BaseException as error:
            return native().error(*status_of(error))
        return None

    return _FUNCTION(call)


def implementation(name: str) -> Implementation:
    """Return the Python function for a function of the interface; one that refuses if there is none."""

    def refuse(_: object) -> None:
        raise PjrtError(UNIMPLEMENTED, f"hloom does not implement PJRT_{name}")

    return _implementations.get(name, refuse)
