"""Replacements to consider: other shardings, each tried by partitioning again, and what arithmetic shows.

Annotations of one shape and one tiling change together, as the weights of all layers and their new values do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from hloom.analysis.origin import op_name, source_line
from hloom.errors import HloError
from hloom.ir.cloning import clone_module
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.sharding import Sharding
from hloom.ir.traits import shape_bytes
from hloom.operations.structure import Parameter
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.partitioner import partitioned_program
from hloom.sharding.reading.annotations import Annotations, leaves_of
from hloom.sharding.reading.meshes import cut_text, tiling_text
from hloom.sharding.reporting.explanations import Why
from hloom.sharding.reporting.memory import memory_of
from hloom.sharding.reporting.sliced_all_reduces import sliced_dimension
from hloom.sharding.reporting.traffic import Execution, executions
from hloom.sharding.tiling.coordinates import Column
from hloom.sharding.tiling.tiling import Tiling

_NAME: Final = re.compile(r"%([\w.-]+)")
_SHOWN: Final = 3
_LEAST: Final = 0.01
"""Part of the bytes or of the peak that a suggestion must save."""
_ATTRIBUTE: Final = "xla.sdy.sharding"

Placement: TypeAlias = "tuple[tuple[str, ...], ...]"
"""For each dimension the axes that cut it, major first."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of a program: the bytes that a device sends in a step, and those of its memory's peak."""

    sent: int
    peak: int


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A replacement to consider.

    Attributes:
        kind: "sharding", another annotation; "reduce-scatter" in the place of an all-reduce.
        text: a sentence.
        instructions: the instructions to change.
        op_name, source: of the first of them.
        before, after: the tilings.
        saved_bytes: fewer bytes that a device sends in a step; negative if it sends more.
        saved_memory: fewer bytes at the peak.
        verified: "partitioned again", or "arithmetic".
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
class _Class:
    """Annotations of one shape and one tiling, or parameters of one shape that state none.

    Attributes:
        shape, tiling: those of the whole arrays.
        leaves: the names of the instructions, with the number of the leaf in their value.
        sent: the bytes per step of collectives that follow from them.
        held: the bytes of a device for those that are parameters.
    """

    shape: Shape
    tiling: Tiling
    leaves: dict[tuple[str, int], None] = field(default_factory=dict[tuple[str, int], None])
    sent: int = 0
    held: int = 0


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
    """Return shardings that cost less, those that save the most bytes first, at most one for each class.

    Args:
        module: the program.
        devices: their number.
        axes: the axes of the mesh; without them all devices are one axis.
        needs: why each collective is needed, with the bytes that a device sends for it in a step.
        costs: those of the program as it is.
        tries: the number of programs to partition.
        crowded: the program does not fit: less memory is worth more bytes.
        progress: called with a description of each try.
    """
    named = dict(axes) or {"devices": devices}
    found: dict[int, tuple[Costs, Suggestion]] = {}
    candidates = _candidates(_classes(module, devices, needs), named, tries)
    for attempt, (number, (one, placement)) in enumerate(candidates, 1):
        if progress is not None:
            progress(f"sharding {attempt} of at most {tries}")
        tiling = _tiling(placement, named, devices)
        try:
            made = _costs(_changed(module, one, tiling), devices)
        except HloError:
            continue  # not a program that the partitioner takes
        if _is_better(made, costs, crowded) and (
            number not in found or _order(made) < _order(found[number][0])
        ):
            found[number] = (made, _suggestion(module, one, tiling, axes, costs, made))
    ordered = sorted(found.values(), key=lambda pair: _order(pair[0]))
    return [suggestion for _, suggestion in ordered]


def _costs(module: HloModule, devices: int) -> Costs:
    partitioned = partitioned_program(module, devices)
    executed, _ = executions(partitioned.module, devices)
    sent = sum(one.sent.bytes * one.times for one in executed)
    return Costs(sent, memory_of(partitioned, module).peak_bytes)


def _order(costs: Costs) -> tuple[int, int]:
    return costs.sent, costs.peak


def _is_better(made: Costs, costs: Costs, crowded: bool) -> bool:
    """Return true if costs are lower by more than a trifle, and none is higher."""
    less_sent = made.sent < costs.sent * (1 - _LEAST) and made.peak <= costs.peak * (1 + _LEAST)
    less_held = made.peak < costs.peak * (1 - _LEAST) and (made.sent <= costs.sent or crowded)
    return less_sent or less_held


def _classes(module: HloModule, devices: int, needs: Sequence[tuple[Why, int]]) -> list[_Class]:
    """Return the classes of annotations, those that cause the most bytes first, then the largest."""
    annotations = Annotations(module, devices)
    found: dict[tuple[str, Tiling], _Class] = {}
    of: dict[str, set[tuple[str, Tiling]]] = {}
    for i in module.instructions():
        stated = annotations.stated(i, i.shape)
        is_parameter = isinstance(i.operation, Parameter) and i.parent is module.entry
        if stated is None and not is_parameter:
            continue
        tilings = [] if stated is None else leaves_of(stated)
        for number, (_, leaf) in enumerate(i.shape.leaves()):
            if not leaf.is_array or not leaf.rank:
                continue
            tiling = tilings[number] if tilings else Tiling.replicated(leaf.rank, devices)
            if tiling.summands is not None:
                continue
            key = (leaf.to_string(layout=False), tiling)
            one = found.setdefault(key, _Class(leaf, tiling))
            one.leaves[i.name, number] = None
            of.setdefault(i.name, set()).add(key)
            if is_parameter:
                one.held += shape_bytes(Shape(leaf.element_type, tiling.local(leaf.dimensions)))
    for why, sent in needs:
        names = {why.value, why.instruction, *(n for o in why.origins for n in _NAME.findall(o))}
        for key in {key for name in names for key in of.get(name, ())}:
            found[key].sent += sent
    return sorted(found.values(), key=lambda one: (-one.sent, -one.held))


