"""Timed programs: optimized modules compiled so that every instruction is measured."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from hloom.codegen.target import host
from hloom.cpu.jit.compilation import compile_module
from hloom.cpu.loaded_program import ENTRY, LoadedProgram
from hloom.cpu.runtime.profile import TIMED_WORDS, Profile, profile_lines
from hloom.ir.module import HloModule


class TimedProgram:
    """A program that adds up the time of its instructions in a table.

    Attributes:
        address: of the native function; see `LoadedProgram`.
    """

    def __init__(self, optimized: HloModule) -> None:
        self._program, code = compile_module(optimized, host(), timed=True)
        self._loaded = LoadedProgram(code)
        self._instructions = {i.name: i for i in optimized.instructions()}
        self.address = self._loaded.symbols[ENTRY]

    def table(self) -> ctypes.Array[ctypes.c_int64]:
        """Return a table of zeros."""
        return (ctypes.c_int64 * (TIMED_WORDS * len(self._program.timed) + 1))()

    def profile(self, table: ctypes.Array[ctypes.c_int64], waited: Sequence[int]) -> Profile:
        """Return the profile of a run.

        Args:
            table: the table that it filled.
            waited: nanoseconds that each call of the host waited for other devices.
        """
        by_name: dict[str, int] = {}
        for call, more in zip(self._program.host_calls, waited, strict=False):
            by_name[call.name] = by_name.get(call.name, 0) + more
        lines = profile_lines(self._instructions, self._program.timed, list(table), by_name)
        return Profile(table[0] / 1e9, lines)
