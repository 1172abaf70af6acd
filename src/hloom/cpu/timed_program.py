"""Timed and recorded programs: optimized modules compiled so that every instruction is measured."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from hloom.codegen.structs import Record
from hloom.codegen.target import Target
from hloom.cpu.jit.compilation import compile_module
from hloom.cpu.loaded_program import ENTRY, LoadedProgram
from hloom.cpu.runtime.context import Context
from hloom.cpu.runtime.structs import RECORD, RECORDING, TIMINGS
from hloom.cpu.runtime.timers import Recorder, Timer, profile_lines
from hloom.ir.module import HloModule
from hloom.ir.value import Array
from hloom.runtime.measurements import Profile, Recording

if TYPE_CHECKING:
    from hloom.cpu.caller import Caller
    from hloom.cpu.runtime.host import HostCalls
    from hloom.devices.world import VirtualDevice

_RECORDS: Final = 1 << 16
"""Capacity of a recording."""


class TimedProgram:
    """A program compiled with code that adds up, in a table, the time that each HLO instruction takes."""

    def __init__(self, optimized: HloModule, target: Target) -> None:
        self._program, code = compile_module(optimized, target, timer=Timer)
        self._loaded = LoadedProgram(code)
        self._instructions = {i.name: i for i in optimized.instructions()}
        self._address = self._loaded.symbols[ENTRY]

    def profile(
        self,
        caller: Caller,
        arguments: Sequence[Array | None],
        device: VirtualDevice,
        host: HostCalls | None = None,
    ) -> Profile:
        """Run the program twice on a device; return the times of its instructions in the second run.

        The first run warms up. ``caller`` runs the code on the arguments, which are the arrays in nested
        tuples; ``host`` answers calls into Python; None if the program makes none.
        """
        count = len(self._program.timed)
        timings = TIMINGS.allocate(count)
        context = Context(
            device.id,
            participants=0 if host is None else host.table,
            table=timings.address,
            stop=device.world.waiting.stop_word,
        )
        caller.run(arguments, host, context, self._address)
        ctypes.memset(timings.address, 0, TIMINGS.size_with(count))
        before = [] if host is None else list(host.waited)
        caller.run(arguments, host, context, self._address)
        waited = [] if host is None else [n - m for n, m in zip(host.waited, before, strict=True)]
        return self._profile(timings, waited)

    def _profile(self, timings: Record, waited: Sequence[int]) -> Profile:
        """Return the profile of a run: its total time, and a line for each instruction.

        Args:
            timings: the C struct `TIMINGS` that the run filled, a table of the instructions' times.
            waited: the nanoseconds that each instruction evaluated in Python waited for other devices, in the
                order of the program's host calls.
        """
        by_name: dict[str, int] = {}
        for call, nanoseconds in zip(self._program.host_calls, waited, strict=False):
            by_name[call.name] = by_name.get(call.name, 0) + nanoseconds
        lines = profile_lines(self._instructions, self._program.timed, timings, by_name)
        return Profile(timings["nanoseconds"] / 1e9, lines)


class RecordedProgram:
    """A program compiled with code that records when each execution of an HLO instruction begins and ends."""

    def __init__(self, optimized: HloModule, target: Target) -> None:
        program, code = compile_module(optimized, target, timer=Recorder)
        self._loaded = LoadedProgram(code)
        by_name = {i.name: i for i in optimized.instructions()}
        self._module = optimized.name
        self._instructions = [by_name[name] for name in program.timed]
        self._address = self._loaded.symbols[ENTRY]

    def _table(self) -> Array:
        """Return an empty table that a run fills with the begin and end of up to `_RECORDS` executions.

        The operating system allocates its pages when they are first written.
        """
        table = np.empty(RECORDING.size_with(_RECORDS + 1), np.uint8)
        RECORDING.record(table.ctypes.data).update({"count": 0, "room": _RECORDS})
        return table

    def record(
        self,
        caller: Caller,
        arguments: Sequence[Array | None],
        host: HostCalls | None = None,
        device: VirtualDevice | None = None,
    ) -> tuple[list[Array], Recording]:
        """Run the program; return the leaves of its result, and a record of when each instruction ran.

        The record has the begin and end of each execution. ``caller`` runs the code on the arguments;
        ``host`` answers calls into Python; None if the program makes none. Arguments and result are leaves:
        the arrays in nested tuples. ``device`` is None if the program runs alone, without other devices.
        """
        table = self._table()
        participants = 0 if host is None else host.table
        number, identity, stop = 0, (0, 0), None
        if device is not None:
            number, identity = device.world.devices.index(device), device.id
            stop = device.world.waiting.stop_word
        context = Context(identity, participants=participants, table=table.ctypes.data, stop=stop)
        results = caller.run(arguments, host, context, self._address)
        return results, self._recording(table, number, threading.get_native_id())

    def _recording(self, table: Array, device: int, thread: int) -> Recording:
        """Convert a table that a run has filled to a `Recording`.

        Args:
            table: the bytes of the C struct `RECORDING`, which holds the records.
            device: the index of the device in its world.
            thread: the operating system's id of the thread that ran the program.
        """
        recorded = RECORDING.record(table.ctypes.data)["count"]
        count = min(recorded, _RECORDS)
        start = RECORDING.fields["records"].offset
        words = table[start : start + count * RECORD.size].view(np.int64)
        records = words.reshape(count, len(RECORD.fields)).copy()
        return Recording(self._module, self._instructions, records, recorded - count, device, thread)
