"""Compilation of JAX's programs: a StableHLO module with compile options.

A program is looked up by its identity: in memory, then in hloom's cache on disk. A cache entry holds the
program's interface, its StableHLO and its optimized HLO, jaxlib's description of its results, and the key of
its native code. Native code has the key of the HLO module, so programs that differ only in names share code.
On a miss, jaxlib converts StableHLO to HLO, and hloom compiles it.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Final

from hloom.codegen.target import host
from hloom.cpu.jit.cache import Entry, configured_cache, key_of
from hloom.cpu.loaded_program import cached_program
from hloom.ir.collector import collector_paused, collector_paused_for_imports
from hloom.jax.calls.custom_partitioning import calls_back
from hloom.jax.calls.foreign_functions import keeps_state
from hloom.jax.compilation.compile_options import PjrtCompileOptions
from hloom.jax.compilation.handover import identity_of, take_callbacks
from hloom.jax.devices.client import Client
from hloom.jax.pjrt import abi
from hloom.jax.pjrt.api import implements
from hloom.jax.pjrt.errors import INVALID_ARGUMENT, UNIMPLEMENTED, PjrtError
from hloom.jax.pjrt.handles import object_at
from hloom.jax.pjrt.native import plugin_identity
from hloom.jax.programs.compiled import Compiled, DistributedDevices, Interface, compile_artifact
from hloom.jax.programs.executables import LoadedExecutable

_MAX_PROGRAMS: Final = 4096
"""Number of programs cached in memory."""
_lock: Final = threading.Lock()
_programs: Final[dict[str, Compiled]] = {}
"""Cached programs by key, the oldest first."""


class ProgramCache:
    """The cache of compiled programs, in memory and on disk.

    `hloom.jax.compilation.handover` looks a program up before it lets jaxlib compile. It finds only programs
    that native code runs on one device without Python; those that hold state or are to be dumped are always
    compiled.
    """

    def description(self, identity: bytes, options: bytes) -> bytes | None:
        """Look up a program, and load it into the memory cache.

        Args:
            identity: the digest of the StableHLO module.
            options: the serialized compile options.

        Returns jaxlib's description of the program's results, with which jaxlib loads it; None on a miss.
        """
        try:
            parsed = PjrtCompileOptions.parsed(options)
        except PjrtError:
            return None  # compiling will report the error to JAX
        compiled = None if parsed.dump_flags else _look_up(_key(identity, parsed))
        if compiled is None:
            return None
        cache_program(compiled)
        return compiled.description or None

    def describe(self, identity: bytes, options: bytes, describe: Callable[[], bytes]) -> None:
        """Write a newly compiled program to the disk cache.

        Does nothing if the program was written already, is to be dumped, or needs Python to run.

        Args:
            identity: the digest of the StableHLO module.
            options: the serialized compile options.
            describe: returns jaxlib's description of the program's results; called only if that is written.
        """
        parsed = PjrtCompileOptions.parsed(options)
        with _lock:
            compiled = _programs.get(_key(identity, parsed))
        if compiled is None or compiled.description or not compiled.program_key or parsed.dump_flags:
            return
        compiled.description = describe()
        cache = configured_cache()
        if cache is not None:
            facts = {"interface": compiled.interface.to_json(), "program": compiled.program_key}
            parts = [compiled.optimized_program, compiled.artifact, compiled.description]
            cache.put(compiled.key, Entry(facts, parts))

    def load(self, client: Client, identity: bytes, options: bytes) -> LoadedExecutable:
        """Load a cached program on its devices. Raises PjrtError on a cache miss.

        Args:
            client: the client that has the devices.
            identity: the digest of the StableHLO module.
            options: the serialized compile options, which name the devices.
        """
        parsed = PjrtCompileOptions.parsed(options)
        compiled = _look_up(_key(identity, parsed))
        if compiled is None:
            message = f"no program was compiled with the identity {identity.decode()}"
            raise PjrtError(INVALID_ARGUMENT, message)
        devices = parsed.devices(client)
        return LoadedExecutable(compiled, devices, client.own(devices), options, ())


def compile_program(
    client: Client, artifact: bytes, options: bytes, callbacks: Sequence[object]
) -> LoadedExecutable:
    """Compile a StableHLO artifact, or take it from the cache; load it on its devices.

    Args:
        client: the client that has the devices.
        artifact: a portable artifact of StableHLO.
        options: the serialized compile options.
        callbacks: the Python functions that the program calls.

    Raises PjrtError and HloError.
    """
    parsed = PjrtCompileOptions.parsed(options)
    devices = parsed.devices(client)
    key = _key(identity_of(artifact), parsed)
    # Programs that call Python or hold state differ each time; dumps and calls of the client's partitioners
    # are effects of compiling.
    is_cacheable = not (callbacks or parsed.dump_flags or calls_back(artifact) or keeps_state(artifact))
    distributed = DistributedDevices.of(client, devices)
    if distributed is not None:
        key = key_of(key, str([device.id for device in devices]))
    compiled = _look_up(key) if is_cacheable else None
    if compiled is None:
        compiled = _compiled(key, artifact, parsed, distributed)
    if is_cacheable:
        cache_program(compiled)
    return LoadedExecutable(compiled, devices, client.own(devices), options, callbacks)


def cache_program(compiled: Compiled) -> None:
    """Add a program to the memory cache; evict the oldest programs beyond `_MAX_PROGRAMS`."""
    with _lock:
        _programs[compiled.key] = compiled
        while len(_programs) > _MAX_PROGRAMS:
            _programs.pop(next(iter(_programs)))


def _key(identity: bytes, options: PjrtCompileOptions) -> str:
    """Return the cache key of a program: a digest of its identity, its options, hloom and the processor.

    Of the options it contains only those that change the code. ``identity`` is the digest of the program.
    """
    sharding = f"{options.num_replicas} {options.num_partitions} {options.open_parameters}"
    return key_of("jax", plugin_identity(), identity, sharding, host().identity)


def _look_up(key: str) -> Compiled | None:
    """Return the program with a cache key from the memory cache, or else from disk; None on a miss."""
    with _lock:
        compiled = _programs.get(key)
    cache = configured_cache()
    if compiled is not None or cache is None or "xla_dump" in os.environ.get("XLA_FLAGS", ""):
        return compiled
    entry = cache.get(key)
    interface = Interface.from_json(entry.facts.get("interface")) if entry is not None else None
    if entry is None or interface is None or len(entry.parts) != 3:
        return None
    program_key = str(entry.facts.get("program"))
    native = cached_program(program_key)
    if native is None:
        return None
    optimized, artifact, description = entry.parts
    return Compiled(key, artifact, interface, native, optimized, program_key, description)


@cache
def _import_compiler() -> None:
    """Import the modules that are needed only to compile; later calls do nothing."""
    with collector_paused_for_imports():
        for name in (
            "cpu.jit.compilation",
            "cpu.native",
            "proto.reader",
            "proto.writer",
            "jax.programs.entry_layouts",
        ):
            import_module(f"hloom.{name}")


def _compiled(
    key: str, artifact: bytes, options: PjrtCompileOptions, distributed: DistributedDevices | None
) -> Compiled:
    """Convert a StableHLO artifact to HLO, and compile it; look up no cache.

    Args:
        key: the cache key of the program, which the result has as attribute.
        artifact: a portable artifact of StableHLO.
        options: the compile options.
        distributed: the program's devices if some belong to other processes, else None.
    """
    _import_compiler()
    with collector_paused():
        program = compile_artifact(
            artifact,
            options.num_replicas,
            options.num_partitions,
            options.dump_flags,
            options.open_parameters,
            distributed,
        )
        return Compiled.of(key, artifact, program)


@implements("Client_Compile")
def _compile(args: ctypes.Structure) -> None:
    program = abi.struct("Program").from_address(args.program)
    form = ctypes.string_at(program.format, program.format_size).decode()
    if form != "mlir":
        raise PjrtError(UNIMPLEMENTED, f"programs have the format 'mlir', got {form!r}")
    code = ctypes.string_at(program.code, program.code_size)
    options = ctypes.string_at(args.compile_options, args.compile_options_size)
    client = object_at(args.client, Client)
    args.executable = compile_program(client, code, options, take_callbacks(code)).handle