def _candidates(
    classes: Sequence[_Class], axes: Mapping[str, int], tries: int
) -> Iterator[tuple[int, tuple[_Class, Placement]]]:
    """Yield other placements of axes, the classes in turn: the first ones of each, then the second ones."""
    queues = [(number, one, list(_placements(one, axes))) for number, one in enumerate(classes)]
    queues = [queue for queue in queues if queue[2]]
    for turn in range(max((len(made) for _, _, made in queues), default=0)):
        for number, one, made in queues:
            if turn < len(made) and tries > 0:
                tries -= 1
                yield number, (one, made[turn])


def _placements(one: _Class, axes: Mapping[str, int]) -> Iterator[Placement]:
    """Yield placements in which one axis is added, moved or removed."""
    cuts = [cut_text(c, axes).split("+") if c.count > 1 else [] for c in one.tiling.columns]
    if any(axis not in axes for cut in cuts for axis in cut):
        return  # parts of axes, or tiles in another order
    own = tuple(map(tuple, cuts))
    used = {axis: d for d, cut in enumerate(own) for axis in cut}
    for axis in axes:
        without = tuple(tuple(a for a in cut if a != axis) for cut in own)
        for d in range(len(own)):
            made = (*without[:d], (*without[d], axis), *without[d + 1 :])
            tiles = math.prod(axes[a] for a in made[d])
            if made != own and axes[axis] > 1 and one.shape.dimensions[d] % tiles == 0:
                yield made
        if axis in used:
            yield without


def _tiling(placement: Placement, axes: Mapping[str, int], devices: int) -> Tiling:
    strides: dict[str, int] = {}
    stride = math.prod(axes.values())
    for axis, size in axes.items():
        stride //= size
        strides[axis] = stride
    columns = tuple(Column.along([(strides[a], axes[a]) for a in cut], devices) for cut in placement)
    return Tiling(tuple(column.count for column in columns), columns, devices)


def _changed(module: HloModule, one: _Class, tiling: Tiling) -> HloModule:
    """Return a copy of a program in which a class of annotations states another tiling."""
    copy = clone_module(module)
    wanted: dict[str, list[int]] = {}
    for name, number in one.leaves:
        wanted.setdefault(name, []).append(number)
    given = {i.name: i for i in module.instructions()}
    for i in copy.instructions():
        if i.name in wanted:
            _annotate(i, given[i.name], wanted[i.name], tiling.to_sharding())
    return copy


def _annotate(i: HloInstruction, given: HloInstruction, numbers: Sequence[int], sharding: Sharding) -> None:
    """State a sharding for some leaves of a value."""
    if i.frontend_attributes and _ATTRIBUTE in i.frontend_attributes:
        i.frontend_attributes = {k: v for k, v in i.frontend_attributes.items() if k != _ATTRIBUTE}
    if not i.shape.is_tuple:
        i.sharding = sharding
        return
    count = sum(1 for _ in i.shape.leaves())
    own = given.sharding
    if own is None or own.kind != "tuple":
        elements = [own or Sharding.replicated()] * count
    else:
        elements = list(own.elements)
    for number in numbers:
        elements[number] = sharding
    i.sharding = replace(own or Sharding.replicated(), kind="tuple", elements=tuple(elements), tiles=None)


def _suggestion(
    module: HloModule, one: _Class, tiling: Tiling, axes: Mapping[str, int], costs: Costs, made: Costs
) -> Suggestion:
    names = tuple(dict.fromkeys(name for name, _ in one.leaves))
    given = {i.name: i for i in module.instructions()}
    first = next((given[n] for n in names if isinstance(given[n].operation, Parameter)), given[names[0]])
    kin = [name for name in names if given[name].opcode == first.opcode]
    shown = list(dict.fromkeys(op_name(given[name]) or f"%{name}" for name in kin))
    words = ", ".join(shown[:_SHOWN])
    if len(shown) > _SHOWN:
        words += f" and {len(shown) - _SHOWN} more"
    if len(kin) < len(names):
        words += f", with {len(names) - len(kin)} other annotations of that shape and tiling"
    before, after = tiling_text(one.tiling, axes), tiling_text(tiling, axes)
    return Suggestion(
        "sharding",
        f"{one.shape.to_string(layout=False)} as {after} instead of {before}: {words}",
        names,
        op_name(first),
        source_line(first),
        before,
        after,
        costs.sent - made.sent,
        costs.peak - made.peak,
        "partitioned again",
    )


def scatters(executed: Sequence[Execution]) -> list[Suggestion]:
    """Return the all-reduces of which devices use only a part each, and what a reduce-scatter saves."""
    found: list[Suggestion] = []
    for one in executed:
        i = one.sent.instruction
        d = sliced_dimension(i)
        if d is not None:
            text = f"reduce-scatter along dimension {d} in the place of all-reduce %{i.name}, of which each "
            text += "device takes a part"
            saved = one.sent.bytes * one.times - one.sent.bytes * one.times // 2
            origin = op_name(i), source_line(i)
            found.append(
                Suggestion("reduce-scatter", text, (i.name,), *origin, "", "", saved, 0, "arithmetic")
            )
    return found
