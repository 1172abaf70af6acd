"""async-collective-custom-calls: rewrite the custom calls by which JAX 0.12 starts and ends collectives.

JAX's asynchronous collectives become ``custom_call_target="all-reduce-start"`` with the fields of the
collective as JSON in the frontend attribute ``async_collective_config``, and ``"all-reduce-done"``. XLA's
async-collective-custom-call-rewriter makes them asynchronous operations; here they become synchronous.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hloom.errors import HloError
from hloom.ir.device_groups import DeviceList
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.operations.collectives import AllGather, AllReduce, ReduceScatter
from hloom.operations.custom_call import CustomCall
from hloom.operations.exchanges import AllToAll, CollectivePermute
from hloom.operations.movement import Transpose
from hloom.passes.registry import register
from hloom.passes.writing import Writer
from hloom.settings import Settings

_CONFIG: Final = "async_collective_config"
_START, _DONE = "-start", "-done"
_COLLECTIVES: Final = frozenset(
    ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
)


@register
@dataclass(frozen=True, slots=True)
class AsyncCollectiveCustomCalls:
    """``custom-call(x), custom_call_target="all-reduce-start"`` → ``all-reduce(x)``; its done → that."""

    name: ClassVar[str] = "async-collective-custom-calls"

    def run(self, module: HloModule) -> bool:
        """Rewrite every such custom call; raise HloError by ``collective.async-config`` for wrong fields."""
        changed = False
        for computation in module.computations:
            for i in computation:
                if _is_call(i, _START) and _CONFIG in (i.frontend_attributes or {}):
                    _start(i)
                elif _is_call(i, _DONE) and len(i.operands) == 1 and i.operands[0].shape == i.shape:
                    Writer(i).replace(i.operands[0])
                else:
                    continue
                changed = True
        return changed


def _is_call(i: HloInstruction, ending: str) -> bool:
    operation = i.operation
    target = operation.custom_call_target if isinstance(operation, CustomCall) else ""
    return target.endswith(ending) and target.removesuffix(ending) in _COLLECTIVES


def _start(i: HloInstruction) -> None:
    operation = i.operation
    assert isinstance(operation, CustomCall)
    collective = operation.custom_call_target.removesuffix(_START)
    config = _read(i)
    writer = Writer(i)
    if collective == "all-to-all":
        result = _all_to_all(writer, i, config)
    else:
        result = writer.op(
            _operation(collective, config), *i.operands, shape=i.shape, computations=i.called_computations
        )
    writer.replace(result)


def _read(i: HloInstruction) -> Settings:
    """Return the fields of the collective that a custom call starts."""

    def refuse(what: str) -> HloError:
        return HloError(f"{_CONFIG}: {what}", rule="collective.async-config", instruction=i.name)

    return Settings.parse((i.frontend_attributes or {})[_CONFIG], refuse)


def _channel_of(config: Settings) -> int | None:
    return config.integer("channel_id") if "channel_id" in config.fields else None


def _operation(collective: str, config: Settings) -> Operation:
    channel_id, global_ids = _channel_of(config), config.flag("use_global_device_ids")
    if collective == "collective-permute":
        pairs = config.integer_lists("permutation")
        if any(len(pair) != 2 for pair in pairs):
            raise config.refuse(f"permutation is {pairs}, wanted are pairs")
        permutation = tuple([(pair[0], pair[1]) for pair in pairs])
        return CollectivePermute(channel_id=channel_id, source_target_pairs=permutation, slice_sizes=())
    groups = DeviceList(config.integer_lists("replica_groups"))
    if collective == "all-gather":
        dimensions = (config.integer("all_gather_dimension"),)
        return AllGather(
            channel_id=channel_id,
            replica_groups=groups,
            all_gather_dimensions=dimensions,
            use_global_device_ids=global_ids,
            constrain_layout=False,
        )
    if collective == "reduce-scatter":
        dimensions = (config.integer("scatter_dimension"),)
        return ReduceScatter(
            channel_id=channel_id,
            replica_groups=groups,
            scatter_dimensions=dimensions,
            use_global_device_ids=global_ids,
            constrain_layout=False,
        )
    return AllReduce(
        channel_id=channel_id,
        replica_groups=groups,
        use_global_device_ids=global_ids,
        constrain_layout=False,
    )


def _all_to_all(writer: Writer, i: HloInstruction, config: Settings) -> HloInstruction:
    """Exchange the parts of a dimension, and concatenate those that are received along another one."""
    (operand,) = i.operands
    split, concatenated = config.integer("split_dimension"), config.integer("concat_dimension")
    count, sizes = config.integer("split_count"), operand.shape.dimensions
    if not 0 <= split < len(sizes) or count < 1 or sizes[split] % count:
        raise config.refuse(f"split_count is {count}, which does not divide dimension {split} of {sizes}")
    groups = DeviceList(config.integer_lists("replica_groups"))
    exchange = AllToAll(
        channel_id=_channel_of(config),
        replica_groups=groups,
        split_dimension=(split,),
        constrain_layout=False,
    )
    if split == concatenated:
        return writer.op(exchange, operand)
    parts = writer.reshape(operand, (*sizes[:split], count, sizes[split] // count, *sizes[split + 1 :]))
    received = writer.op(exchange, parts)
    order = [d for d in range(len(sizes) + 1) if d != split]
    order.insert(concatenated, split)
    return writer.reshape(writer.op(Transpose(dimensions=tuple(order)), received), i.shape.dimensions)
