"""`hloom stats`: count instructions, operations and bytes of a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from typing import Any, Final

from hloom.analysis.cost import Breakdown, Cost, module_cost
from hloom.analysis.origin import scope_parts
from hloom.errors import plural
from hloom.ir.cloning import clone_module
from hloom.ir.module import HloModule
from hloom.operations.structure import Constant, Parameter
from hloom.passes.expand.flatten_call_graph import FlattenCallGraph
from hloom.passes.loops.while_loop_trip_count_annotator import WhileLoopTripCountAnnotator
from hloom.records import dataclass
from hloom.shape.shape import Shape
from hloom.tools.reports.amounts import quantity
from hloom.tools.reports.padding import PaddedArray, padded_arrays
from hloom.visible import visible_line

_MOST_ROWS: Final = 12


@dataclass
class ModuleStatistics:
    """Counts of a module's instructions, operations and bytes; bytes include the padding of layouts."""

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
    padded: list[PaddedArray] = field(default_factory=list[PaddedArray])

    def by_scope(self, depth: int = 3) -> dict[str, Cost]:
        """Return the costs by scope: the first `depth` parts of op_names; empty for those without one."""
        costs: dict[str, Cost] = {}
        for op_name, cost in self.breakdown.by_op_name.items():
            scope = "/".join(scope_parts(op_name)[:depth])
            costs[scope] = costs.get(scope, Cost()) + cost
        return costs


def statistics_of(module: HloModule) -> ModuleStatistics:
    """Count the instructions, operations and bytes of a module."""
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
        padded=padded_arrays(module),
    )


def _with_trip_counts(module: HloModule) -> HloModule:
    """Return a copy of a module annotated with the trip counts of loops, which override known_trip_count."""
    copy = clone_module(module)
    FlattenCallGraph().run(copy)
    WhileLoopTripCountAnnotator().run(copy)
    return copy


def byte_size(shape: Shape) -> int:
    """Return the size of a value in bytes; 0 if it is unbounded."""
    return 0 if shape.is_unbounded else shape.byte_size


def statistics_json(found: ModuleStatistics) -> dict[str, object]:
    """Return all counts as JSON data; sizes are in bytes, costs are of one execution."""
    breakdown = found.breakdown
    return {
        "name": found.name,
        "instructions": found.instructions,
        "computations": found.computations,
        "cost": asdict(found.cost),
        "opcodes": {
            opcode: {"count": count, **asdict(breakdown.by_opcode.get(opcode, Cost()))}
            for opcode, count in found.opcodes.most_common()
        },
        "op_names": {name: asdict(cost) for name, cost in breakdown.by_op_name.items()},
        "source_lines": {line: asdict(cost) for line, cost in breakdown.by_source.items()},
        "loops": [asdict(loop) for loop in breakdown.loops],
        "custom_calls_not_counted": breakdown.unknown_calls,
        "parameters": [[name, str(shape), size] for name, shape, size in found.parameters],
        "result": [str(found.result), found.result_bytes],
        "constant_bytes": found.constant_bytes,
        "padded": [[p.name, str(p.shape), p.size, p.padding] for p in found.padded],
    }


ORDERS: Final[dict[str, Callable[[Cost], float]]] = {
    "cost": lambda cost: cost.weight,
    "flops": lambda cost: cost.flops + cost.transcendentals,
    "bytes": lambda cost: cost.bytes,
}
"""Sort keys of the tables of costs, by the names of `hloom stats --sort`."""


def statistics_text(found: ModuleStatistics, style: Any, depth: int = 3, order: str = "cost") -> str:
    """Return the statistics as text.

    Args:
        style: colors a text by its role: title or dim.
        depth: depth of op_name scopes.
        order: a key of `ORDERS`.
    """
    weight = ORDERS[order]
    lines = [
        style(visible_line(found.name), "title"),
        f"  {plural(found.instructions, 'instruction')} in {plural(found.computations, 'computation')}",
        "  " + _cost_words(found),
        f"  parameters {quantity(sum(size for _, _, size in found.parameters), 'B')}, "
        f"result {quantity(found.result_bytes, 'B')}, constants {quantity(found.constant_bytes, 'B')}",
        "",
        style("Operations", "title"),
        *_opcode_lines(found, style, weight),
        "",
        style("Parameters", "title"),
        *_size_lines(found.parameters[:12]),
        *([f"  ... and {len(found.parameters) - 12} more"] if len(found.parameters) > 12 else []),
        "",
        style("Largest values of the entry", "title"),
        *_size_lines(found.largest),
        *_cost_section("Scopes of op_names", found.by_scope(depth), style, weight),
        *_cost_section("Source lines", found.breakdown.by_source, style, weight),
        *_loop_lines(found, style),
        *_padding_lines(found, style),
    ]
    return "\n".join(lines) + "\n"


