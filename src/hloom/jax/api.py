"""The table of PJRT's functions: native code where it exists, Python functions elsewhere.

A Python function takes the struct of its arguments and reads and writes its fields. Its exceptions become
errors of the interface. ::

    @implements("Client_ProcessIndex")
    def process_index(args: Any) -> None:
        args.process_index = 0
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

from hloom.errors import HloError
from hloom.jax import abi
from hloom.jax.errors import INTERNAL, RESOURCE_EXHAUSTED, UNIMPLEMENTED, PjrtError
from hloom.jax.native import native

Implementation = Callable[[Any], None]

_implementations: Final[dict[str, Implementation]] = {}
_FUNCTION: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_HEAD_WORDS: Final = 5
"""The table begins with its size, its extensions, and a struct of three words for the version."""
_VERSION_BYTES: Final = 24
_CAPSULE_NAME: Final = ctypes.create_string_buffer(b"pjrt_c_api")


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


def _unimplemented(name: str) -> Implementation:
    def refuse(_: Any) -> None:
        raise PjrtError(UNIMPLEMENTED, f"hloom does not implement PJRT_{name}")

    return refuse


class Table:
    """``PJRT_Api``: the functions, in the interface's order.

    Attributes:
        address: of the table.
    """

    def __init__(self, version: int, extension: int) -> None:
        """Build the table for a minor version of the interface, with the address of its first extension."""
        count = len(abi.FUNCTIONS)
        self._words = (ctypes.c_uint64 * (_HEAD_WORDS + count))()
        self.address = ctypes.addressof(self._words)
        self._words[0] = ctypes.sizeof(self._words)
        self._words[1] = extension
        self._words[2] = _VERSION_BYTES
        versions = (ctypes.c_int32 * 2).from_address(self.address + 32)
        versions[:] = (abi.MAJOR_VERSION, version)
        self._callbacks: dict[str, Any] = {}
        symbols = native().symbols
        for number, name in enumerate(abi.FUNCTIONS, _HEAD_WORDS):
            self._words[number] = symbols.get(f"PJRT_{name}") or self._python(name)

    def _python(self, name: str) -> int:
        function = _implementations.get(name) or _unimplemented(name)
        self._callbacks[name] = callback(function, name)
        return ctypes.cast(self._callbacks[name], ctypes.c_void_p).value or 0

    def release(self) -> None:
        """Replace Python functions by native ones that do nothing: call this before the interpreter ends."""
        import_module("hloom.jax.client").stop()
        symbols = native().symbols
        for number, name in enumerate(abi.FUNCTIONS, _HEAD_WORDS):
            if name in self._callbacks:
                ends = name.endswith(("_Destroy", "_Delete"))
                self._words[number] = symbols["pjrt_nothing" if ends else "pjrt_gone"]
        gone = symbols["pjrt_gone"]
        native().call("pjrt_set_transfers", gone, gone)
        native().call("pjrt_set_execute", gone)


def capsule(table: Table) -> Any:
    """Return the table as JAX takes it."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return make(table.address, ctypes.addressof(_CAPSULE_NAME), None)


@cache
def table() -> Table:
    """Return the table; the first call creates it."""
    for module in ("client", "executables", "serialization"):
        import_module(f"hloom.jax.{module}")  # registers its functions
    from hloom.jax.custom_partitioning import custom_partitioner_extension
    from hloom.jax.execution import install as install_execution
    from hloom.jax.layouts import layouts_extension
    from hloom.jax.transfers import install as install_transfers

    install_transfers()
    install_execution()
    extensions = custom_partitioner_extension(layouts_extension(), callback_of)
    made = Table(abi.CLAIMED_VERSION, extensions)
    atexit.register(made.release)
    return made
