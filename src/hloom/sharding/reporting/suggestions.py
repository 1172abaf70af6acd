"""Suggestions: other shardings, each verified by partitioning again, and reduce-scatters.

Annotated arrays of equal shape and tiling, such as the weights of all layers and their updates, change
together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Final, TypeAlias

from hloom.analysis.origin import op_name, source_line
from hloom.errors import HloError, plural
from hloom.ir.cloning import clone_module
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.sharding import Sharding
from hloom.ir.traits import shape_bytes
from hloom.operations.structure import Parameter
from hloom.records import dataclass
from hloom.regex import regex
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.partitioner import partitioned_program
from hloom.sharding.reading.annotations import Annotations, leaves_of
from hloom.sharding.reading.meshes import coordinate_text, tiling_text
from hloom.sharding.reporting.explanations import Why
from hloom.sharding.reporting.memory import memory_of
from hloom.sharding.reporting.sliced_all_reduces import sliced_dimension
from hloom.sharding.reporting.traffic import Execution, executions
from hloom.sharding.tiling.coordinates import coordinate_along
from hloom.sharding.tiling.tiling import Tiling

_NAME: Final = regex(r"%([\w.-]+)")
_SHOWN: Final = 3
_LEAST: Final = 0.01
"""Fraction of the bytes or of the peak that a suggestion must save."""
_ATTRIBUTE: Final = "xla.sdy.sharding"

Placement: TypeAlias = "tuple[tuple[str, ...], ...]"
"""The axes of each dimension, major first."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a partitioned program, for one device.

    Attributes:
        sent: the bytes that a device sends in a step, which is one run of the program.
        peak: the maximum of live bytes on a device.
    """

    sent: int
    peak: int


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggested change of a program that lowers traffic or memory.

    Attributes:
        kind: "sharding" to change an annotation; "reduce-scatter" to use one in place of an all-reduce.
        text: the suggestion as a sentence.
        instructions: the names of the instructions to change.
        op_name, source: the framework's operation and source line of the first of these instructions.
        before, after: the tilings before and after the change; "" for a reduce-scatter.
        saved_bytes: by how many bytes a device sends less in a step (one run); negative if it sends more.
        saved_memory: by how many bytes the peak of a device's memory is lower; negative if it is higher.
        verified: how the savings were determined: "partitioned again", or "arithmetic".
    """

    kind: str
    text: str
    instructions: tuple[str, ...]
    op_name: str
    source: str
    before: str
    after: str
    saved_bytes: int
    saved_memory: int
    verified: str


@dataclass(slots=True)
class _AnnotationGroup:
    """Annotated arrays of equal shape and tiling; parameters without annotation count as replicated.

    Attributes:
        shape: the global shape of each array.
        tiling: the tiling of each array.
        leaves: the arrays, as (name of the instruction, index of the leaf in its value).
        sent: the bytes that a device sends in a step in the collectives that these annotations cause.
        parameter_bytes: the bytes on a device of those arrays that are entry parameters.
    """

    shape: Shape
    tiling: Tiling
    leaves: dict[tuple[str, int], None] = field(default_factory=dict[tuple[str, int], None])
    sent: int = 0
    parameter_bytes: int = 0


def suggested_shardings(
    module: HloModule,
    devices: int,
    axes: Mapping[str, int],
    needs: Sequence[tuple[Why, int]],
    costs: Costs,
    tries: int,
    crowded: bool = False,
    progress: Callable[[str], None] | None = None,
) -> list[Suggestion]:
    """Return suggestions to change sharding annotations, at most one per group of equally annotated arrays.

    Tries different shardings by partitioning the changed program, and keeps the cheapest one of each group.
    The suggestions are in ascending order of the cost of the changed program.

    Args:
        module: the program.
        devices: the number of devices.
        axes: the sizes of the mesh axes; if empty, all devices are one axis.
        needs: the reason for each collective, and the bytes that a device sends for it in a step.
        costs: the costs of the program as it is.
        tries: the maximum number of programs to partition.
        crowded: True if the program does not fit into memory, so that more traffic is acceptable for less
            memory.
        progress: called with a description of each try.
    """
    named = dict(axes) or {"devices": devices}
    best: dict[int, tuple[Costs, Suggestion]] = {}
    candidates = _candidates(_groups(module, devices, needs), named, tries)
    for attempt, (number, (group, placement)) in enumerate(candidates, 1):
        if progress is not None:
            progress(f"sharding {attempt} of at most {tries}")
        tiling = _tiling(placement, named, devices)
        try:
            changed = _costs(_changed(module, group, tiling), devices)
        except HloError:
            continue  # the partitioner does not support this sharding
        is_best = number not in best or _order(changed) < _order(best[number][0])
        if _is_better(changed, costs, crowded) and is_best:
            best[number] = (changed, _suggestion(module, group, tiling, axes, costs, changed))
    ordered = sorted(best.values(), key=lambda pair: _order(pair[0]))
    return [suggestion for _, suggestion in ordered]