def _cost_words(found: ModuleStatistics) -> str:
    cost, loops, calls = found.cost, found.breakdown.unknown_loops, found.breakdown.unknown_calls
    words = cost_words(cost)
    if loops:
        words += f"; {plural(loops, 'loop')} of unknown trip count counted as one iteration"
    return words + (f"; {plural(calls, 'custom call')} not counted" if calls else "")


def cost_words(cost: Cost) -> str:
    """Describe a cost: flops, transcendental functions, bytes."""
    functions = f"{quantity(cost.transcendentals)} transcendental functions"
    return f"{quantity(cost.flops, 'flop')}, {functions}, {quantity(cost.bytes, 'B')} read and written"


def _opcode_lines(found: ModuleStatistics, style: Any, weight: Callable[[Cost], float]) -> list[str]:
    """Return a line for each opcode, the most expensive first, with a bar for its share of the cost."""
    rows: list[str] = []
    costs = {opcode: found.breakdown.by_opcode.get(opcode, Cost()) for opcode in found.opcodes}
    total = sum(map(weight, costs.values())) or 1.0
    for opcode in sorted(costs, key=lambda name: (-weight(costs[name]), -found.opcodes[name], name)):
        share = weight(costs[opcode]) / total
        bar = "▇" * max(1, round(20 * share)) if share else ""
        amounts = "  ".join(_amounts(costs[opcode]))
        rows.append(
            f"  {opcode:26} {found.opcodes[opcode]:6}  {style(bar.ljust(20), 'dim')}  {amounts}".rstrip()
        )
    return rows


def _size_lines(values: list[tuple[str, Shape, int]]) -> list[str]:
    width = max((len(name) for name, _, _ in values), default=0)
    names = (visible_line(name).ljust(width) for name, _, _ in values)
    return [f"  {n}  {quantity(size, 'B'):>9}  {shape}" for n, (_, shape, size) in zip(names, values)]


def _amounts(cost: Cost) -> list[str]:
    amounts = [quantity(cost.flops, "flop")] if cost.flops else []
    if cost.transcendentals:
        amounts.append(f"{quantity(cost.transcendentals)} transcendental")
    if cost.bytes:
        amounts.append(quantity(cost.bytes, "B"))
    return amounts


def _cost_section(
    title: str, costs: Mapping[str, Cost], style: Any, weight: Callable[[Cost], float]
) -> list[str]:
    """Return a section with the most expensive entries of a table of costs."""
    if not any(costs):
        return []
    ordered = sorted(costs.items(), key=lambda entry: (-weight(entry[1]), -entry[1].bytes))
    rows = [(visible_line(key) or "(none)", cost) for key, cost in ordered if cost != Cost()]
    width = min(60, max((len(key) for key, _ in rows[:_MOST_ROWS]), default=0))
    lines = ["", style(title, "title")]
    lines += [f"  {key.ljust(width)}  {'  '.join(_amounts(cost))}" for key, cost in rows[:_MOST_ROWS]]
    return lines + ([f"  ... and {len(rows) - _MOST_ROWS} more"] if len(rows) > _MOST_ROWS else [])


def _loop_lines(found: ModuleStatistics, style: Any) -> list[str]:
    loops = found.breakdown.loops
    if not loops:
        return []
    lines = ["", style("Loops", "title")]
    for loop in loops[:_MOST_ROWS]:
        words = "unknown trip count" if loop.iterations is None else plural(loop.iterations, "iteration")
        if loop.iterations is not None and not loop.proved:
            words += ", by known_trip_count alone"
        if loop.proved and loop.hint not in (None, loop.iterations):
            words += f"; known_trip_count says {loop.hint}"
        lines.append(f"  {loop.name}  {words}")
    return lines + ([f"  ... and {len(loops) - _MOST_ROWS} more"] if len(loops) > _MOST_ROWS else [])


def _padding_lines(found: ModuleStatistics, style: Any) -> list[str]:
    """Return a section with the arrays that have the most padding."""
    if not found.padded:
        return []
    total, padding = sum(p.size for p in found.padded), sum(p.padding for p in found.padded)
    lines = ["", style("Padding of layouts", "title")]
    lines.append(
        f"  {quantity(padding, 'B')} of {quantity(total, 'B')} in {plural(len(found.padded), 'array')}"
    )
    for array in found.padded[:_MOST_ROWS]:
        share = f"{100 * array.padding / array.size:.3g} %"
        lines.append(f"  {array.name}  {quantity(array.padding, 'B')}, {share} of {array.shape}")
    return lines


def copies_text(module: HloModule) -> str:
    """Return a line for each array that the compiled program copies because its old value is needed."""
    from hloom.buffers.copies import array_copies
    from hloom.codegen.target import host
    from hloom.cpu.jit.compilation import optimize
    from hloom.cpu.program import KERNELS, assign_program
    from hloom.plan.kernel import plan_program

    optimized = optimize(module)
    copies = array_copies(assign_program(optimized, plan_program(optimized, KERNELS, host())))
    lines = [f"{copy.instruction} {copy}" for copy in copies]
    return "".join(f"{line}\n" for line in lines or ["no array is copied"])
