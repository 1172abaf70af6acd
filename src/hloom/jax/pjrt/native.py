"""The plug-in's native code, emitted by `hloom.jax.pjrt.routines`.

Symbols that begin with ``PJRT_`` are PJRT functions; Python calls the others.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import TYPE_CHECKING, Any, Final

from hloom.codegen.target import Target, host
from hloom.cpu.jit.cache import identity_of
from hloom.cpu.jit.externals import address_of
from hloom.cpu.runtime.recycled_memory import recycling_limit
from hloom.cpu.runtime.structs import RECYCLED
from hloom.cpu.runtime.support import begin_code, load_code, support
from hloom.errors import HloError
from hloom.hooks import EntryPoint
from hloom.lifetime import keep_for_ever

if TYPE_CHECKING:
    from hloom.codegen.llvm.routines import Routine

PLUGIN_PACKAGES: Final = ("jax", "jaxlib", "sharding")
"""Packages whose sources are part of the plug-in's cache keys, beside those of the compiler."""

# Imported only to compile the code:
_routines: Final[EntryPoint[[], list[Routine]]] = EntryPoint("hloom.jax.pjrt.routines:exported_routines")
_called: Final[EntryPoint[[], list[Routine]]] = EntryPoint("hloom.jax.pjrt.routines:called_routines")
_object_codes: Final[EntryPoint[[Target, list[Routine], list[Routine]], list[tuple[str, int]]]] = EntryPoint(
    "hloom.cpu.runtime.support_code:object_codes"
)

loading: Final = threading.Lock()
_loaded: Final[list[Native]] = []


class Native:
    """The plug-in's machine code, loaded into this process; `native` returns the only instance.

    Attributes:
        symbols: the address of each function, by name.
    """

    def __init__(self) -> None:
        self._loaded = load_code(_kind(), _emit, _external)
        self.symbols = self._loaded.symbols
        self._functions: dict[str, Any] = {}
        self._pool = RECYCLED.allocate(limit=recycling_limit())
        self.call("pjrt_begin_errors")
        self.call("pjrt_set_pool", self._pool.address)
        self.call("pjrt_set_packed_limit", packed_limit())
        keep_for_ever(self)

    def call(self, name: str, *arguments: object) -> Any:
        """Call the native function ``name`` without holding the GIL; return its 64-bit result, or None for 0.

        Arguments are integers, addresses or bytes objects (passed by address), each a 64-bit word.
        """
        function = self._functions.get(name)
        if function is None:
            words = [ctypes.c_void_p] * len(arguments)
            function = self._functions[name] = ctypes.CFUNCTYPE(ctypes.c_void_p, *words)(self.symbols[name])
        return function(*arguments)

    @property
    def packed_bytes(self) -> int:
        """How many bytes all packed weights take: copies of weights in the order that kernels read."""
        return self.call("pjrt_packed_bytes") or 0

    def error(self, code: int, message: str) -> int:
        """Return the address of a new PJRT error with the given status code and message."""
        text = message.encode("utf-8", "replace")
        return self.call("pjrt_error", code, text, len(text))


def packed_limit() -> int:
    """Return how many bytes packed weights may take: copies of weights in the order that kernels read.

    It is ``HLOOM_PACKED_LIMIT`` MiB, or a quarter of the machine's memory if this variable is not set. Raises
    HloError (rule ``jax.packed-limit``) if the variable is not a number.
    """
    text = os.environ.get("HLOOM_PACKED_LIMIT")
    if text is None:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    if not text.isdecimal():
        message = f"HLOOM_PACKED_LIMIT is {text!r}; a number of MiB is wanted"
        raise HloError(message, rule="jax.packed-limit")
    return int(text) << 20


def native() -> Native:
    """Return the plug-in's native code; the first call loads it."""
    with loading:
        if not _loaded:
            _loaded.append(Native())
    return _loaded[0]


def begin_native() -> None:
    """Start a thread that compiles the plug-in's native code, unless that has been done."""
    if not _loaded:
        begin_code(_kind(), native, _import_emitters)


def _import_emitters() -> None:
    _object_codes.resolve()
    _routines()


def plugin_identity() -> str:
    """Return a digest of the plug-in's own source files, without the compiler's, for cache keys."""
    return identity_of(*PLUGIN_PACKAGES)


def _kind() -> str:
    return f"pjrt {plugin_identity()}"


def _emit() -> list[tuple[str, int]]:
    return _object_codes(host(), _called(), _routines())


def _external(name: str) -> int | None:
    address = address_of(name) or support().symbols.get(name)
    if address is None and (function := getattr(ctypes.CDLL(None), name, None)) is not None:
        address = ctypes.cast(function, ctypes.c_void_p).value
    return address
