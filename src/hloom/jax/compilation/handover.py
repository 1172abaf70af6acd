"""Data that JAX's compiler passes beside a module and for which PJRT's C interface has no field.

A wrapper around JAX's ``backend_compile_and_load`` adds attributes to the module on its way to the plug-in: a
number for the Python functions that it calls, which wait here, or an identity, a digest of the program
without positions in source files: a program that moved within its file is another artifact, but the same.

A known program is loaded, not compiled: jaxlib makes no portable artifact of the module, which takes a third
of the time. The bytes to load are those that jaxlib writes before a serialized executable, which describe its
results, and the identity in the place of the executable.
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

_CALLBACKS: Final = "hloom.callbacks"
_IDENTITY: Final = "hloom.identity"
_CALLBACKS_MARK: Final = re.compile(rb"hloom-callbacks-(\d+);")
_CALLBACKS_AT_END: Final = re.compile(_CALLBACKS_MARK.pattern + rb"\Z")
_IDENTITY_MARK: Final = re.compile(rb"hloom-identity-([0-9a-f]{64});")
_LOCATION: Final = re.compile(r"^#(loc\d*) = loc\((.*)\)$", re.MULTILINE)
_USE: Final = re.compile(r" loc\(#(loc\d*)\)$", re.MULTILINE)
_numbers: Final = itertools.count(1)
_waiting: Final[dict[int, Sequence[Any]]] = {}
"""Functions of modules that are on their way to the compiler, by number."""
_describing: Final = threading.local()


def take_callbacks(artifact: bytes) -> Sequence[Any]:
    """Return the functions of a module on its way to the compiler."""
    found = _CALLBACKS_MARK.search(artifact)
    return _waiting.pop(int(found[1]), ()) if found is not None else ()


def split_callbacks(data: bytes) -> tuple[bytes, Sequence[Any]]:
    """Return a serialized executable and the functions whose mark follows it."""
    match = _CALLBACKS_AT_END.search(data)
    return (data, ()) if match is None else (data[: match.start()], _waiting.pop(int(match[1]), ()))


def identity_of(artifact: bytes) -> bytes:
    """Return the identity of a module, by default that of its bytes."""
    found = _IDENTITY_MARK.search(artifact)
    return found[1] if found is not None else hashlib.sha256(artifact).hexdigest().encode()


def identity_in(data: bytes) -> bytes | None:
    """Return the identity that stands in the place of a serialized executable; None in other data."""
    found = _IDENTITY_MARK.fullmatch(data)
    return None if found is None else found[1]


def is_describing() -> bool:
    """Return whether this thread serializes an executable for its description alone."""
    return getattr(_describing, "now", False)


def _description(executable: Any) -> bytes:
    """Return what jaxlib writes before the bytes of an executable."""
    _describing.now = True
    try:
        data: bytes = executable.serialize()
    finally:
        _describing.now = False
    return data


class Programs(Protocol):
    """The programs that hloom knows; see `hloom.jax.compilation.compiler.KnownPrograms`."""

    def description(self, identity: bytes, options: bytes) -> bytes | None:
        """Return the description of a program; None if it is not known."""
        ...

    def describe(self, identity: bytes, options: bytes, describe: Callable[[], bytes]) -> None:
        """Keep the description of a program that was just compiled."""
        ...


def install(platform_version: str, programs: Programs) -> None:
    """Wrap the functions of JAX that compile and that read its cache, for clients of this version."""
    _wrap_compile(platform_version, programs)
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
    """A proxy of a client that loads executables with Python functions."""

    def __init__(self, client: Any, functions: Sequence[Any]) -> None:
        self._client = client
        self._functions = functions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def deserialize_executable(self, data: bytes, devices: Any, options: Any) -> Any:
        """Load an executable; the mark of the functions follows its bytes."""
        marked = data + _enqueued(self._functions).encode()
        return self._client.deserialize_executable(marked, devices, options)


def _wrap_compile(platform_version: str, programs: Programs) -> None:
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
                with _attributes(module, {_CALLBACKS: _enqueued(host_callbacks)}):
                    return original(backend, module, executable_devices, options, [])
            identity, given = _identity(module.operation), options.SerializeAsString()
            mark = f"hloom-identity-{identity};"
            description = programs.description(identity.encode(), given)
            if description is not None:
                return backend.deserialize_executable(
                    description + mark.encode(), executable_devices, options
                )
            with _attributes(module, {_IDENTITY: mark}):
                made = original(backend, module, executable_devices, options, [])
            programs.describe(identity.encode(), given, lambda: _description(made))
            return made

    compile_and_load.hloom = True  # type: ignore[attr-defined]
    private.compile_and_load.set(compile_and_load)


def _enqueued(callbacks: Sequence[object]) -> str:
    """Let the functions of a module wait here; return the mark of their number."""
    number = next(_numbers)
    _waiting[number] = list(callbacks)
    return f"hloom-callbacks-{number};"


@contextmanager
def _attributes(module: Any, added: Mapping[str, str]) -> Generator[None]:
    """Add attributes to a module, and remove them in the end."""
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
    """Return a digest of a module and of the names of its operations, without positions in source files."""
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
