"""Timers: timed programs measure every instruction.

A timed program reads the clock before and after each instruction that has code, and adds the difference to a
table that the second word of its context points to: the nanoseconds of the whole run, then three words per
instruction, nanoseconds, number of runs, and the nanoseconds in which native code waited for other devices.
Waiting in the host is measured there.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from hloom.codegen.llvm import I64, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.cpu.runtime.structs import CONTEXT
from hloom.runtime.measurements import ProfileLine

if TYPE_CHECKING:
    from hloom.ir.instruction import HloInstruction

TIMED_WORDS: Final = 3
"""Words of the table for an instruction."""
RECORDS_AT: Final = 2
RECORD_WORDS: Final = 3
"""Words of a recorded program's table before its records, and of a record."""


class Timer:
    """Emits the measurements.

    Attributes:
        names: the instructions measured, in the order of the table.
    """

    def __init__(self, function: Function, context: Value) -> None:
        self.function = function
        self.context = context
        self.names: list[str] = []
        self._start: Value | None = None

    def begin(self) -> None:
        """Emit the start of the whole measurement."""
        self._start = self.function.call(I64, "hloom_clock")

    def finish(self) -> None:
        """Emit the end of the whole measurement."""
        assert self._start is not None
        self._add_at(0, self.function.call(I64, "hloom_clock") - self._start)

    @contextmanager
    def measure(self, name: str) -> Generator[None]:
        """Measure the code that is emitted inside the ``with`` statement."""
        number = len(self.names)
        self.names.append(name)
        f = self.function
        start = f.call(I64, "hloom_clock")
        yield
        self._add(number, 0, f.call(I64, "hloom_clock") - start)
        self._add(number, 1, f.constant(I64, 1))

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Measure code of the instruction measured last that waits for other devices."""
        f = self.function
        start = f.call(I64, "hloom_clock")
        yield
        self._add(len(self.names) - 1, 2, f.call(I64, "hloom_clock") - start)

    def _add(self, number: int, word: int, more: Value) -> None:
        """Add to a word of an instruction in the table."""
        self._add_at(1 + TIMED_WORDS * number + word, more)

    def _add_at(self, at: int, more: Value) -> None:
        f = self.function
        table = Fields(CONTEXT, self.context)["table"]
        place = f.offset(table, at, I64)
        f.store(f.load(I64, place) + more, place)


class Recorder(Timer):
    """Emits a record of each measurement, in the order in which they end.

    The table has the number of records, the number for which there is room, and the records: the number of
    the instruction (-1 for the whole run), and the times at which it began and ended. More records are
    counted, and share the place behind the others.
    """

    def finish(self) -> None:
        """See `Timer`."""
        assert self._start is not None
        self._record(-1, self._start)

    @contextmanager
    def measure(self, name: str) -> Generator[None]:
        """See `Timer`."""
        number = len(self.names)
        self.names.append(name)
        start = self.function.call(I64, "hloom_clock")
        yield
        self._record(number, start)

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Record nothing of its own."""
        yield

    def _record(self, number: int, start: Value) -> None:
        f = self.function
        end = f.call(I64, "hloom_clock")
        table = Fields(CONTEXT, self.context)["table"]
        count, room = f.load(I64, table), f.load(I64, f.offset(table, 1, I64))
        slot = count.compare("slt", room).select(count, room)
        record = f.offset(f.offset(table, RECORDS_AT, I64), slot * RECORD_WORDS, I64)
        for word, value in enumerate((f.constant(I64, number), start, end)):
            f.store(value, f.offset(record, word, I64))
        f.store(count + 1, table)


def profile_lines(
    instructions: Mapping[str, HloInstruction],
    names: Sequence[str],
    table: Sequence[int],
    waited: Mapping[str, int],
) -> tuple[ProfileLine, ...]:
    """Return the lines of a profile.

    Args:
        instructions: those of the program by name.
        names: the measured ones.
        table: that of the timed program.
        waited: nanoseconds that the host waited for other devices, by instruction.
    """
    from hloom.analysis.cost import instruction_cost
    from hloom.ir.traits import Family
    from hloom.text.printer import print_instruction

    lines: list[ProfileLine] = []
    for number, name in enumerate(names):
        instruction = instructions[name]
        cost = instruction_cost(instruction)
        time, runs, waiting = table[1 + TIMED_WORDS * number : 1 + TIMED_WORDS * (number + 1)]
        exchanges = any(
            i.operation.family is Family.COLLECTIVE and i.opcode not in ("partition-id", "replica-id")
            for i in (instruction, *(j for c in instruction.called_computations for j in c.instructions))
        )
        lines.append(
            ProfileLine(
                name,
                print_instruction(instruction),
                time / 1e9,
                runs,
                cost.flops,
                cost.bytes,
                exchanges,
                (waiting + waited.get(name, 0)) / 1e9 if exchanges else 0.0,
            )
        )
    return tuple(sorted(lines, key=lambda line: -line.seconds))
