"""Data of the memory tab: the buffers of a compiled program over its schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloom.buffers.assignment import Assignment
from hloom.buffers.buffers import Buffer
from hloom.ir.instruction import HloInstruction


def memory_data(assignment: Assignment) -> dict[str, object]:
    """Return the temporary buffers in the arena, and the total sizes of all other buffers by kind.

    A buffer is a list: offset and size in bytes, live spans in half steps of the schedule, and values. A
    value is an instruction, its position in the schedule, and its part: the index of a tuple's element, or
    "workspace". The instruction at position p reads at half step 2p and writes at 2p + 1.
    """
    contents: dict[Buffer, list[tuple[HloInstruction, str]]] = {}
    fixed: dict[Buffer, None] = {}
    for instruction, values in assignment.values.items():
        for buffer, index in {value.find(): index for index, value in reversed(values.items())}.items():
            if buffer.kind == "temp":
                contents.setdefault(buffer, []).append((instruction, ", ".join(map(str, index))))
            else:
                fixed[buffer.memory] = None
    for instruction, buffer in assignment.workspaces.items():
        if buffer.find().kind == "temp":
            contents.setdefault(buffer.find(), []).append((instruction, "workspace"))
    fixed |= {copy.target.find(): None for copy in assignment.results}
    positions = assignment.positions
    return {
        "arena": assignment.temp_bytes,
        "steps": max(positions.values(), default=0),
        "schedule": [i.name for i in sorted(positions, key=lambda i: positions[i])],
        "positions": sorted(positions.values()),
        "fixed": {kind: sum(b.size for b in fixed if b.kind == kind) for kind in _FIXED},
        "buffers": [
            [b.offset, b.size, _disjoint(b.spans), [[i.name, positions[i], part] for i, part in users]]
            for b, users in sorted(contents.items(), key=lambda item: item[0].offset)
            if b.size and b.spans
        ],
    }


def _disjoint(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ascending spans with those that overlap joined; the values of a merged buffer may hand over."""
    joined: list[tuple[int, int]] = []
    for first, last in spans:
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    return joined


_FIXED: Final = ("argument", "result", "constant", "stack")
