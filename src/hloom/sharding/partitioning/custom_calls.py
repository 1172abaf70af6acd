"""Sharding of custom calls: registered partitioners, Shardy's sharding rules, batch dimensions.

A rule names the factors of each dimension, major first; ``ij`` is a dimension of two factors::

    xla.sdy.sharding_rule   #sdy.op_sharding_rule<([ij, k], [ijk])->([ijk]) {i=2, j=2, k=2}
                            need_replication={j}, custom>
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, cast

from hloom.errors import HloError
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.sharding_rule import Factor
from hloom.operations.custom_call import CustomCall
from hloom.passes.expand.call_inliner import CallInliner
from hloom.passes.expand.flatten_call_graph import FlattenCallGraph
from hloom.records import dataclass
from hloom.regex import regex
from hloom.shape.shape import Shape
from hloom.sharding.tiling.tiling import Tiling

ShardedShape: TypeAlias = "tuple[Shape, Tiling]"
"""A global shape and its tiling."""
CallPartitioner: TypeAlias = (
    "Callable[[HloInstruction, Sequence[ShardedShape], Sequence[ShardedShape]], LocalProgram | None]"
)
"""Returns the local program for a call, operands and results; None to replace the call by its operand."""

CALL_PARTITIONERS: Final[dict[str, CallPartitioner]] = {}
"""Registered partitioners, by call target."""
BATCH_PARTITIONABLE: Final[set[str]] = set()
"""Call targets with leading batch dimensions; the frontend attribute ``num_batch_dims`` has their number."""
TILEWISE: Final[set[str]] = set()
"""Call targets that every device calls with its tiles, without resharding."""

_RULE: Final = regex(r"#sdy\.op_sharding_rule<\((.*)\)->\((.*)\) \{([^{}]*)\}(.*)>")
_VALUE: Final = regex(r"\[([^\[\]]*)\]")
_FACTOR: Final = regex(r"[a-z](?:_\d+)?")
_SIZE: Final = regex(r"([a-z](?:_\d+)?)=(\d+)")
_REPLICATED: Final = regex(r"(?:need_replication|permutation)=\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class LocalProgram:
    """The program that each device runs in place of a custom call on global arrays.

    Attributes:
        module: the program, whose parameters and results are tiles.
        operands, results: the tilings that the operands must have, and those that the results have.
    """

    module: HloModule
    operands: Sequence[Tiling]
    results: Sequence[Tiling]


@dataclass(frozen=True, slots=True)
class RuleFactor:
    """A factor (index) of a custom call, as stated by the call's Shardy sharding rule.

    Attributes:
        factor: the size of the factor, and for each operand the dimension that it indexes.
        results: for each result that the factor indexes, by result index, the dimension.
    """

    factor: Factor
    results: Mapping[int, int]


def rule_of(call: HloInstruction) -> list[RuleFactor]:
    """Return those factors of a custom call's Shardy sharding rule that can be sharded.

    A factor is an index that dimensions of operands and results share. It can be sharded if it is the major
    factor of each dimension that it indexes, and the rule does not require its replication or permutation.
    Returns an empty list for a call without rule. Raises HloError (rule ``sharding.rule``) if the sharding
    rule is malformed.
    """
    text = (call.frontend_attributes or {}).get("xla.sdy.sharding_rule")
    if text is None:
        return []
    rule = _RULE.fullmatch(text)
    if rule is None:
        message = f"expected ([i, ...], ...)->([i, ...], ...) {{i=SIZE, ...}}, got {text}"
        raise HloError(message, rule="sharding.rule", instruction=call.name)
    sizes = {name: int(size) for name, size in _SIZE.findall(rule[3])}
    values = [
        [_FACTOR.findall(d) for d in dimensions.split(",")]
        for side in (rule[1], rule[2])
        for dimensions in _VALUE.findall(side)
    ]
    minor = {name for dimensions in values for factors in dimensions for name in factors[1:]}
    replicated = {name for group in _REPLICATED.findall(rule[4]) for name in _FACTOR.findall(group)}
    count = len(call.operands)
    factors: list[RuleFactor] = []
    for name, size in sizes.items():
        if name in minor | replicated:
            continue
        dimension_of = {
            number: d
            for number, dimensions in enumerate(values)
            for d, parts in enumerate(dimensions)
            if parts[:1] == [name]
        }
        operands = {number: d for number, d in dimension_of.items() if number < count}
        results = {number - count: d for number, d in dimension_of.items() if number >= count}
        factors.append(RuleFactor(Factor(size, operands, results.get(0)), results))
    return factors


def batch_factors(call: HloInstruction, shapes: Sequence[Shape]) -> list[Factor]:
    """Return a factor (shardable index) for each batch dimension that all operands of a custom call share.

    ``shapes`` are the global shapes of the operands. Returns an empty list unless the call's target is in
    `BATCH_PARTITIONABLE`.
    """
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
    """Return a custom call's operation with operand layout constraints that fit its operands, now tiles.

    The shapes in the constraints get the dimensions of the operands of ``call``; layouts stay the same.
    """
    operation = cast("CustomCall", call.operation)
    constraints = operation.operand_layout_constraints
    if constraints is None:
        return operation
    local = tuple(
        Shape(shape.element_type, o.shape.dimensions).with_layout(shape.layout) if shape.is_array else shape
        for shape, o in zip(constraints, call.operands, strict=True)
    )
    return replace(operation, operand_layout_constraints=local)


def adopt(module: HloModule, program: HloModule, channel: Callable[[], int]) -> None:
    """Move all computations of ``program`` but its entry to ``module``, to inline the entry afterwards.

    The computations, and all instructions of ``program``, get names and channel ids that are unique in
    ``module``. ``channel`` returns an unused channel id.
    """
    CallInliner().run(program)
    FlattenCallGraph().run(program)
    called = {c for i in program.instructions() for c in i.called_computations}
    channels: dict[int, int] = {}
    for computation in (*called, program.entry):
        for i in computation.instructions:
            i.name = module.unique_name(i.name)
            if i.metadata is not None and i.metadata.stack_frame_id:
                i.metadata = replace(i.metadata, stack_frame_id=0)  # an index into the program's own tables
            number = getattr(i.operation, "channel_id", None)
            if number:
                operation: Any = i.operation
                i.operation = replace(operation, channel_id=channels.setdefault(number, channel()))
        if computation is not program.entry:
            program.remove(computation)
            computation.name = module.unique_name(computation.name)
            module.add(computation)
