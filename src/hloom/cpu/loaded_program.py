"""Compiled programs in memory: machine code, and the facts that its callers need.

A program from the cache is loaded and run without the compiler: no module, no passes, no LLVM.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Final

from hloom.cpu.jit.cache import Entry, configured_cache
from hloom.cpu.jit.externals import address_of
from hloom.cpu.jit.loader import LoadedObject
from hloom.cpu.jit.program_facts import ProgramFacts
from hloom.cpu.jit.relocation import LoadError
from hloom.cpu.runtime.context import Context
from hloom.cpu.runtime.support import support
from hloom.runtime.measurements import ProgramMemory

ENTRY: Final = "hloom_run"


class LoadedProgram:
    """A compiled program, whose machine code is in memory as long as this object lives.

    Attributes:
        facts: properties recorded when the program was compiled.
        memory: the bytes of its arguments, results and temporaries.
        context: the default run context: the program runs without other devices, nothing is measured.
        symbols: the addresses of its functions and constants, by name.
        address: the address of its entry function ``status = run(sources, targets, arena, context)``.
        size: the bytes of code and constants.
    """

    def __init__(self, entry: Entry) -> None:
        """Load the machine code of a cache entry into memory; raises LoadError if the entry is malformed."""
        facts = ProgramFacts.from_json(entry.facts)
        if facts is None or len(entry.parts) <= len(facts.data):
            raise LoadError("facts that do not describe a program", rule="cpu.object-facts")
        count = len(entry.parts) - len(facts.data)
        data = dict(zip(facts.data, entry.parts[count:], strict=True))
        self._code = LoadedObject(entry.parts[:count], external_address, data)
        self.symbols = self._code.symbols
        if ENTRY not in self.symbols:
            raise LoadError(f"no function {ENTRY} in compiled code", rule="cpu.object-symbol")
        self.facts = facts
        self.memory = ProgramMemory(sum(facts.argument_bytes), sum(facts.result_bytes), facts.temp_bytes)
        self.context = Context()
        self.address = self.symbols[ENTRY]
        self.size = self._code.size


def cached_program(key: str) -> LoadedProgram | None:
    """Load the program that the cache holds for ``key``; None if there is none, or if it is damaged."""
    cache = configured_cache()
    entry = cache.get(key) if cache is not None else None
    if entry is None:
        return None
    try:
        return LoadedProgram(entry)
    except LoadError:
        return None


def external_address(name: str) -> int | None:
    """Return the address of a symbol that programs refer to but do not define; None for an unknown name.

    Names are those of functions of the run time and of C libraries, or have a prefix: ``lapack.`` is followed
    by a LAPACK routine; for custom calls of C functions, ``foreign.`` is followed by the target and
    ``frame.`` by a description of the call frame, both in hexadecimal.
    """
    if name in ("hloom_host", "hloom_rendezvous", "hloom_foreign"):
        from hloom.cpu.runtime.host import provide_functions

        provide_functions()
    kind, _, described = name.partition(".")
    if kind in _ADDRESSES:
        return _ADDRESSES[kind](described)
    address = address_of(name)
    return support().symbols.get(name) if address is None else address


def _library_address(name: str) -> int | None:
    """Return the address of the LAPACK routine ``name``, such as ``dgetrf``.

    The names ``get_threads`` and ``set_threads`` stand for functions that get and set the number of threads
    that the library uses.
    """
    from hloom.operations.lapack.library import routine_address, thread_count_functions

    setting = ("get_threads", "set_threads")
    if name not in setting:
        return routine_address(name)
    functions = thread_count_functions()
    if functions is None:
        return support().symbols[("hloom_library_get_one", "hloom_library_set_none")[setting.index(name)]]
    return ctypes.cast(functions[setting.index(name)], ctypes.c_void_p).value


def _function_cell(target: str) -> int:
    from hloom.operations.ffi import function_cell

    return ctypes.addressof(function_cell(bytes.fromhex(target).decode()))


def _frame_template(description: str) -> int:
    from hloom.operations.ffi import frame_template

    return frame_template(bytes.fromhex(description).decode())


_ADDRESSES: Final[dict[str, Callable[[str], int | None]]] = {
    "lapack": _library_address,
    "foreign": _function_cell,
    "frame": _frame_template,
}
"""Functions that return the addresses of names with these prefixes, by the rest of the name."""
