"""PJRT's profiler extension: ``jax.profiler`` shows the instructions of programs, one row for each thread.

While a profiler runs, programs are compiled again with code that records when instructions begin and end, and
Python executes them. Otherwise the extension costs nothing. The structs are declared in
``xla/pjrt/c/pjrt_c_api_profiler_extension.h`` and ``xla/backends/profiler/plugin/profiler_c_api.h``.
"""

from __future__ import annotations

import ctypes
import itertools
import time
from functools import cache
from typing import TYPE_CHECKING, Final

from hloom.codegen.structs import Record
from hloom.jax.pjrt import abi
from hloom.jax.pjrt.api import permanent_address
from hloom.jax.pjrt.handles import Text
from hloom.jax.pjrt.native import native
from hloom.jax.programs.xspace import space

if TYPE_CHECKING:
    from hloom.runtime.measurements import Recording

_EXTENSION: Final = 1
"""The number of the extension's type."""
_FUNCTIONS: Final = ("create", "destroy", "start", "stop", "collect")
_STRUCTS: Final = abi.structs("""
Api struct_size:z private:p destroy_error:p message:p code:p create:p destroy:p start:p stop:p collect:p
Create struct_size:z options:p options_size:z profiler:p
Session struct_size:z profiler:p buffer:p buffer_size:z
""")
"""The table of functions, the arguments of Create, and those of the others; only Collect has a buffer."""
_FUNCTION: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class ProfilerTrace:
    """One session of ``jax.profiler``: when the instructions of the programs executed in it began and ended.

    Attributes:
        recordings: the recordings of executions that have ended, in any thread.
    """

    def __init__(self) -> None:
        self.recordings: list[Recording] = []
        self._epoch = 0

    def start(self) -> None:
        """Start recording: until `stop`, Python executes all programs, which native code executes otherwise.

        For each execution it records when the instructions begin and end.
        """
        self._epoch = time.time_ns() - time.monotonic_ns()
        _running.append(self)
        native().call("pjrt_set_tracing", 1)

    def stop(self) -> None:
        """Stop recording; if no other profiler runs, native code executes programs again."""
        if self in _running:
            _running.remove(self)
        native().call("pjrt_set_tracing", len(_running))

    def encoded(self) -> bytes:
        """Return the recordings as a serialized XSpace; empty bytes if there are none."""
        return space(self.recordings, self._epoch) if self.recordings else b""


_traces: Final[dict[int, ProfilerTrace]] = {}
"""Profilers by their numbers, which are their handles."""
_running: Final[list[ProfilerTrace]] = []
_encoded: Final[dict[int, Text]] = {}
"""The serialized trace of each profiler, which callers read until they destroy the profiler."""
_numbers: Final = itertools.count(1)


def current_trace() -> ProfilerTrace | None:
    """Return the running profiler session that was started last; None if none runs."""
    return _running[-1] if _running else None


def _create(address: int) -> None:
    number = next(_numbers)
    _traces[number] = ProfilerTrace()
    _STRUCTS["Create"].record(address)["profiler"] = number


def _session(address: int) -> Record:
    return _STRUCTS["Session"].record(address)


def _destroy(address: int) -> None:
    number = _session(address)["profiler"]
    _encoded.pop(number, None)
    trace = _traces.pop(number, None)
    if trace is not None:
        trace.stop()


def _start(address: int) -> None:
    _traces[_session(address)["profiler"]].start()


def _stop(address: int) -> None:
    _traces[_session(address)["profiler"]].stop()


def _collect(address: int) -> None:
    """Store the address and the size of a session's serialized recordings in the arguments at ``address``.

    If these arguments of the PJRT function state a buffer, copies the recordings to it instead: older callers
    first ask for the size, then call again with a buffer.
    """
    args = _session(address)
    profiler = args["profiler"]
    if args["buffer"]:
        data = _encoded[profiler]
        ctypes.memmove(args["buffer"], data.address, data.size)
        return
    data = _encoded[profiler] = Text(_traces[profiler].encoded())
    args["buffer"], args["buffer_size"] = data.address, data.size


@cache
def _api() -> Record:
    """Return the struct, part of PJRT's profiler extension, with the addresses of the profiler's functions.

    They never return errors, so its functions that read or destroy an error do nothing.
    """
    functions = zip(_FUNCTIONS, (_create, _destroy, _start, _stop, _collect), strict=True)
    addresses = {name: permanent_address(_FUNCTION(function)) for name, function in functions}
    nothing, struct = native().symbols["pjrt_nothing"], _STRUCTS["Api"]
    return struct.allocate(
        struct_size=struct.size, destroy_error=nothing, message=nothing, code=nothing, **addresses
    )


@cache
def profiler_extension(next: int) -> int:
    """Return the address of PJRT's profiler extension.

    ``next`` is the address of the next extension in the linked list.
    """
    return abi.extension(_EXTENSION, next, [_api().address, 0])


def release() -> None:
    """Replace the profiler's Python functions by a native function that does nothing; called at exit."""
    nothing = native().symbols["pjrt_nothing"]
    _api().update(dict.fromkeys(_FUNCTIONS, nothing))
