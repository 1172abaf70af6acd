"""PJRT's extension for profilers: ``jax.profiler`` shows instructions of programs, on a line for each thread.

While a profiler runs, programs are compiled once more, so that they record when their instructions begin and
end, and Python starts them. Otherwise the extension costs nothing. The structs are those of
``xla/pjrt/c/pjrt_c_api_profiler_extension.h`` and ``xla/backends/profiler/plugin/profiler_c_api.h``.
"""

from __future__ import annotations

import ctypes
import itertools
import time
from functools import cache
from typing import TYPE_CHECKING, Final

from hloom.codegen.structs import I64, PTR, Record, Struct
from hloom.jax.pjrt import abi
from hloom.jax.pjrt.handles import Text
from hloom.jax.pjrt.native import native
from hloom.jax.programs.xspace import space

if TYPE_CHECKING:
    from hloom.runtime.measurements import Recording

_EXTENSION: Final = 1
"""The extension's number among the types of extensions."""
_ERROR_FUNCTIONS: Final = ("destroy_error", "message", "code")
_FUNCTIONS: Final = ("create", "destroy", "start", "stop", "collect")
_API: Final = Struct(
    "ProfilerApi", struct_size=I64, private=PTR, **dict.fromkeys((*_ERROR_FUNCTIONS, *_FUNCTIONS), PTR)
)
_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t
_FUNCTION: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class _Create(ctypes.Structure):
    _fields_ = (
        ("struct_size", _SIZE),
        ("options", _POINTER),
        ("options_size", _SIZE),
        ("profiler", _POINTER),
    )


class _Session(ctypes.Structure):
    """The arguments of Destroy, Start and Stop, and the first of CollectData."""

    _fields_ = (("struct_size", _SIZE), ("profiler", _POINTER), ("buffer", _POINTER), ("buffer_size", _SIZE))


class ProfilerTrace:
    """Recordings collected while a profiler session runs.

    Attributes:
        recordings: of runs that have ended, from any thread.
    """

    def __init__(self) -> None:
        self.recordings: list[Recording] = []
        self._epoch = 0

    def start(self) -> None:
        """Begin to record."""
        self._epoch = time.time_ns() - time.monotonic_ns()
        _running.append(self)
        native().call("pjrt_set_tracing", 1)

    def stop(self) -> None:
        """Record nothing more."""
        if self in _running:
            _running.remove(self)
        native().call("pjrt_set_tracing", len(_running))

    def encoded(self) -> bytes:
        """Return the recordings as an XSpace; no bytes if there are none."""
        return space(self.recordings, self._epoch) if self.recordings else b""


_traces: Final[dict[int, ProfilerTrace]] = {}
"""Profilers by their numbers, which are their handles."""
_running: Final[list[ProfilerTrace]] = []
_encoded: Final[dict[int, Text]] = {}
"""Serialized traces, by profiler; callers read them until they destroy the profiler."""
_numbers: Final = itertools.count(1)
_held: Final[list[object]] = []


def current_trace() -> ProfilerTrace | None:
    """Return the trace that records; None if no profiler runs."""
    return _running[-1] if _running else None


def _create(address: int) -> None:
    number = next(_numbers)
    _traces[number] = ProfilerTrace()
    _Create.from_address(address).profiler = number


def _destroy(address: int) -> None:
    number = _Session.from_address(address).profiler
    _encoded.pop(number, None)
    trace = _traces.pop(number, None)
    if trace is not None:
        trace.stop()


def _start(address: int) -> None:
    _traces[_Session.from_address(address).profiler].start()


def _stop(address: int) -> None:
    _traces[_Session.from_address(address).profiler].stop()


def _collect(address: int) -> None:
    """Give the data; callers of older versions ask once more, with a buffer of their own."""
    args = _Session.from_address(address)
    if args.buffer:
        data = _encoded[args.profiler]
        ctypes.memmove(args.buffer, data.address, data.size)
        return
    data = _encoded[args.profiler] = Text(_traces[args.profiler].encoded())
    args.buffer, args.buffer_size = data.address, data.size


@cache
def _api() -> Record:
    """Return the table of the profiler's functions; they never fail, so there are no errors to describe."""
    functions = [_FUNCTION(function) for function in (_create, _destroy, _start, _stop, _collect)]
    _held.append(functions)
    nothing = native().symbols["pjrt_nothing"]
    api = _API.allocate(struct_size=_API.size, **dict.fromkeys(_ERROR_FUNCTIONS, nothing))
    for name, function in zip(_FUNCTIONS, functions, strict=True):
        api[name] = ctypes.cast(function, _POINTER).value or 0
    return api


@cache
def profiler_extension(following: int) -> int:
    """Return the address of the extension, before another one."""
    extension = abi.extension(_EXTENSION, following, [_api().address, 0])
    _held.append(extension)
    return extension.address


def release() -> None:
    """Replace the functions by native ones that do nothing, because the interpreter ends."""
    nothing = native().symbols["pjrt_nothing"]
    _api().update(dict.fromkeys(_FUNCTIONS, nothing))
