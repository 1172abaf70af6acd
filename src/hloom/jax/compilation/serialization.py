"""Serialized executables, for JAX's compilation cache and ``jax.experimental.serialize_executable``.

The bytes are an entry of hloom's cache with a digest: the StableHLO artifact, the options, the interface and
the machine code. The code is loaded if this version of hloom compiled it for this processor; otherwise the
program is compiled again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Final, cast

from hloom.codegen.target import host
from hloom.cpu.jit.cache import Entry, configured_cache, key_of
from hloom.cpu.jit.relocation import LoadError
from hloom.cpu.loaded_program import LoadedProgram
from hloom.jax.compilation.compiler import ProgramCache, cache_program, compile_program
from hloom.jax.compilation.handover import identity_from_mark, is_describing, split_callbacks
from hloom.jax.devices.client import Client
from hloom.jax.pjrt.api import implements, permanent_address
from hloom.jax.pjrt.errors import INVALID_ARGUMENT, UNIMPLEMENTED, PjrtError
from hloom.jax.pjrt.handles import Handle, Text, object_at
from hloom.jax.pjrt.native import plugin_identity
from hloom.jax.programs.compiled import Compiled, Interface
from hloom.jax.programs.executables import LoadedExecutable, executable_at

_FORMAT: Final = "jax executable"
"""The key of the cache entry."""


class Serialized(Handle):
    """The bytes of a serialized executable, alive until the caller has copied them and calls the deleter."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.text = Text(data)


def serialize(executable: LoadedExecutable) -> bytes:
    """Serialize an executable, with its machine code if that is cached, but without its Python callbacks."""
    compiled = executable.compiled
    cache = configured_cache()
    code = cache.get(compiled.program_key) if cache is not None and compiled.program_key else None
    facts: dict[str, object] = {
        "key": compiled.key,
        "program": compiled.program_key,
        "compiler": _compiler(),
        "interface": compiled.interface.to_json(),
        "callbacks": len(executable.callbacks),
        "code": None if code is None else code.facts,
    }
    content = [compiled.artifact, executable.options, compiled.optimized_program]
    return Entry(facts, [*content, *(() if code is None else code.parts)]).to_bytes(_FORMAT)


def load(client: Client, data: bytes, options: bytes) -> LoadedExecutable:
    """Load a serialized executable on its devices.

    Compiles it if its machine code is missing, or made for another processor or by another version of hloom.

    Args:
        client: the client that has the devices.
        data: the bytes from `serialize`, followed by a text with the number of the Python callbacks if the
            executable calls any; or only a text with the digest that identifies a cached program. Both texts
            come from `hloom.jax.compilation.handover`.
        options: serialized compile options that replace the executable's own; empty to keep these.

    Raises PjrtError if ``data`` are no such bytes, or if Python callbacks of the executable are missing.
    """
    data, callbacks = split_callbacks(data)
    identity = identity_from_mark(data)
    if identity is not None:
        return ProgramCache().load(client, identity, options)
    entry = Entry.from_bytes(data, _FORMAT)
    if entry is None or len(entry.parts) < 3:
        message = "these bytes are not an executable that hloom serialized, or they are damaged"
        raise PjrtError(INVALID_ARGUMENT, message)
    artifact, own_options, *_ = entry.parts
    if len(callbacks) != entry.facts.get("callbacks"):
        message = "this executable calls Python functions, which are not serialized"
        raise PjrtError(UNIMPLEMENTED, message)
    if entry.facts.get("compiler") == _compiler():
        _cache(entry)
    return compile_program(client, artifact, options or own_options, callbacks)


def _cache(entry: Entry) -> None:
    """Add the program of a serialized executable to the memory cache, if its machine code can be loaded."""
    interface = Interface.from_json(entry.facts.get("interface"))
    code = entry.facts.get("code")
    if interface is None or not isinstance(code, dict):
        return
    artifact, _, optimized, *parts = entry.parts
    try:
        native = LoadedProgram(Entry(cast("Mapping[str, object]", code), parts))
    except LoadError:
        return
    key, program_key = str(entry.facts.get("key")), str(entry.facts.get("program"))
    cache_program(Compiled(key, artifact, interface, native, optimized, program_key))


def _compiler() -> str:
    return key_of("executable", plugin_identity(), host().identity)


@implements("Executable_Serialize")
def _serialize(args: ctypes.Structure) -> None:
    executable = executable_at(args.executable)
    serialized = Serialized(b"" if is_describing() else serialize(executable))
    serialized.text.write(args, "serialized_bytes")
    args.serialized_executable = serialized.handle
    args.serialized_executable_deleter = _DELETER


@implements("Executable_DeserializeAndLoad")
def _deserialize(args: ctypes.Structure) -> None:
    data = ctypes.string_at(args.serialized_executable, args.serialized_executable_size)
    address = args.overridden_serialized_compile_options
    options = ctypes.string_at(address, args.overridden_serialized_compile_options_size) if address else b""
    args.loaded_executable = load(object_at(args.client, Client), data, options).handle


def _delete(handle: int) -> None:
    object_at(handle, Serialized).drop()


_DELETER: Final = permanent_address(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_delete))
