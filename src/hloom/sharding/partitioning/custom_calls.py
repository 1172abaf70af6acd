"""Custom calls that can be cut: by partitioners of their targets, by rules of Shardy, along batches.

A rule names the factors of every dimension, major first; ``ij`` is a dimension that two factors make up::

    xla.sdy.sharding_rule   #sdy.op_sharding_rule<([ij, k], [ijk])->([ijk]) {i=2, j=2, k=2}
                            need_replication={j}, custom>
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, cast

from hloom.errors import HloError
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.sharding_rule import Factor
from hloom.operations.custom_call import CustomCall
from hloom.passes.expand.call_inliner import CallInliner
from hloom.passes.expand.flatten_call_graph import FlattenCallGraph
from hloom.shape.shape import Shape
from hloom.sharding.tiling.tiling import Tiling

Cut: TypeAlias = "tuple[Shape, Tiling]"
"""The shape of a whole array, and how it is cut."""
CallPartitioner: TypeAlias = "Callable[[HloInstruction, Sequence[Cut], Sequence[Cut]], Piece | None]"
"""Takes a call with its operands and its results, as their cuts are proposed."""

CALL_PARTITIONERS: Final[dict[str, CallPartitioner]] = {}
"""Partitioners of calls, by target."""
BATCH_PARTITIONABLE: Final[set[str]] = set()
"""Targets whose calls treat the elements of a batch alike: ``num_batch_dims`` says how many dimensions."""
TILEWISE: Final[set[str]] = set()
"""Targets whose calls each device makes with its tiles of the operands."""

_RULE: Final = re.compile(r"#sdy\.op_sharding_rule<\((.*)\)->\((.*)\) \{([^{}]*)\}(.*)>")
_VALUE: Final = re.compile(r"\[([^\[\]]*)\]")
_FACTOR: Final = re.compile(r"[a-z](?:_\d+)?")
_SIZE: Final = re.compile(r"([a-z](?:_\d+)?)=(\d+)")
_WHOLE: Final = re.compile(r"(?:need_replication|permutation)=\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Piece:
    """The program that each device runs in place of a call.

    Attributes:
        module: its program, of tiles.
        operands, results: how operands and results are cut.
    """

    module: HloModule
    operands: Sequence[Tiling]
    results: Sequence[Tiling]


@dataclass(frozen=True, slots=True)
class RuleFactor:
    """A factor of a rule, with its dimension in each result that has it, by the result's number."""

    factor: Factor
    results: Mapping[int, int]


def rule_of(call: HloInstruction) -> list[RuleFactor]:
    """Return the factors that a call may be cut along; a factor must be the major one of its dimensions.

    Raises HloError by the rule ``sharding.rule`` for a rule that cannot be read.
    """
    text = (call.frontend_attributes or {}).get("xla.sdy.sharding_rule")
    if text is None:
        return []
    found = _RULE.fullmatch(text)
    if found is None:
        message = f"expected ([i, ...], ...)->([i, ...], ...) {{i=SIZE, ...}}, got {text}"
        raise HloError(message, rule="sharding.rule", instruction=call.name)
    sizes = {name: int(size) for name, size in _SIZE.findall(found[3])}
    values = [
        [_FACTOR.findall(d) for d in dimensions.split(",")]
        for side in (found[1], found[2])
        for dimensions in _VALUE.findall(side)
    ]
    minor = {name for dimensions in values for factors in dimensions for name in factors[1:]}
    whole = {name for group in _WHOLE.findall(found[4]) for name in _FACTOR.findall(group)}
    count = len(call.operands)
    factors: list[RuleFactor] = []
    for name, size in sizes.items():
        if name in minor | whole:
            continue
        places = {
            number: d
            for number, dimensions in enumerate(values)
            for d, parts in enumerate(dimensions)
            if parts[:1] == [name]
        }
        operands = {number: d for number, d in places.items() if number < count}
        results = {number - count: d for number, d in places.items() if number >= count}
        factors.append(RuleFactor(Factor(size, operands, results.get(0)), results))
    return factors


def batch_factors(call: HloInstruction, shapes: Sequence[Shape]) -> list[Factor]:
    """Return a factor for each dimension of the batch of a call; none if its target was not registered."""
    operation = cast("CustomCall", call.operation)
    if operation.custom_call_target not in BATCH_PARTITIONABLE:
        return []
    count = int((call.frontend_attributes or {}).get("num_batch_dims", "0"))
    leading = [shape.dimensions[:count] for shape in shapes]
    return [
        Factor(extent, dict.fromkeys(range(len(shapes)), d), d)
        for d, extent in enumerate(min(leading, default=()))
        if all(len(dimensions) > d and dimensions[d] == extent for dimensions in leading)
    ]


def with_local_operands(call: HloInstruction) -> CustomCall:
    """Return the operation of a call for the shapes that its operands have now."""
    operation = cast("CustomCall", call.operation)
    stated = operation.operand_layout_constraints
    if stated is None:
        return operation
    local = tuple(
        Shape(shape.element_type, o.shape.dimensions).with_layout(shape.layout) if shape.is_array else shape
        for shape, o in zip(stated, call.operands, strict=True)
    )
    return replace(operation, operand_layout_constraints=local)


def adopt(module: HloModule, piece: HloModule, channel: Callable[[], int]) -> None:
    """Prepare a piece for a module: what its entry calls becomes part of it, under names of its own."""
    CallInliner().run(piece)
    FlattenCallGraph().run(piece)
    called = {c for i in piece.instructions() for c in i.called_computations}
    channels: dict[int, int] = {}
    for computation in (*called, piece.entry):
        for i in computation.instructions:
            i.name = module.unique_name(i.name)
            if i.metadata is not None and i.metadata.stack_frame_id:
                i.metadata = replace(i.metadata, stack_frame_id=0)  # a frame of the piece's own tables
            number = getattr(i.operation, "channel_id", None)
            if number:
                operation: Any = i.operation
                i.operation = replace(operation, channel_id=channels.setdefault(number, channel()))
        if computation is not piece.entry:
            piece.remove(computation)
            computation.name = module.unique_name(computation.name)
            module.add(computation)