def _costs(module: HloModule, devices: int) -> Costs:
    partitioned = partitioned_program(module, devices)
    executed, _ = executions(partitioned.module, devices)
    sent = sum(execution.sent.bytes * execution.times for execution in executed)
    return Costs(sent, memory_of(partitioned, module).peak_bytes)


def _order(costs: Costs) -> tuple[int, int]:
    return costs.sent, costs.peak


def _is_better(changed: Costs, costs: Costs, crowded: bool) -> bool:
    """Return true if a changed program has significantly lower traffic or peak memory than the original.

    The other of the two must not be higher; but if the program does not fit into memory (``crowded``), less
    memory may cost more traffic. ``changed`` and ``costs`` are the costs of the two programs.
    """
    less_traffic = changed.sent < costs.sent * (1 - _LEAST) and changed.peak <= costs.peak * (1 + _LEAST)
    less_memory = changed.peak < costs.peak * (1 - _LEAST) and (changed.sent <= costs.sent or crowded)
    return less_traffic or less_memory


def _groups(module: HloModule, devices: int, needs: Sequence[tuple[Why, int]]) -> list[_AnnotationGroup]:
    """Group annotated arrays and entry parameters by shape and tiling; sort the groups by traffic.

    The groups are in descending order of the bytes that a device sends in the collectives that the
    annotations cause, those of equal traffic in descending order of the bytes of their parameters.

    Args:
        module: the annotated program.
        devices: the number of devices.
        needs: the reason for each collective, and the bytes that a device sends for it in a step.
    """
    annotations = Annotations(module, devices)
    groups: dict[tuple[str, Tiling], _AnnotationGroup] = {}
    keys_of: dict[str, set[tuple[str, Tiling]]] = {}
    for i in module.instructions():
        annotated = annotations.tilings(i)
        is_parameter = isinstance(i.operation, Parameter) and i.parent is module.entry
        if annotated is None and not is_parameter:
            continue
        tilings = [] if annotated is None else leaves_of(annotated)
        for number, (_, leaf) in enumerate(i.shape.leaves()):
            if not leaf.is_array or not leaf.rank:
                continue
            tiling = tilings[number] if tilings else Tiling.replicated(leaf.rank, devices)
            if tiling.unreduced is not None:
                continue
            key = (leaf.to_string(layout=False), tiling)
            group = groups.setdefault(key, _AnnotationGroup(leaf, tiling))
            group.leaves[i.name, number] = None
            keys_of.setdefault(i.name, set()).add(key)
            if is_parameter:
                group.parameter_bytes += shape_bytes(Shape(leaf.element_type, tiling.local(leaf.dimensions)))
    for why, sent in needs:
        names = {why.value, why.instruction, *(n for o in why.origins for n in _NAME.findall(o))}
        for key in {key for name in names for key in keys_of.get(name, ())}:
            groups[key].sent += sent
    return sorted(groups.values(), key=lambda group: (-group.sent, -group.parameter_bytes))


def _candidates(
    groups: Sequence[_AnnotationGroup], axes: Mapping[str, int], tries: int
) -> Iterator[tuple[int, tuple[_AnnotationGroup, Placement]]]:
    """Yield at most ``tries`` shardings to try, as (group index, (group, mesh axes of each dimension)).

    First comes the first sharding of every group, then the second of every group, and so on.
    """
    queues = [(number, group, list(_placements(group, axes))) for number, group in enumerate(groups)]
    queues = [queue for queue in queues if queue[2]]
    for turn in range(max((len(placements) for _, _, placements in queues), default=0)):
        for number, group, placements in queues:
            if turn < len(placements) and tries > 0:
                tries -= 1
                yield number, (group, placements[turn])


def _placements(group: _AnnotationGroup, axes: Mapping[str, int]) -> Iterator[Placement]:
    """Yield shardings to try in place of a group's sharding, as the mesh axes of each dimension, major first.

    Each adds, moves or removes one mesh axis. ``axes`` are the sizes of the mesh axes, by name.
    """
    coordinates = group.tiling.coordinates
    current = tuple(tuple(coordinate_text(c, axes).split("+")) if c.count > 1 else () for c in coordinates)
    if any(axis not in axes for dimension in current for axis in dimension):
        return  # sub-axes, or tiles in another order
    used = {axis for dimension in current for axis in dimension}
    for axis in axes:
        without = tuple(tuple(a for a in dimension if a != axis) for dimension in current)
        for d in range(len(current)):
            placement = (*without[:d], (*without[d], axis), *without[d + 1 :])
            tiles = math.prod(axes[a] for a in placement[d])
            if placement != current and axes[axis] > 1 and group.shape.dimensions[d] % tiles == 0:
                yield placement
        if axis in used:
            yield without


