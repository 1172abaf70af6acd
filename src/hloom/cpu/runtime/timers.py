"""Timers of timed programs, which measure every instruction.

A timed program reads the clock before and after the code of each instruction, and adds the difference to the
table of its context. The host measures how long it waits.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from hloom.codegen.llvm import I64, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.values import Operand
from hloom.codegen.structs import Record
from hloom.cpu.runtime.structs import CONTEXT, RECORDING, TIMINGS
from hloom.runtime.measurements import ProfileLine

if TYPE_CHECKING:
    from hloom.ir.instruction import HloInstruction

_WHOLE_RUN: Final = -1


class Timer:
    """Emits the clock reads of a timed program, which adds the time of each instruction to a table.

    Attributes:
        names: the names of the measured instructions, in the order of their entries in the table.
    """

    def __init__(self, function: Function, context: Value) -> None:
        self.function = function
        self.context = context
        self.names: list[str] = []
        self._start: Value | None = None

    def begin(self) -> None:
        """Emit a clock read at the start of the timed program."""
        self._start = self._now()

    def finish(self) -> None:
        """Emit a clock read at the end of the program, and code that adds its total time to the table."""
        assert self._start is not None
        _add(self._timings(), "nanoseconds", self._now() - self._start)

    @contextmanager
    def measure(self, name: str) -> Generator[None]:
        """Emit clock reads around the code that a ``with`` block emits for instruction ``name``.

        Also emits code that adds the time in between to the instruction's entry of the table.
        """
        number = len(self.names)
        self.names.append(name)
        start = self._now()
        yield
        self._measured(number, start)

    def _measured(self, number: int, start: Value) -> None:
        """Emit code that adds the time since ``start``, and one run, to an instruction's entry of the table.

        ``start`` is an emitted clock read, ``number`` the index of the entry.
        """
        timing = self._timings().nested("instructions", number)
        _add(timing, "nanoseconds", self._now() - start)
        _add(timing, "runs", 1)

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Emit clock reads around the code that a ``with`` block emits, in which an instruction waits.

        The time counts as waiting of the instruction whose measurement began last.
        """
        number = len(self.names) - 1
        start = self._now()
        yield
        _add(self._timings().nested("instructions", number), "waited", self._now() - start)

    def _timings(self) -> Fields:
        return Fields(TIMINGS, self._table())

    def _table(self) -> Value:
        return Fields(CONTEXT, self.context)["table"]

    def _now(self) -> Value:
        return self.function.call(I64, "hloom_clock")


def _add(fields: Fields, name: str, increment: Operand) -> None:
    fields[name] = fields[name] + increment


class Recorder(Timer):
    """Emits code that records when each execution of an instruction begins and ends.

    The records are in the order in which the executions end.
    """

    def finish(self) -> None:
        assert self._start is not None
        self._measured(_WHOLE_RUN, self._start)

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Emit no clock reads around the code of a ``with`` block, as a recording has no times of waiting."""
        yield

    def _measured(self, number: int, start: Value) -> None:
        end = self._now()
        recording = Fields(RECORDING, self._table())
        count, room = recording["count"], recording["room"]
        record = recording.nested("records", count.compare("slt", room).select(count, room))
        record["instruction"], record["begin"], record["end"] = number, start, end
        recording["count"] = count + 1


def profile_lines(
    instructions: Mapping[str, HloInstruction],
    names: Sequence[str],
    timings: Record,
    waited: Mapping[str, int],
) -> tuple[ProfileLine, ...]:
    """Return the lines of a profile, one per measured instruction, the longest time first.

    Args:
        instructions: the instructions of the program, by name.
        names: the names of the measured instructions, in the order of the entries in ``timings``.
        timings: the C struct `TIMINGS` that the run filled, a table of the instructions' times.
        waited: the nanoseconds that an instruction evaluated in Python waited, by its name.
    """
    from hloom.analysis.cost import instruction_cost
    from hloom.ir.traits import Family
    from hloom.text.printer import print_instruction

    lines: list[ProfileLine] = []
    for number, name in enumerate(names):
        instruction = instructions[name]
        cost = instruction_cost(instruction)
        timing = timings.nested("instructions", number)
        exchanges = any(
            i.operation.family is Family.COLLECTIVE and i.opcode not in ("partition-id", "replica-id")
            for i in (instruction, *(j for c in instruction.called_computations for j in c.instructions))
        )
        lines.append(
            ProfileLine(
                name,
                print_instruction(instruction),
                timing["nanoseconds"] / 1e9,
                timing["runs"],
                cost.flops,
                cost.bytes,
                exchanges,
                (timing["waited"] + waited.get(name, 0)) / 1e9 if exchanges else 0.0,
            )
        )
    return tuple(sorted(lines, key=lambda line: -line.seconds))
