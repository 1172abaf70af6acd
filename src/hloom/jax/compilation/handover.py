"""Pass arguments of JAX's compiler to the plug-in that have no field in PJRT's C API.

A wrapper around JAX's ``backend_compile_and_load`` adds an attribute to the module, a mark. The mark is the
number under which this module stores the Python callbacks, or else the identity of the program: a digest
without source locations, so that a program that moved within its file is found in the cache.

A cached program is loaded instead of compiled, so that jaxlib need not serialize the module, a third of the
time. jaxlib loads an executable from its description of the results (in the form of its own serialization)
followed by the executable's bytes; hloom passes the mark with the identity in place of these bytes.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import re
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from hloom.jaxlib import private
from hloom.regex import regex

_CALLBACKS: Final = "hloom.callbacks"
_IDENTITY: Final = "hloom.identity"
_CALLBACKS_MARK: Final = regex(rb"hloom-callbacks-(\d+);")
_CALLBACKS_AT_END: Final = regex(_CALLBACKS_MARK.pattern + rb"\Z")
_IDENTITY_MARK: Final = regex(rb"hloom-identity-([0-9a-f]{64});")
_LOCATION: Final = regex(r"^#(loc\d*) = loc\((.*)\)$", re.MULTILINE)
_USE: Final = regex(r" loc\(#(loc\d*)\)$", re.MULTILINE)
_numbers: Final = itertools.count(1)
_waiting: Final[dict[int, Sequence[Any]]] = {}
"""Python callbacks of modules between JAX's compiler and the plug-in, by number."""
_describing: Final = threading.local()


def take_callbacks(artifact: bytes) -> Sequence[Any]:
    """Return the Python callbacks of a StableHLO module, and remove them from this file's table of callbacks.

    The wrapper of JAX's compiler cannot pass Python functions through PJRT's C API: it puts them into the
    table under a number, and adds an attribute with the number to the module. Without such an attribute the
    result is empty.
    """
    match = _CALLBACKS_MARK.search(artifact)
    return _waiting.pop(int(match[1]), ()) if match is not None else ()


def split_callbacks(data: bytes) -> tuple[bytes, Sequence[Any]]:
    """Split ``data`` into a serialized executable and a text at the end, which stands for Python callbacks.

    The text states the number of the callbacks in this file's table of callbacks. Returns the executable's
    bytes and the callbacks, which it removes from the table; all of ``data`` and no callbacks if ``data``
    does not end with such a text.
    """
    match = _CALLBACKS_AT_END.search(data)
    return (data, ()) if match is None else (data[: match.start()], _waiting.pop(int(match[1]), ()))


def identity_of(artifact: bytes) -> bytes:
    """Return the digest that identifies the program in a StableHLO artifact, as hexadecimal digits.

    An attribute of the module, which the wrapper of JAX's compiler adds, states a digest that does not depend
    on source locations. Without the attribute, returns the digest of the bytes ``artifact``.
    """
    match = _IDENTITY_MARK.search(artifact)
    return match[1] if match is not None else hashlib.sha256(artifact).hexdigest().encode()


def identity_from_mark(data: bytes) -> bytes | None:
    """Return the digest that identifies a cached program, if ``data`` is a text that states one; else None.

    To load a program that hloom has cached, the wrapper of JAX's compiler passes such a text in place of a
    serialized executable.
    """
    match = _IDENTITY_MARK.fullmatch(data)
    return None if match is None else match[1]


def is_describing() -> bool:
    """Return whether this thread serializes an executable only to get jaxlib's description of its results.

    If so, the plug-in serializes the executable to no bytes, so that what jaxlib returns, its description
    followed by these bytes, is the description alone.
    """
    return getattr(_describing, "now", False)


def _description(executable: Any) -> bytes:
    """Return jaxlib's description of an executable's results, with which a serialized executable begins."""
    _describing.now = True
    try:
        data: bytes = executable.serialize()
    finally:
        _describing.now = False
    return data


class DescriptionCache(Protocol):
    """The methods of the program cache that the wrapper of JAX's compiler calls.

    `hloom.jax.compilation.compiler.ProgramCache` implements them.
    """

    def description(self, identity: bytes, options: bytes) -> bytes | None:
        """Return jaxlib's description of the results of a cached program; None on a miss.

        Args:
            identity: the digest of the StableHLO module.
            options: the serialized compile options.
        """
        ...

    def describe(self, identity: bytes, options: bytes, describe: Callable[[], bytes]) -> None:
        """Write to the cache the program that was just compiled from a module with these options.

        Programs that are in the cache already, or may not be cached, are not written.

        Args:
            identity: the digest of the StableHLO module.
            options: the serialized compile options.
            describe: returns jaxlib's description of the program's results, which is written with it; called
                only if the program is written.
        """
        ...


