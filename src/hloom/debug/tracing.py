"""Recording of every value that the evaluator computes in a program, in every iteration of its loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any

from hloom.analysis.origin import op_name, source_line
from hloom.debug.statistics import ArrayStatistics, flat, statistics_of, summary
from hloom.display import Displayed
from hloom.errors import expect, plural
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Value
from hloom.operations.control_flow import Fusion, While
from hloom.operations.conversion import Convert, Copy
from hloom.operations.movement import Broadcast
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Constant
from hloom.records import dataclass
from hloom.runtime.arguments import bound_arguments
from hloom.text.printer import print_instruction


@dataclass(frozen=True)
class Event:
    """One execution of an instruction, with the value that it computed.

    Attributes:
        instruction: the instruction.
        callers: the instructions that were running its computation: calls, loops, conditionals and fusions,
            outermost first.
        loop: the callers as text: ``%while.3[iteration 2] ``; empty in the entry.
        operands: the values of the operands; empty if the trace does not keep values.
        value: the value; None if the trace does not keep values.
        statistics: the statistics of each array of the value.
    """

    instruction: HloInstruction
    callers: tuple[HloInstruction, ...]
    loop: str
    operands: tuple[Any, ...]
    value: Any
    statistics: list[ArrayStatistics]

    @property
    def has_nan(self) -> bool:
        """True if the value contains NaN, unless it is a constant or a copy or broadcast of one."""
        return any(s.nans for s in self.statistics) and not _is_filler(self.instruction)

    @property
    def has_infinity(self) -> bool:
        """True if the value contains an infinity, unless it is a constant or a copy or broadcast of one."""
        return any(s.infinities for s in self.statistics) and not _is_filler(self.instruction)

    @property
    def op_name(self) -> str:
        """The framework's name of the operation (``op_name`` of its metadata), after those of its callers.

        Names are joined by ``/``; a name that already starts with its callers' path is not prefixed again.
        """
        path = ""
        for instruction in (*self.callers, self.instruction):
            name = op_name(instruction)
            path = name if name.startswith(path) else f"{path}/{name}" if name else path
        return path

    @property
    def source_line(self) -> str:
        """``FILE:LINE`` of the instruction, or of the innermost caller that has one; "" if there is none."""
        chain = (self.instruction, *self.callers[::-1])
        return next((line for line in map(source_line, chain) if line), "")

    def __str__(self) -> str:
        """Return a text with the instruction, its origin, and the values of its operands."""
        lines = [print_instruction(self.instruction).strip()]
        location = ", ".join(part for part in (self.op_name, self.source_line) if part)
        lines += [f"  at {location}"] if location else []
        lines += [f"  in {self.loop.strip()}"] if self.loop else []
        for operand, value in zip(self.instruction.operands, self.operands, strict=False):
            lines.append(f"  %{operand.name} {operand.shape.to_string(layout=False)} = {summary(value)}")
        return "\n".join(lines)


@dataclass(repr=False)
class Trace(Displayed):
    """The values that one run of a program computed, in order.

    Attributes:
        events: one for each parameter of the entry, then one for each execution of an instruction.
        result: the result of the program.
    """

    events: list[Event] = field(default_factory=list[Event])
    result: Any = None

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def __repr__(self) -> str:
        return f"<Trace of {plural(len(self.events), 'value')}>"

    @property
    def first_nan(self) -> Event | None:
        """The first event whose value has a NaN; None if there is none.

        Constants of the program and their copies do not count.
        """
        return next((e for e in self.events if e.has_nan), None)

    @property
    def first_infinity(self) -> Event | None:
        """The first event whose value has an infinity; None if there is none.

        Constants of the program and their copies do not count.
        """
        return next((e for e in self.events if e.has_infinity), None)


def trace(
    module: HloModule,
    arguments: Sequence[Value],
    *,
    keep_values: bool = True,
    observe: Callable[[Event], None] | None = None,
) -> Trace:
    """Evaluate a program, and return the values that its instructions compute, in the order of execution.

    Scalar computations, such as the reducer of a reduce, are not traced; the reduce itself is.

    Args:
        module: the program.
        arguments: its arguments.
        keep_values: keep the values in addition to their statistics, which takes the memory of every array
            ever computed.
        observe: called with each event when it happens; this event has values even if the trace does not keep
            them.

    Raises HloError for an invalid program or for arguments that do not fit.
    """
    expect(module, HloModule, "an HloModule")
    module.verify()
    trace_of_run = Trace()

    def record(event: Event) -> None:
        if observe is not None:
            observe(event)
        trace_of_run.events.append(event if keep_values else replace(event, operands=(), value=None))

    trace_of_run.result = _TracingEvaluator(module, record).start(bound_arguments(module.entry, arguments))
    return trace_of_run


def first_event(
    module: HloModule, arguments: Sequence[Value], wanted: Callable[[Event], bool]
) -> Event | None:
    """Evaluate a program until an instruction computes a value for which ``wanted`` returns true.

    ``wanted`` is called with the event of each value. Returns that event; None if there is none.
    """
    events: list[Event] = []

    def observe(event: Event) -> None:
        if wanted(event):
            events.append(event)
            raise _Found

    with suppress(_Found):
        trace(module, arguments, keep_values=False, observe=observe)
    return events[0] if events else None


class _Found(Exception):
    """Raised to stop an evaluation at the event that is searched for."""


@dataclass
class _Frame:
    """An instruction that is running its called computations, such as a while loop.

    Attributes:
        instruction: the instruction.
        runs: the number of completed runs of its first called computation; for a loop, the index of the
            current iteration.
    """

    instruction: HloInstruction
    runs: int = 0

    def text(self, computation: HloComputation) -> str:
        """Return the instruction's name, with the iteration or branch in which it is running ``computation``.

        Examples: ``%while.3[iteration 2] ``, ``%conditional[branch 0] ``, ``%call ``.
        """
        name = f"%{self.instruction.name}"
        if isinstance(self.instruction.operation, While):
            is_condition = computation is self.instruction.called_computations[1]
            return f"{name}[{'condition' if is_condition else 'iteration'} {self.runs}] "
        if len(self.instruction.called_computations) > 1:
            return f"{name}[branch {self.instruction.called_computations.index(computation)}] "
        return f"{name} "


class _TracingEvaluator(Evaluator):
    """An evaluator that calls ``record`` with an event for each value that it computes.

    Values in the entry and in computations run by control flow and fusions count, not those in reducers.
    """

    def __init__(self, module: HloModule, record: Callable[[Event], None]) -> None:
        super().__init__()
        self._entry = module.entry
        self._record = record
        self._observed = program_computations(module.entry)
        self._frames: list[_Frame] = []
        self._paths: list[str] = [""]

    def start(self, arguments: Sequence[Value]) -> Value:
        """Record the arguments, run the entry computation, and return its result."""
        for parameter, argument in zip(self._entry.parameters, arguments, strict=True):
            self._report(parameter, (), argument)
        return self.run(self._entry, arguments)

    def evaluation(self, instruction: HloInstruction) -> Callable[..., Any]:
        """Return a function that evaluates an instruction and records its value.

        The value is not recorded if the instruction is in a reducer.
        """
        evaluate = instruction.operation.evaluate
        if instruction.parent not in self._observed:
            return evaluate
        runs = _runs_program(instruction)

        def observed(run: Any, *operands: Any) -> Any:
            if not runs:
                value: Any = evaluate(run, *operands)
            else:
                self._frames.append(_Frame(instruction))
                try:
                    value = evaluate(run, *operands)
                finally:
                    self._frames.pop()
            self._report(instruction, operands, value)
            return value

        return observed

    def call(self, computation: HloComputation, arguments: Sequence[Value]) -> Value:
        """Evaluate a called computation; return its value.

        The events of values in it name the calling instruction among their callers.
        """
        if computation not in self._observed or not self._frames:
            return super().call(computation, arguments)
        frame = self._frames[-1]
        self._paths.append(self._paths[-1] + frame.text(computation))
        try:
            return super().call(computation, arguments)
        finally:
            self._paths.pop()
            frame.runs += computation is frame.instruction.called_computations[0]

    def _report(self, instruction: HloInstruction, operands: tuple[Value, ...], value: Value) -> None:
        statistics = [statistics_of(leaf) for leaf in flat(value)]
        callers = tuple([frame.instruction for frame in self._frames])
        self._record(Event(instruction, callers, self._paths[-1], operands, value, statistics))


def _is_filler(instruction: HloInstruction) -> bool:
    """Return whether an instruction is a constant, or a broadcast, reshape, conversion or copy of one.

    Programs fill arrays with NaN and infinities on purpose; such values are not reported as faults.
    """
    if isinstance(instruction.operation, Constant):
        return True
    moves = isinstance(instruction.operation, Broadcast | Reshape | Convert | Copy)
    return moves and _is_filler(instruction.operands[0])


def _runs_program(instruction: HloInstruction) -> bool:
    return instruction.operation.calls_program or isinstance(instruction.operation, Fusion)


def program_computations(entry: HloComputation) -> set[HloComputation]:
    """Return the entry and all computations that control flow and fusions run, but not reducers."""
    return set(entry.reachable(_runs_program))
