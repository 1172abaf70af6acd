"""Compilation of JAX's programs: a module of StableHLO with compile options.

Look a program up by its identity before converting it: in memory, then in hloom's cache on disk. An entry on
disk holds the program's interface, its form before and after optimization, jaxlib's description of it, and
the key of its native code, which is the key of the HLO module: programs that differ only in names share code.
On a miss, jaxlib converts StableHLO to HLO; hloom does the rest.
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
from hloom.jax.compilation.compile_options import Options
from hloom.jax.compilation.handover import identity_of, take_callbacks
from hloom.jax.devices.client import Client
from hloom.jax.pjrt import abi
from hloom.jax.pjrt.api import implements
from hloom.jax.pjrt.errors import INVALID_ARGUMENT, UNIMPLEMENTED, PjrtError
from hloom.jax.pjrt.handles import object_at
from hloom.jax.programs.compiled import Compiled, Divided, Interface, compile_artifact
from hloom.jax.programs.executables import LoadedExecutable

_MOST_KEPT: Final = 4096
"""Programs that are kept for the case that the same one is compiled again."""
_lock: Final = threading.Lock()
_kept: Final[dict[str, Compiled]] = {}


class KnownPrograms:
    """The programs that were compiled before, as `hloom.jax.compilation.handover` asks for them.

    Programs with callbacks or states, and those that are dumped or divided, are none of them.
    """

    def description(self, identity: bytes, options: bytes) -> bytes | None:
        """Return jaxlib's description of a program, which is in memory then; None if it is not known."""
        try:
            asked = Options.parsed(options)
        except PjrtError:
            return None  # the compilation refuses the options in the form of JAX
        compiled = None if asked.dump_flags else _found(_key(identity, asked))
        if compiled is None:
            return None
        keep(compiled)
        return compiled.description or None

    def describe(self, identity: bytes, options: bytes, describe: Callable[[], bytes]) -> None:
        """Store a program that was just compiled with its description, if native code alone runs it."""
        asked = Options.parsed(options)
        with _lock:
            compiled = _kept.get(_key(identity, asked))
        if compiled is None or compiled.description or not compiled.program_key or asked.dump_flags:
            return
        compiled.description = describe()
        cache = configured_cache()
        if cache is not None:
            facts = {"interface": compiled.interface.to_json(), "program": compiled.program_key}
            parts = [compiled.optimized_program, compiled.artifact, compiled.description]
            cache.put(compiled.key, Entry(facts, parts))

    def load(self, client: Client, identity: bytes, options: bytes) -> LoadedExecutable:
        """Return a program whose description was given out. Raises PjrtError."""
        asked = Options.parsed(options)
        compiled = _found(_key(identity, asked))
        if compiled is None:
            message = f"no program was compiled with the identity {identity.decode()}"
            raise PjrtError(INVALID_ARGUMENT, message)
        devices = asked.devices(client)
        return LoadedExecutable(compiled, devices, client.own(devices), options, ())


def compile_program(
    client: Client, artifact: bytes, options: bytes, callbacks: Sequence[object]
) -> LoadedExecutable:
    """Compile a module of StableHLO, or return the one compiled before. Raises PjrtError, HloError."""
    asked = Options.parsed(options)
    devices = asked.devices(client)
    key = _key(identity_of(artifact), asked)
    # A program with callbacks or states is another one each time; one that is dumped, or whose compilation
    # calls the client, is compiled anew.
    known = not (callbacks or asked.dump_flags or calls_back(artifact) or keeps_state(artifact))
    divided = Divided.of(client, devices)
    if divided is not None:
        key = key_of(key, str([device.id for device in devices]))
    compiled = (_found(key) if known else None) or _compiled(key, artifact, asked, divided)
    if known:
        keep(compiled)
    return LoadedExecutable(compiled, devices, client.own(devices), options, callbacks)


def keep(compiled: Compiled) -> None:
    """Keep a program in memory, so that compiling it again finds it."""
    with _lock:
        _kept[compiled.key] = compiled
        while len(_kept) > _MOST_KEPT:
            _kept.pop(next(iter(_kept)))


def _key(identity: bytes, asked: Options) -> str:
    """Return the key of a program with all options that change its code."""
    placed = f"{asked.num_replicas} {asked.num_partitions} {asked.open_parameters}"
    return key_of("jax", identity, placed, host().identity)


def _found(key: str) -> Compiled | None:
    """Return a program that this process or another one compiled before."""
    with _lock:
        found = _kept.get(key)
    cache = configured_cache()
    if found is not None or cache is None or "xla_dump" in os.environ.get("XLA_FLAGS", ""):
        return found
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
    """Import what only a compilation needs."""
    with collector_paused_for_imports():
        for name in (
            "cpu.jit.compilation",
            "cpu.native",
            "proto.reader",
            "proto.writer",
            "jax.programs.entry_layouts",
        ):
            import_module(f"hloom.{name}")


def _compiled(key: str, artifact: bytes, asked: Options, divided: Divided | None) -> Compiled:
    """Convert and compile a program."""
    _import_compiler()
    with collector_paused():
        program = compile_artifact(
            artifact,
            asked.num_replicas,
            asked.num_partitions,
            asked.dump_flags,
            asked.open_parameters,
            divided,
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
