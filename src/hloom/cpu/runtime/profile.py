"""Profiles: timed programs measure every instruction.

A timed program reads the clock before and after each instruction that has code, and adds the difference to a
table that the second word of its context points to: the nanoseconds of the whole run, then three words per
instruction, nanoseconds, number of runs, and the nanoseconds in which native code waited for other devices.
Waiting in the host is measured there.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from hloom.codegen.llvm import I64, PTR, Function, Value
from hloom.cpu.runtime.context import TABLE_WORD
from hloom.display import Displayed

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
        table = f.load(PTR, f.offset(self.context, TABLE_WORD, PTR))
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
        table = f.load(PTR, f.offset(self.context, TABLE_WORD, PTR))
        count, room = f.load(I64, table), f.load(I64, f.offset(table, 1, I64))
        slot = count.compare("slt", room).select(count, room)
        record = f.offset(f.offset(table, RECORDS_AT, I64), slot * RECORD_WORDS, I64)
        for word, value in enumerate((f.constant(I64, number), start, end)):
            f.store(value, f.offset(record, word, I64))
        f.store(count + 1, table)


@dataclass(frozen=True, slots=True)
class ProfileLine:
    """Time of one instruction of a program.

    Attributes:
        name: name of the instruction in the optimized program.
        text: the instruction as HLO text.
        seconds: total of all runs.
        runs: number of runs; more than one in a loop.
        flops, bytes: of one run; see `hloom.analysis.cost`.
        is_collective: devices exchange data in it.
        waiting: of ``seconds``, those in which the device waited for others to arrive or to finish; the rest
            is the work of combining and moving data.
    """

    name: str
    text: str
    seconds: float
    runs: int
    flops: float
    bytes: float
    is_collective: bool = False
    waiting: float = 0.0

    def __str__(self) -> str:
        rate = self.flops * self.runs / self.seconds / 1e9 if self.seconds else 0.0
        flow = self.bytes * self.runs / self.seconds / 1e9 if self.seconds else 0.0
        times = f"{1e6 * self.seconds:10.1f} us {self.runs:7}x"
        waits = f"waiting {1e6 * self.waiting:.1f} us  " if self.is_collective else ""
        return f"{times} {rate:8.2f} GFLOP/s {flow:8.2f} GB/s  {waits}{self.text}"


@dataclass(frozen=True, slots=True)
class Profile(Displayed):
    """Times of the instructions of a program in one run.

    Attributes:
        seconds: the native code of the whole run; of several devices, the slowest.
        lines: the instructions in descending order of time; of several devices, means over the devices that
            execute the instruction.
        devices: the profile of each device, replica-major; none if there is only one.
    """

    seconds: float
    lines: tuple[ProfileLine, ...]
    devices: tuple[Profile, ...] = ()

    @property
    def collectives(self) -> tuple[ProfileLine, ...]:
        """The lines of instructions in which devices exchange data."""
        return tuple(line for line in self.lines if line.is_collective)

    def to_json(self) -> dict[str, Any]:
        """Return the profile as JSON data."""
        return asdict(self)

    def __str__(self) -> str:
        head = f"{1e6 * self.seconds:10.1f} us in all"
        if self.devices:
            head += f" on {len(self.devices)} devices (the slowest); each line is a mean of devices"
        total = sum(line.seconds for line in self.collectives)
        waiting = sum(line.waiting for line in self.collectives)
        lines = [head, *map(str, self.lines)]
        if self.collectives:
            words = f"us in collectives, {1e6 * waiting:.1f} us of which waiting for other devices"
            lines.insert(1, f"{1e6 * total:10.1f} {words}")
        return "\n".join(lines)


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


def of_devices(profiles: Sequence[Profile]) -> Profile:
    """Return the profile of several devices from those of each."""
    found: dict[tuple[str, str], list[ProfileLine]] = {}
    for profile in profiles:
        for line in profile.lines:
            found.setdefault((line.name, line.text), []).append(line)
    lines = [_mean(group) for group in found.values()]
    slowest = max(profile.seconds for profile in profiles)
    return Profile(slowest, tuple(sorted(lines, key=lambda line: -line.seconds)), tuple(profiles))


def _mean(lines: Sequence[ProfileLine]) -> ProfileLine:
    """Return the mean of one instruction on several devices; the number of runs is the largest."""
    count = len(lines)
    seconds, waiting = (
        sum(line.seconds for line in lines) / count,
        sum(line.waiting for line in lines) / count,
    )
    runs = max(line.runs for line in lines)
    return replace(lines[0], seconds=seconds, waiting=waiting, runs=runs)