def install(platform_version: str, cache: DescriptionCache) -> None:
    """Replace JAX's function that compiles, and the one that reads JAX's own compilation cache, by wrappers.

    For clients of other plug-ins, whose version does not contain ``platform_version``, the wrappers only call
    the original functions. ``cache`` is hloom's cache, from which they load programs and to which they
    write them.
    """
    _wrap_compile(platform_version, cache)
    _wrap_cache(platform_version)


def _wrap_cache(platform_version: str) -> None:
    original = private.read_cached()
    if getattr(original, "hloom", False):
        return

    def read_cached(
        cache_key: str, compile_options: Any, backend: Any, executable_devices: Any, host_callbacks: Any = ()
    ) -> Any:
        if host_callbacks and platform_version in backend.platform_version:
            backend, host_callbacks = _Loader(backend, host_callbacks), ()
        callbacks = (host_callbacks,) if host_callbacks else ()  # versions before 0.11 have no such parameter
        return original(cache_key, compile_options, backend, executable_devices, *callbacks)

    read_cached.hloom = True  # type: ignore[attr-defined]
    private.read_cached.set(read_cached)


class _Loader:
    """A proxy of a JAX client whose `deserialize_executable` also passes Python callbacks to the plug-in."""

    def __init__(self, client: Any, functions: Sequence[Any]) -> None:
        self._client = client
        self._functions = functions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def deserialize_executable(self, data: bytes, devices: Any, options: Any) -> Any:
        """Load a serialized executable, whose Python callbacks the plug-in takes from this file's table.

        Puts the callbacks into the table under a new number, and appends a text with the number to ``data``.
        """
        marked = data + _store_callbacks(self._functions).encode()
        return self._client.deserialize_executable(marked, devices, options)


def _wrap_compile(platform_version: str, cache: DescriptionCache) -> None:
    original = private.compile_and_load()
    if getattr(original, "hloom", False):
        return

    def compile_and_load(
        backend: Any, module: Any, executable_devices: Any, options: Any, host_callbacks: Sequence[Any]
    ) -> Any:
        if platform_version not in backend.platform_version:
            return original(backend, module, executable_devices, options, host_callbacks)
        with module.context:
            if host_callbacks:
                with _attributes(module, {_CALLBACKS: _store_callbacks(host_callbacks)}):
                    return original(backend, module, executable_devices, options, [])
            identity, serialized_options = _identity(module.operation), options.SerializeAsString()
            mark = f"hloom-identity-{identity};"
            description = cache.description(identity.encode(), serialized_options)
            if description is not None:
                return backend.deserialize_executable(
                    description + mark.encode(), executable_devices, options
                )
            with _attributes(module, {_IDENTITY: mark}):
                executable = original(backend, module, executable_devices, options, [])
            cache.describe(identity.encode(), serialized_options, lambda: _description(executable))
            return executable

    compile_and_load.hloom = True  # type: ignore[attr-defined]
    private.compile_and_load.set(compile_and_load)


def _store_callbacks(callbacks: Sequence[object]) -> str:
    """Put the Python callbacks of a module into this file's table; return a text with their number.

    The plug-in gets the text as an attribute of the module or at the end of a serialized executable, and then
    takes the callbacks with this number out of the table.
    """
    number = next(_numbers)
    _waiting[number] = list(callbacks)
    return f"hloom-callbacks-{number};"


@contextmanager
def _attributes(module: Any, added: Mapping[str, str]) -> Generator[None]:
    """Add string attributes, given as values by name, to a module for the duration of the ``with`` block."""
    ir = private.ir()
    attributes = module.operation.attributes
    for name, mark in added.items():
        attributes[name] = ir.StringAttr.get(mark)
    try:
        yield
    finally:
        for name in added:
            del attributes[name]


def _identity(operation: Any) -> str:
    """Return a digest, in hexadecimal, of the MLIR module ``operation``.

    Modules have the same digest if they differ only in the files and lines of their locations. JAX's names of
    the operations, such as ``jit(f)/dot_general``, are digested.
    """
    text = operation.get_asm(enable_debug_info=True)
    locations = dict(_LOCATION.findall(text))
    names = [locations[use].partition('"(')[0] for use in _USE.findall(text) if use in locations]
    digest = hashlib.sha256("\n".join(names).encode())
    stripped = operation.clone()
    private.parse_passes()("builtin.module(strip-debuginfo)").run(stripped)
    code = io.BytesIO()
    stripped.write_bytecode(file=code)
    digest.update(code.getbuffer())
    return digest.hexdigest()
