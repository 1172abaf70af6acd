"""Report of a buffer assignment in XLA's format."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from hloom.buffers.assignment import Assignment
from hloom.buffers.buffers import Buffer, leaves
from hloom.ir.module import HloModule
from hloom.records import dataclass

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(slots=True)
class _Allocation:
    """An allocation, and the report lines of the values in it."""

    size: int
    kind: str
    values: list[str] = field(default_factory=list[str])


def buffer_report(module: HloModule, assignment: Assignment) -> str:
    """Return the allocations of a program, largest first, each with its values and their offsets."""
    allocations = _allocations(module, assignment)
    ordered = sorted(allocations.values(), key=lambda a: -a.size)
    lines = ["BufferAssignment:"]
    for number, allocation in enumerate(ordered):
        lines += [f"allocation {number}: size {allocation.size}, {allocation.kind}:", *allocation.values]
    total = sum(a.size for a in ordered)
    lines += ["", f"Total bytes used: {total} ({human_bytes(total)})", ""]
    return "\n".join(lines)


def human_bytes(size: int) -> str:
    """Return a number of bytes in the largest binary unit below it, such as ``10.8KiB``."""
    number, unit = float(size), "B"
    for larger in _UNITS:
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{size}B" if unit == "B" else f"{number:.1f}{unit}"


def _allocations(module: HloModule, assignment: Assignment) -> dict[tuple[str, int], _Allocation]:
    """Return the allocations: one per argument, result and constant, and one for the arena."""
    kinds = {("argument", n): kind for n, kind in enumerate(_argument_kinds(module))}
    allocations: dict[tuple[str, int], _Allocation] = {}
    seen: set[Buffer] = set()
    number = 0

    def add(what: str, buffer: Buffer, shape: str) -> None:
        nonlocal number
        home = buffer.memory
        if buffer in seen or not home.size:
            return
        seen.add(buffer)
        temporary = home.kind == "temp"
        key = (home.kind, 0 if temporary else home.number)
        words = {"temp": "preallocated-temp", "result": "maybe-live-out"}.get(home.kind, home.kind)
        size = assignment.temp_bytes if temporary else home.size
        allocation = allocations.setdefault(key, _Allocation(size, kinds.get(key, words)))
        location = f"(size={buffer.size},offset={home.offset if temporary else 0})"
        allocation.values.append(f" value: <{number} {what} @0> {location}: {shape}")
        number += 1

    for instruction, values in assignment.values.items():
        shapes = dict(leaves(instruction.shape))
        for index, buffer in values.items():
            at = "{" + ",".join(map(str, index)) + "}" if index else ""
            add(f"{instruction.name}{at}", buffer, str(shapes[index]))
        scratch = assignment.workspaces.get(instruction)
        if scratch is not None:
            add(f"{instruction.name} workspace", scratch, f"u8[{scratch.size}]{{0}}")
    for copy in assignment.results:
        if copy.source.find() is not copy.target.find():
            add(f"result {copy.target.number}", copy.target, f"u8[{copy.target.size}]{{0}}")
    return allocations


def _argument_kinds(module: HloModule) -> list[str]:
    """Return the kind of each parameter leaf in the report."""
    kinds: list[str] = []
    for parameter in module.entry.parameters:
        number: int = parameter.operation.parameter_number  # type: ignore[attr-defined]
        for index, shape in leaves(parameter.shape):
            at = "{" + ",".join(map(str, index)) + "}"
            kinds.append(f"parameter {number}, shape |{shape.to_string(layout=False)}| at ShapeIndex {at}")
    return kinds