def _tiling(placement: Placement, axes: Mapping[str, int], devices: int) -> Tiling:
    names, sizes = list(axes), list(axes.values())
    coordinates = tuple(coordinate_along(map(names.index, dimension), sizes) for dimension in placement)
    return Tiling(tuple(coordinate.count for coordinate in coordinates), coordinates, devices)


def _changed(module: HloModule, group: _AnnotationGroup, tiling: Tiling) -> HloModule:
    """Return a copy of a program in which the arrays of an annotation group have the tiling ``tiling``."""
    copy = clone_module(module)
    numbers_of: dict[str, list[int]] = {}
    for name, number in group.leaves:
        numbers_of.setdefault(name, []).append(number)
    originals = {i.name: i for i in module.instructions()}
    for i in copy.instructions():
        if i.name in numbers_of:
            _annotate(i, originals[i.name], numbers_of[i.name], tiling.to_sharding())
    return copy


def _annotate(
    i: HloInstruction, original: HloInstruction, numbers: Sequence[int], sharding: Sharding
) -> None:
    """Set the sharding annotation of some leaves of an instruction.

    Args:
        i: the instruction, in a copy of the program.
        original: the same instruction in the program itself; the other leaves keep its sharding.
        numbers: the indices of the leaves to annotate.
        sharding: the new sharding of these leaves.
    """
    if i.frontend_attributes and _ATTRIBUTE in i.frontend_attributes:
        i.frontend_attributes = {k: v for k, v in i.frontend_attributes.items() if k != _ATTRIBUTE}
    if not i.shape.is_tuple:
        i.sharding = sharding
        return
    count = sum(1 for _ in i.shape.leaves())
    current = original.sharding
    if current is None or current.kind != "tuple":
        elements = [current or Sharding.replicated()] * count
    else:
        elements = list(current.elements)
    for number in numbers:
        elements[number] = sharding
    i.sharding = replace(current or Sharding.replicated(), kind="tuple", elements=tuple(elements), tiles=None)


def _suggestion(
    module: HloModule,
    group: _AnnotationGroup,
    tiling: Tiling,
    axes: Mapping[str, int],
    costs: Costs,
    changed: Costs,
) -> Suggestion:
    names = tuple(dict.fromkeys(name for name, _ in group.leaves))
    by_name = {i.name: i for i in module.instructions()}
    annotated = [by_name[name] for name in names]
    first = next((i for i in annotated if isinstance(i.operation, Parameter)), annotated[0])
    similar = [i for i in annotated if i.opcode == first.opcode]
    shown = list(dict.fromkeys(op_name(i) or f"%{i.name}" for i in similar))
    words = ", ".join(shown[:_SHOWN])
    if len(shown) > _SHOWN:
        words += f" and {len(shown) - _SHOWN} more"
    if len(similar) < len(names):
        words += f", with {plural(len(names) - len(similar), 'other annotation')} of that shape and tiling"
    before, after = tiling_text(group.tiling, axes), tiling_text(tiling, axes)
    return Suggestion(
        "sharding",
        f"{group.shape.to_string(layout=False)} as {after} instead of {before}: {words}",
        names,
        op_name(first),
        source_line(first),
        before,
        after,
        costs.sent - changed.sent,
        costs.peak - changed.peak,
        "partitioned again",
    )


def suggested_reduce_scatters(executed: Sequence[Execution]) -> list[Suggestion]:
    """Return a suggestion for each all-reduce of whose result each device uses only its own slice.

    It suggests a reduce-scatter instead. ``executed`` has the collectives of the program, each with the
    number of its executions.
    """
    suggestions: list[Suggestion] = []
    for execution in executed:
        i = execution.sent.instruction
        d = sliced_dimension(i)
        if d is not None:
            use = f"all-reduce %{i.name}, of which each device uses a slice"
            text = f"reduce-scatter along dimension {d} in place of {use}"
            sent = execution.sent.bytes * execution.times
            saved = sent - sent // 2
            origin = op_name(i), source_line(i)
            suggestions.append(
                Suggestion("reduce-scatter", text, (i.name,), *origin, "", "", saved, 0, "arithmetic")
            )
    return suggestions
