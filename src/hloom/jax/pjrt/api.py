"""PJRT functions written in Python.

Each takes the struct of its arguments, and reads and writes the fields. Exceptions become PJRT errors. ::

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
from hloom.jax.pjrt.errors import INTERNAL, NOT_FOUND, RESOURCE_EXHAUSTED, UNIMPLEMENTED, PjrtError
from hloom.jax.pjrt.native import native
from hloom.lifetime import keep_for_ever

Implementation = Callable[[ctypes.Structure], None]

_implementations: Final[dict[str, Implementation]] = {}
_FUNCTION: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def implements(*names: str) -> Callable[[Implementation], Implementation]:
    """Return a decorator that registers a Python function as the implementation of PJRT functions.

    ``names`` are the names of these functions without the prefix ``PJRT_``.
    """

    def register(function: Implementation) -> Implementation:
        for name in names:
            if name in _implementations:
                raise ValueError(f"{name} is implemented twice")
            abi.struct(name)
            _implementations[name] = function
        return function

    return register


_CODES: Final = {
    "buffers.memory": RESOURCE_EXHAUSTED,
    "custom-call.target-registered": NOT_FOUND,
    "evaluate.memory": RESOURCE_EXHAUSTED,
}
"""Status codes of rules other than `INTERNAL`."""


def status_of(error: BaseException) -> tuple[int, str]:
    """Return the status code and the message of the PJRT error that is to report the exception ``error``."""
    if isinstance(error, PjrtError):
        return error.code, error.message
    if isinstance(error, HloError):
        code = _CODES.get(error.rule, INTERNAL)
        cause = error.__cause__
        reason = f"\n{type(cause).__name__}: {cause}" if cause is not None else ""
        return code, f"{error}{reason}"
    if isinstance(error, MemoryError):
        return RESOURCE_EXHAUSTED, f"not enough memory: {error}"
    if isinstance(error, NotImplementedError):
        return UNIMPLEMENTED, str(error)
    import traceback

    return INTERNAL, "".join(traceback.format_exception(error))


def permanent_address(function: Any) -> int:
    """Return the address of a ctypes function object, and keep that object alive until the process ends."""
    keep_for_ever(function)
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def callback(function: Implementation, name: str) -> int:
    """Return the address of a new C function that implements ``PJRT_{name}`` by calling ``function``."""
    return callback_of(function, abi.struct(name))


def callback_of(function: Implementation, arguments: type[ctypes.Structure]) -> int:
    """Return the address of a C function that calls ``function`` with the struct that its argument points to.

    ``arguments`` is the type of the struct. The C function returns null or, if ``function`` raises an
    exception, the address of a new PJRT error.
    """

    def call(address: int) -> int | None:
        try:
            function(arguments.from_address(address))
        except BaseException as error:
            return native().error(*status_of(error))
        return None

    return permanent_address(_FUNCTION(call))


def implementation(name: str) -> Implementation:
    """Return the Python implementation of ``PJRT_{name}``; if none, a function that raises UNIMPLEMENTED."""

    def refuse(_: object) -> None:
        raise PjrtError(UNIMPLEMENTED, f"hloom does not implement PJRT_{name}")

    return _implementations.get(name, refuse)
