"""Timed and recorded programs: optimized modules compiled so that every instruction is measured."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Final

import numpy as np

from hloom.codegen.target import host
from hloom.cpu.jit.compilation import compile_module
from hloom.cpu.loaded_program import ENTRY, LoadedProgram
from hloom.cpu.runtime.timers import (
    RECORD_WORDS,
    RECORDS_AT,
    TIMED_WORDS,
    Recorder,
    Timer,
    profile_lines,
)
from hloom.ir.module import HloModule
from hloom.ir.value import Array
from hloom.runtime.measurements import Profile, Recording

_RECORDS: Final = 1 << 16
"""Records of a run for which there is room."""


class TimedProgram:
    """A program that adds up the time of its instructions in a table.

    Attributes:
        address: of the native function; see `LoadedProgram`.
    """

    def __init__(self, optimized: HloModule) -> None:
        self._program, code = compile_module(optimized, host(), timer=Timer)
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


class RecordedProgram:
    """A program that records when its instructions begin and end.

    Attributes:
        address: of the native function; see `LoadedProgram`.
    """

    def __init__(self, optimized: HloModule) -> None:
        program, code = compile_module(optimized, host(), timer=Recorder)
        self._loaded = LoadedProgram(code)
        by_name = {i.name: i for i in optimized.instructions()}
        self._module = optimized.name
        self._instructions = [by_name[name] for name in program.timed]
        self.address = self._loaded.symbols[ENTRY]

    def table(self) -> Array:
        """Return a table without records; pages exist when they are written to."""
        table = np.empty(RECORDS_AT + RECORD_WORDS * (_RECORDS + 1), np.int64)
        table[:RECORDS_AT] = 0, _RECORDS
        return table

    def recording(self, table: Array, device: int, thread: int) -> Recording:
        """Return the records of a table that a run has filled."""
        count = min(int(table[0]), _RECORDS)
        records = table[RECORDS_AT : RECORDS_AT + RECORD_WORDS * count].reshape(count, RECORD_WORDS).copy()
        lost = int(table[0]) - count
        return Recording(self._module, self._instructions, records, lost, device, thread)
