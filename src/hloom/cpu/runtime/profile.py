"""Profiles: timed programs measure every instruction.

A timed program reads the clock before and after each instruction that has code, and adds the difference to a
table that the second word of its context points to: two words per instruction, nanoseconds and number of
runs.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hloom.codegen.llvm import I64, PTR, Function, Value
from hloom.cpu.runtime.context import TABLE_WORD

if TYPE_CHECKING:
    from hloom.ir.instruction import HloInstruction


class Timer:
    """Emits the measurements.

    Attributes:
        names: the instructions measured, in the order of the table.
    """

    def __init__(self, function: Function, context: Value) -> None:
        self.function = function
        self.context = context
        self.names: list[str] = []

    @contextmanager
    def measure(self, name: str) -> Generator[None]:
        """Measure the code that is emitted inside the ``with`` statement."""
        number = len(self.names)
        self.names.append(name)
        f = self.function
        start = f.call(I64, "hloom_clock")
        yield
        taken = f.call(I64, "hloom_clock") - start
        table = f.load(PTR, f.offset(self.context, TABLE_WORD, PTR))
        for word, more in ((2 * number, taken), (2 * number + 1, f.constant(I64, 1))):
            place = f.offset(table, word, I64)
            f.store(f.load(I64, place) + more, place)


@dataclass(frozen=True, slots=True)
class ProfileLine:
    """Time of one instruction of a program.

    Attributes:
        name: name of the instruction in the optimized program.
        text: the instruction as HLO text.
        seconds: total of all runs.
        runs: number of runs; more than one in a loop.
        flops, bytes: of one run; see `hloom.analysis.cost`.
    """

    name: str
    text: str
    seconds: float
    runs: int
    flops: float
    bytes: float

    def __str__(self) -> str:
        rate = self.flops * self.runs / self.seconds / 1e9 if self.seconds else 0.0
        flow = self.bytes * self.runs / self.seconds / 1e9 if self.seconds else 0.0
        times = f"{1e6 * self.seconds:10.1f} us {self.runs:7}x"
        return f"{times} {rate:8.2f} GFLOP/s {flow:8.2f} GB/s  {self.text}"


@dataclass(frozen=True, slots=True)
class Profile:
    """Times of the instructions of a program in one run.

    Attributes:
        seconds: the whole run.
        lines: the instructions in descending order of time.
    """

    seconds: float
    lines: tuple[ProfileLine, ...]

    def __str__(self) -> str:
        return "\n".join([f"{1e6 * self.seconds:10.1f} us in all", *map(str, self.lines)])


def profile_lines(
    instructions: dict[str, HloInstruction], names: list[str], table: list[int]
) -> tuple[ProfileLine, ...]:
    """Return the lines of a profile from the table of a timed program."""
    from hloom.analysis.cost import instruction_cost
    from hloom.text.printer import print_instruction

    lines: list[ProfileLine] = []
    for number, name in enumerate(names):
        instruction = instructions[name]
        cost = instruction_cost(instruction)
        lines.append(
            ProfileLine(
                name,
                print_instruction(instruction),
                table[2 * number] / 1e9,
                table[2 * number + 1],
                cost.flops,
                cost.bytes,
            )
        )
    return tuple(sorted(lines, key=lambda line: -line.seconds))
