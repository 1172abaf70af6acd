"""The table of PJRT's functions: native code where it exists, Python functions elsewhere."""

from __future__ import annotations

import atexit
import ctypes
from functools import cache
from typing import Any, Final

from hloom.jax.calls.custom_partitioning import custom_partitioner_extension
from hloom.jax.compilation import compiler as compiler  # registers functions, as the modules imported `as` do
from hloom.jax.compilation import serialization as serialization
from hloom.jax.devices.client import stop
from hloom.jax.devices.transfers import install as install_transfers
from hloom.jax.pjrt import abi
from hloom.jax.pjrt.api import callback, callback_of, implementation
from hloom.jax.pjrt.errors import UNIMPLEMENTED, PjrtError
from hloom.jax.pjrt.native import native
from hloom.jax.programs import executables as executables
from hloom.jax.programs.execution import install as install_execution
from hloom.jax.programs.layouts import layouts_extension
from hloom.jax.programs.profiler import profiler_extension
from hloom.jax.programs.profiler import release as release_profiler

_LATER_FUNCTIONS: Final = 64
"""Functions beyond the size that the table states: callers of later versions that call one get an error."""
_CAPSULE_NAME: Final = ctypes.create_string_buffer(b"pjrt_c_api")


class Table:
    """``PJRT_Api``: the functions, in the interface's order.

    Attributes:
        address: of the table.
    """

    def __init__(self, version: int, extension: int) -> None:
        """Build the table for a minor version of the interface, with the address of its first extension."""
        self._api = abi.API.allocate(len(abi.FUNCTIONS) + _LATER_FUNCTIONS, extension=extension)
        self.address = self._api.address
        self._api["struct_size"] = self._api.location("functions", len(abi.FUNCTIONS)) - self.address
        version_record = self._api.nested("version")
        version_record["struct_size"] = version_record.struct.size
        version_record["major"], version_record["minor"] = abi.MAJOR_VERSION, version
        self._callbacks: dict[str, Any] = {}
        symbols = native().symbols
        for number, name in enumerate(abi.FUNCTIONS):
            self._api.store("functions", number, symbols.get(f"PJRT_{name}") or self._python(name))
        self._later = callback_of(_refuse_later, abi.HEAD.ctypes_class)
        self._set_later(ctypes.cast(self._later, ctypes.c_void_p).value or 0)

    def _python(self, name: str) -> int:
        self._callbacks[name] = callback(implementation(name), name)
        return ctypes.cast(self._callbacks[name], ctypes.c_void_p).value or 0

    def _set_later(self, function: int) -> None:
        for number in range(_LATER_FUNCTIONS):
            self._api.store("functions", len(abi.FUNCTIONS) + number, function)

    def release(self) -> None:
        """Replace Python functions by native ones that do nothing: call this before the interpreter ends."""
        stop()
        native().call("pjrt_set_sweeper", None)
        symbols = native().symbols
        for number, name in enumerate(abi.FUNCTIONS):
            if name in self._callbacks:
                ends = name.endswith(("_Destroy", "_Delete"))
                self._api.store("functions", number, symbols["pjrt_nothing" if ends else "pjrt_gone"])
        gone = symbols["pjrt_gone"]
        release_profiler()
        self._set_later(gone)
        native().call("pjrt_set_transfers", gone, gone)
        native().call("pjrt_set_execute", gone, gone, symbols["pjrt_nothing"])


def _refuse_later(_: object) -> None:
    """Refuse a function that was added to the interface after this table."""
    version = f"{abi.MAJOR_VERSION}.{abi.MINOR_VERSION}"
    raise PjrtError(UNIMPLEMENTED, f"hloom implements PJRT's interface up to version {version}")


def capsule(table: Table) -> Any:
    """Return the table as JAX takes it."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return make(table.address, ctypes.addressof(_CAPSULE_NAME), None)


@cache
def table() -> Table:
    """Return the table; the first call creates it."""
    install_transfers()
    install_execution()
    extensions = custom_partitioner_extension(profiler_extension(layouts_extension()), callback_of)
    table = Table(abi.CLAIMED_VERSION, extensions)
    atexit.register(table.release)
    return table
