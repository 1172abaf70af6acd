"""The plug-in's native code, written in `hloom.jax.pjrt.routines`.

Functions whose names begin with ``PJRT_`` are functions of the interface; the others serve Python.
"""

from __future__ import annotations

import ctypes
import threading
from importlib import import_module
from typing import Any, Final

from hloom.codegen.target import host
from hloom.cpu.jit.externals import address_of
from hloom.cpu.runtime.recycled_memory import recycling_limit
from hloom.cpu.runtime.structs import RECYCLED
from hloom.cpu.runtime.support import Code, emitted_code, is_compiled, load_code, support
from hloom.lifetime import keep_for_ever

_KIND: Final = "pjrt"

loading: Final = threading.Lock()
_loaded: Final[list[Native]] = []


class Native:
    """The loaded code; see `native`.

    Attributes:
        symbols: addresses of all its functions.
    """

    def __init__(self) -> None:
        self._loaded = load_code(_KIND, _emit, _external)
        self.symbols = self._loaded.symbols
        self._functions: dict[str, Any] = {}
        self._pool = RECYCLED.allocate(limit=recycling_limit())
        self.call("pjrt_begin_errors")
        self.call("pjrt_set_pool", self._pool.address)
        keep_for_ever(self)

    def call(self, name: str, *arguments: object) -> Any:
        """Call a function without the GIL; return its result, None for null.

        Arguments are integers, addresses or bytes: all are passed as words, results are addresses.
        """
        function = self._functions.get(name)
        if function is None:
            words = [ctypes.c_void_p] * len(arguments)
            function = self._functions[name] = ctypes.CFUNCTYPE(ctypes.c_void_p, *words)(self.symbols[name])
        return function(*arguments)

    def error(self, code: int, message: str) -> int:
        """Return a new error of the interface."""
        text = message.encode("utf-8", "replace")
        return self.call("pjrt_error", code, text, len(text))


def native() -> Native:
    """Return the native code, loaded when it is first used and never unloaded."""
    with loading:
        if not _loaded:
            _loaded.append(Native())
    return _loaded[0]


def begin_native() -> bool:
    """Compile the native code in another thread; return false if it is loaded or in the cache already."""
    if _loaded or is_compiled(_KIND):
        return False
    import_module("hloom.cpu.jit.llvm")  # here: threads that import the same modules may wait for each other
    threading.Thread(target=native, name="hloom native code").start()
    return True


def _emit() -> Code:
    """Return the code; called when the cache lacks it."""
    from hloom.jax.pjrt.routines import exported_routines

    return emitted_code(host(), exported_routines())


def _external(name: str) -> int | None:
    address = address_of(name) or support().symbols.get(name)
    if address is None and (function := getattr(ctypes.CDLL(None), name, None)) is not None:
        address = ctypes.cast(function, ctypes.c_void_p).value
    return address
