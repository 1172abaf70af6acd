"""`hloom stats`: count instructions, operations and bytes of a program."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hloom.analysis.cost import Breakdown, Cost, module_cost
from hloom.ir.cloning import clone_module
from hloom.ir.module import HloModule
from hloom.operations.structure import Constant, Parameter
from hloom.passes.expand.flatten_call_graph import FlattenCallGraph
from hloom.passes.loops.while_loop_trip_count_annotator import WhileLoopTripCountAnnotator
from hloom.shape.shape import Shape


@dataclass
class ModuleStatistics:
    """Counts of a module; bytes include the padding of layouts."""

    name: str
    instructions: int
    computations: int
    opcodes: Counter[str]
    cost: Cost
    breakdown: Breakdown
    parameters: list[tuple[str, Shape, int]]
    result: Shape
    result_bytes: int
    constant_bytes: int
    largest: list[tuple[str, Shape, int]] = field(default_factory=list[tuple[str, Shape, int]])


def statistics_of(module: HloModule) -> ModuleStatistics:
    """Count the instructions, costs and bytes of a module."""
    counted = _with_trip_counts(module)
    breakdown = Breakdown()
    breakdown.add(counted.entry)
    instructions = list(module.instructions())
    parameters = [(p.name, p.shape, byte_size(p.shape)) for p in module.entry.parameters]
    entry = [
        i for i in module.entry.instructions if i.shape.is_array and not isinstance(i.operation, Parameter)
    ]
    entry.sort(key=lambda i: -byte_size(i.shape))
    return ModuleStatistics(
        name=module.name,
        instructions=len(instructions),
        computations=len(module.computations),
        opcodes=Counter(i.opcode for i in instructions),
        cost=module_cost(counted),
        breakdown=breakdown,
        parameters=parameters,
        result=module.entry.root.shape,
        result_bytes=byte_size(module.entry.root.shape),
        constant_bytes=sum(byte_size(i.shape) for i in instructions if isinstance(i.operation, Constant)),
        largest=[(i.name, i.shape, byte_size(i.shape)) for i in entry[:5]],
    )


def _with_trip_counts(module: HloModule) -> HloModule:
    """Return a copy annotated with the trip counts of its loops; they take precedence over hints."""
    copy = clone_module(module)
    FlattenCallGraph().run(copy)
    WhileLoopTripCountAnnotator().run(copy)
    return copy


def byte_size(shape: Shape) -> int:
    """Return the bytes of a value, 0 if its size is unbounded."""
    return 0 if shape.is_unbounded else shape.byte_size


def quantity(number: float, unit: str = "") -> str:
    """Return a number with a decimal prefix: 12.3 M."""
    for factor, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= factor:
            return f"{number / factor:.3g} {letter}{unit}"
    return f"{number:.3g} {unit}".rstrip()


def statistics_text(found: ModuleStatistics, style: Any) -> str:
    """Return the report; `style(text, role)` colors titles and dim text."""
    lines = [
        style(found.name, "title"),
        f"  {found.instructions} instructions in {found.computations} computations",
        "  " + _cost_words(found),
        f"  parameters {quantity(sum(size for _, _, size in found.parameters), 'B')}, "
        f"result {quantity(found.result_bytes, 'B')}, constants {quantity(found.constant_bytes, 'B')}",
        "",
        style("Operations", "title"),
        *_opcode_lines(found, style),
        "",
        style("Parameters", "title"),
        *_size_lines(found.parameters[:12]),
        *([f"  ... and {len(found.parameters) - 12} more"] if len(found.parameters) > 12 else []),
        "",
        style("Largest values of the entry", "title"),
        *_size_lines(found.largest),
    ]
    return "\n".join(lines) + "\n"


def _cost_words(found: ModuleStatistics) -> str:
    cost, loops, calls = found.cost, found.breakdown.unknown_loops, found.breakdown.unknown_calls
    words = f"{quantity(cost.flops, 'flop')}, {quantity(cost.transcendentals)} transcendental functions, "
    words += f"{quantity(cost.bytes, 'B')} read and written"
    if loops:
        words += f"; {_plural(loops, 'loop')} of unknown trip count counted as one iteration"
    return words + (f"; {_plural(calls, 'custom call')} not counted" if calls else "")


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}"


def _opcode_lines(found: ModuleStatistics, style: Any) -> list[str]:
    rows: list[str] = []
    most = max(found.opcodes.values(), default=1)
    for opcode, count in found.opcodes.most_common():
        cost = found.breakdown.by_opcode.get(opcode, Cost())
        amounts = [quantity(cost.flops, "flop")] if cost.flops else []
        if cost.transcendentals:
            amounts.append(f"{quantity(cost.transcendentals)} transcendental")
        if cost.bytes:
            amounts.append(quantity(cost.bytes, "B"))
        bar = "▇" * max(1, round(20 * count / most))
        rows.append(f"  {opcode:26} {count:6}  {style(bar.ljust(20), 'dim')}  {'  '.join(amounts)}".rstrip())
    return rows


def _size_lines(values: list[tuple[str, Shape, int]]) -> list[str]:
    width = max((len(name) for name, _, _ in values), default=0)
    return [f"  {name.ljust(width)}  {quantity(size, 'B'):>9}  {shape}" for name, shape, size in values]
