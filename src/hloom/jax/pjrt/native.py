"""The plug-in's native code: errors, events, buffers, transfers and execution (``native_code/*.ll``).

Functions whose names begin with ``PJRT_`` are functions of the interface; the others serve Python.
"""

from __future__ import annotations

import ctypes
import threading
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from hloom.codegen.target import host
from hloom.cpu.jit.externals import address_of
from hloom.cpu.runtime.entry import kept_bytes
from hloom.cpu.runtime.support import Code, is_compiled, load_code, mixed_code, support
from hloom.lifetime import keep_for_ever

FILES: Final = ("events", "transfers", "layouts", "execute", "executables", "results")
_FOLDER: Final = Path(__file__).parent / "native_code"
_KIND: Final = "pjrt"
_POOL_WORDS: Final = 258
_LIBRARY: Final = frozenset((
    "aligned_alloc", "malloc", "pthread_cond_broadcast", "pthread_cond_wait", "pthread_detach",
    "pthread_mutex_lock", "pthread_mutex_unlock", "sched_yield",
))  # fmt: skip
"""Functions of the C library that only this code calls."""

_POINTER, _SIZE, _TYPE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint32
loading: Final = threading.Lock()
_loaded: Final[list[Native]] = []
_PROTOTYPES: Final[dict[str, tuple[Any, ...]]] = {
    "pjrt_error": (_POINTER, _SIZE, ctypes.c_char_p, _SIZE),
    "pjrt_ready_event": (_POINTER,),
    "pjrt_event": (_POINTER, _SIZE),
    "pjrt_drop_event": (None, _POINTER),
    "pjrt_complete": (None, _POINTER, _POINTER),
    "pjrt_await": (_POINTER, _POINTER),
    "pjrt_set_pool": (None, _POINTER),
    "pjrt_unlock_all": (None,),
    "pjrt_take": (_POINTER, _SIZE),
    "pjrt_give": (None, _POINTER),
    "pjrt_storage": (_POINTER, _SIZE),
    "pjrt_buffer": (_POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _SIZE, _TYPE, _SIZE, _POINTER),
    "pjrt_delete": (None, _POINTER),
    "pjrt_view": (
        _POINTER, _POINTER, _SIZE, _TYPE, _SIZE, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER,
    ),
    "pjrt_to_host": (_POINTER, _POINTER),
    "pjrt_set_transfers": (None, _POINTER, _POINTER),
    "pjrt_set_layouts": (None, _POINTER),
    "pjrt_set_execute": (None, _POINTER, _POINTER, _POINTER),
    "pjrt_set_tracing": (None, _SIZE),
    "pjrt_drain": (None, _POINTER),
    "pjrt_set_sweeper": (None, _POINTER),
    "pjrt_take_destroyed": (_POINTER,),
}  # fmt: skip
"""Results and arguments of the functions that Python calls. They run without the GIL."""


class Native:
    """The loaded code; see `native`.

    Attributes:
        symbols: addresses of all its functions.
    """

    def __init__(self) -> None:
        self._loaded = load_code(_KIND, _emit, _external)
        self.symbols = self._loaded.symbols
        self._functions = {
            name: ctypes.CFUNCTYPE(*types)(self.symbols[name]) for name, types in _PROTOTYPES.items()
        }
        self._pool = (ctypes.c_int64 * _POOL_WORDS)(0, kept_bytes())
        self.call("pjrt_set_pool", ctypes.addressof(self._pool))
        keep_for_ever(self)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function."""
        return self._functions[name](*arguments)

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
    from hloom.codegen.llvm.routines import routines_of
    from hloom.jax.pjrt.routines import buffers
    from hloom.jax.pjrt.routines.functions import GETTERS

    written = "\n".join((_FOLDER / f"{name}.ll").read_text() for name in FILES)
    return mixed_code(host(), [*GETTERS, *routines_of(buffers)], written)


def _external(name: str) -> int | None:
    if name in _LIBRARY:
        return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
    found = address_of(name)
    return support().symbols.get(name) if found is None else found
