"""The table of PJRT functions: native code if there is any for a function, else Python callbacks."""

from __future__ import annotations

import atexit
import ctypes
from functools import cache
from typing import Any, Final

from hloom.jax.calls.custom_partitioning import custom_partitioner_extension
from hloom.jax.compilation import compiler as compiler  # registers functions, as the modules imported `as` do
from hloom.jax.compilation import serialization as serialization
from hloom.jax.devices import async_transfers as async_transfers
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
"""Entries beyond the table's stated size, for callers of later versions: they return an error."""
_CAPSULE_NAME: Final = ctypes.create_string_buffer(b"pjrt_c_api")


class Table:
    """The struct ``PJRT_Api``, which holds the addresses of all PJRT functions in the order of PJRT's header.

    Attributes:
        address: the address of the struct.
    """

    def __init__(self, version: int, extension: int) -> None:
        """Allocate the struct; store the address of native code or of a Python callback for each function.

        Args:
            version: the minor version of PJRT's API that the struct reports to callers.
            extension: the address of the first extension in the linked list; 0 for none.
        """
        self._api = abi.API.allocate(len(abi.FUNCTIONS) + _LATER_FUNCTIONS, extension=extension)
        self.address = self._api.address
        self._api["struct_size"] = self._api.location("functions", len(abi.FUNCTIONS)) - self.address
        version_record = self._api.nested("version")
        version_record["struct_size"] = version_record.struct.size
        version_record["major"], version_record["minor"] = abi.MAJOR_VERSION, version
        symbols = native().symbols
        for number, name in enumerate(abi.FUNCTIONS):
            function = symbols.get(f"PJRT_{name}") or callback(implementation(name), name)
            self._api.store("functions", number, function)
        self._set_later(callback_of(_refuse_later, abi.HEAD.ctypes_class))

    def _set_later(self, function: int) -> None:
        for number in range(_LATER_FUNCTIONS):
            self._api.store("functions", len(abi.FUNCTIONS) + number, function)

    def release(self) -> None:
        """Stop all programs, and replace the addresses of Python callbacks by those of native functions.

        Runs at exit, because Python callbacks must not be called after the interpreter has ended. The native
        functions in place of destructors do nothing; all others return FAILED_PRECONDITION.
        """
        stop()
        native().call("pjrt_set_sweeper", None)
        symbols = native().symbols
        nothing, gone = symbols["pjrt_nothing"], symbols["pjrt_gone"]
        for number, name in enumerate(abi.FUNCTIONS):
            if f"PJRT_{name}" not in symbols:
                is_destructor = name.endswith(("_Destroy", "_Delete"))
                self._api.store("functions", number, nothing if is_destructor else gone)
        release_profiler()
        self._set_later(gone)
        native().call("pjrt_set_transfers", gone, gone)
        native().call("pjrt_set_execute", gone, gone, nothing)


def _refuse_later(_: object) -> None:
    """Raise PjrtError with UNIMPLEMENTED; the table has this for PJRT functions newer than hloom knows."""
    version = f"{abi.MAJOR_VERSION}.{abi.MINOR_VERSION}"
    raise PjrtError(UNIMPLEMENTED, f"hloom implements PJRT's interface up to version {version}")


def capsule(table: Table) -> Any:
    """Return a PyCapsule with the address of the struct ``PJRT_Api``, from which JAX loads the plug-in."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return make(table.address, ctypes.addressof(_CAPSULE_NAME), None)


@cache
def table() -> Table:
    """Return this process's table of PJRT functions; the first call creates it."""
    install_transfers()
    install_execution()
    extensions = custom_partitioner_extension(profiler_extension(layouts_extension()))
    table = Table(abi.CLAIMED_VERSION, extensions)
    atexit.register(table.release)
    return table
