"""What executables tell of their programs and runs: memory, profiles, recordings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from hloom.display import Displayed
from hloom.errors import plural
from hloom.ir.value import Array
from hloom.records import dataclass

if TYPE_CHECKING:
    from hloom.ir.instruction import HloInstruction


@dataclass(frozen=True, slots=True)
class ProgramMemory(Displayed):
    """Memory that a program needs, in bytes.

    Attributes:
        argument, output: arrays of the caller.
        temp: the arena.
        peak: the sum.
    """

    argument: int
    output: int
    temp: int

    @property
    def peak(self) -> int:
        """Bytes in use while the program runs."""
        return self.argument + self.output + self.temp


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

    def to_json(self) -> dict[str, object]:
        """Return the profile as JSON data."""
        return asdict(self)

    def __str__(self) -> str:
        head = f"{1e6 * self.seconds:10.1f} us in all"
        if self.devices:
            head += f" on {plural(len(self.devices), 'device')} (the slowest); each line is a mean of devices"
        total = sum(line.seconds for line in self.collectives)
        waiting = sum(line.waiting for line in self.collectives)
        lines = [head, *map(str, self.lines)]
        if self.collectives:
            words = f"us in collectives, {1e6 * waiting:.1f} us of which waiting for other devices"
            lines.insert(1, f"{1e6 * total:10.1f} {words}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Recording:
    """Start and end times of the instructions of one run, on one device.

    Attributes:
        module: the name of its module.
        instructions: those that are measured.
        records: for each measurement the number of its instruction (-1 for the whole run), and the times at
            which it began and ended, in nanoseconds of the monotonic clock.
        lost: measurements for which there was no room.
        device: the number of the device, in this process.
        thread: the system's number of the thread.
    """

    module: str
    instructions: Sequence[HloInstruction]
    records: Array
    lost: int
    device: int
    thread: int


def of_devices(profiles: Sequence[Profile]) -> Profile:
    """Return the profile of several devices from those of each."""
    groups: dict[tuple[str, str], list[ProfileLine]] = {}
    for profile in profiles:
        for line in profile.lines:
            groups.setdefault((line.name, line.text), []).append(line)
    lines = [_mean(group) for group in groups.values()]
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
