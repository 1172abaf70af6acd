"""Data of a program in the page: columns over its instructions, in the order of the printed text.

Opcodes, shapes, op_names, source lines and shardings are stored once in a table; a column has their numbers.
Attributes are not stored: the page reads them from the text.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

from hloom.analysis.cost import instruction_cost, loop_count
from hloom.analysis.trip_count import TripCount
from hloom.ir.cloning import clone_module
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.stack_frames import StackFrames
from hloom.operations.control_flow import Fusion, While
from hloom.passes.loops.while_loop_trip_count_annotator import WhileLoopTripCountAnnotator
from hloom.records import dataclass
from hloom.tools.reports.statistics import byte_size


@dataclass(frozen=True, slots=True)
class Stage:
    """A program in the page, at one point of its compilation.

    Attributes:
        title: the program's name, or the last pass.
        data: the result of `program_data`.
        program: the name of the program in a folder of dumps; stages with equal names are compared.
        rewrites: descriptions of the pass's rewrites, in order.
        states: the data of the program after each rewrite but the last; empty if they would be too large.
    """

    title: str
    data: dict[str, Any]
    program: str = ""
    rewrites: tuple[str, ...] = ()
    states: tuple[dict[str, object], ...] = ()


def stage_of(
    module: HloModule,
    title: str,
    *,
    program: str = "",
    rewrites: Sequence[str] = (),
    states: Sequence[dict[str, object]] = (),
) -> Stage:
    """Return a stage of a program in its present state."""
    return Stage(title, program_data(module), program, tuple(rewrites), tuple(states))


class StringTable:
    """Distinct texts, numbered by first use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """Return the number of a text, which is added if it is new."""
        return self._numbers.setdefault(text, len(self._numbers))

    def column(self, texts: Iterable[str]) -> dict[str, list[Any]]:
        """Return a column: the table of texts, and the number of each row's text."""
        numbers = [self.number(text) for text in texts]
        return {"table": list(self._numbers), "numbers": numbers}


def program_data(module: HloModule) -> dict[str, object]:
    """Return the data of a program, which `program.js` reads."""
    with _trip_counts(module):
        return _columns(module)


def _columns(module: HloModule) -> dict[str, object]:
    orders = {c: c.execution_order() for c in module.post_order()}
    instructions = [i for order in orders.values() for i in order]
    numbers = {i: number for number, i in enumerate(instructions)}
    fused = {c for i in instructions if isinstance(i.operation, Fusion) for c in i.called_computations}
    costs = [instruction_cost(i) for i in instructions]
    sources = [_source(i) for i in instructions]
    return {
        "name": module.name,
        "text": module.to_text(),
        "computations": _computations(module, orders, numbers),
        "names": [i.name for i in instructions],
        "opcode": StringTable().column(i.opcode for i in instructions),
        "shape": StringTable().column(str(i.shape) for i in instructions),
        "scope": StringTable().column(i.metadata.op_name if i.metadata else "" for i in instructions),
        "source": StringTable().column(sources),
        "sharding": StringTable().column(i.sharding.text() if i.sharding else "" for i in instructions),
        "operandCount": [len(i.operands) for i in instructions],
        "operands": [numbers[o] for i in instructions for o in i.operands],
        "control": [[numbers[p], numbers[i]] for i in instructions for p in i.control_predecessors],
        "calls": list(_calls(instructions, {c: n for n, c in enumerate(orders)}, numbers)),
        "trips": [
            [numbers[i], loop_count(i).iterations] for i in instructions if isinstance(i.operation, While)
        ],
        "flops": [round(cost.flops) for cost in costs],
        "transcendentals": [round(cost.transcendentals) for cost in costs],
        "bytes": [0 if i.parent in fused else round(c.bytes) for i, c in zip(instructions, costs)],
        "size": [byte_size(i.shape) for i in instructions],
        "frame": [i.metadata.stack_frame_id if i.metadata else 0 for i in instructions],
        "frames": _frames(module.config.stack_frames),
    }


@contextmanager
def _trip_counts(module: HloModule) -> Generator[None]:
    """Annotate loops with their proved trip counts while the context is active.

    The analysis runs on a copy, because it rewrites the loops' states. Later passes may change the loops, so
    the annotations are removed at the end.
    """
    loops = [i for i in module.instructions() if isinstance(i.operation, While)]
    trip_counts: dict[str, TripCount] = {}
    if loops:
        copy = clone_module(module)
        WhileLoopTripCountAnnotator().run(copy)
        counts = ((i.name, i.annotation(TripCount)) for i in copy.instructions())
        trip_counts = {name: count for name, count in counts if count is not None}
    before = {loop: loop.annotations for loop in loops}
    try:
        for loop in loops:
            if loop.name in trip_counts:
                loop.annotate(trip_counts[loop.name])
        yield
    finally:
        for loop, annotations in before.items():
            loop.annotations = annotations


def _computations(
    module: HloModule,
    orders: dict[HloComputation, list[HloInstruction]],
    numbers: dict[HloInstruction, int],
) -> list[dict[str, object]]:
    return [
        {
            "name": computation.name,
            "count": len(order),
            "root": numbers[computation.root],
            "entry": computation is module.entry,
        }
        for computation, order in orders.items()
    ]


def _calls(
    instructions: Iterable[HloInstruction],
    computations: dict[HloComputation, int],
    numbers: dict[HloInstruction, int],
) -> Iterable[list[Any]]:
    """Yield each call: caller, role of the callee, callee, and whether it is drawn inside the caller.

    Callees such as reducers and comparators are not drawn.
    """
    for i in instructions:
        if i.called_computations:
            for role, called in i.operation.role_of(i):
                nested = i.operation.calls_program or isinstance(i.operation, Fusion)
                yield from ([numbers[i], role.name, computations[c], nested] for c in called)


def _source(i: HloInstruction) -> str:
    metadata = i.metadata
    if metadata is None or not metadata.source_file:
        return ""
    return f"{metadata.source_file}:{metadata.source_line}"


def _frames(frames: StackFrames) -> list[list[Any]]:
    """Return each stack frame as its function, its source line, and the number of its caller (0: none)."""
    rows: list[list[object]] = []
    for frame in frames.frames:
        location = frames.file_locations[frame.file_location_id - 1]
        file = _entry(frames.file_names, location.file_name_id)
        function = _entry(frames.function_names, location.function_name_id)
        rows.append([function, f"{file}:{location.line}", frame.parent_frame_id])
    return rows


def _entry(names: tuple[str, ...], number: int) -> str:
    return names[number - 1] if 0 < number <= len(names) else "?"
