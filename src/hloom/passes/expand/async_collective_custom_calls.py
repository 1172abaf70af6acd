"""async-collective-custom-calls: rewrite the custom calls by which JAX 0.12 starts and ends collectives.

JAX's asynchronous collectives become ``custom_call_target="all-reduce-start"`` with the fields of the
collective as JSON in the frontend attribute ``async_collective_config``, and ``"all-reduce-done"``. XLA's
async-collective-custom-call-rewriter makes them asynchronous operations; here they become synchronous.
"""

from __future__ import annotations

from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.errors import HloError
from hloom.ir.device_groups import DeviceList
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.operations.collectives import AllGather, AllReduce, ReduceScatter
from hloom.operations.custom_call import CustomCall
from hloom.operations.exchanges import AllToAll, CollectivePermute
from hloom.operations.movement import Transpose
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer
from hloom.settings import Settings

_CONFIG: Final = "async_collective_config"
_COLLECTIVES: Final = frozenset(
    ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
)


class AsyncCollectiveCustomCalls(
    OpExpander, name="async-collective-custom-calls", of=CustomCall, mandatory=True
):
    """``custom-call(x), custom_call_target="all-reduce-start"`` → ``all-reduce(x)``; its done → that."""

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        """Return the collective; raise HloError by ``collective.async-config`` for wrong fields."""
        collective, _, end = operation_of(i, CustomCall).custom_call_target.rpartition("-")
        if collective not in _COLLECTIVES:
            return None
        if end == "done" and len(i.operands) == 1 and i.operands[0].shape == i.shape:
            return i.operands[0]
        if end != "start" or _CONFIG not in (i.frontend_attributes or {}):
            return None
        config = _read(i)
        if collective == "all-to-all":
            return _all_to_all(w, i, config)
        operation = _operation(collective, config)
        return w.op(operation, *i.operands, shape=i.shape, computations=i.called_computations)


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
        return AllGather(
            channel_id=channel_id,
            replica_groups=groups,
            all_gather_dimensions=(config.integer("all_gather_dimension"),),
            use_global_device_ids=global_ids,
            constrain_layout=False,
        )
    if collective == "reduce-scatter":
        return ReduceScatter(
            channel_id=channel_id,
            replica_groups=groups,
            scatter_dimensions=(config.integer("scatter_dimension"),),
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
    """Add the all-to-all that a custom call starts.

    If the dimension that it splits is not the one that it concatenates, the parts are a dimension of their
    own, which is then transposed.
    """
    (operand,) = i.operands
    split, concatenated = config.integer("split_dimension"), config.integer("concat_dimension")
    count, sizes = config.integer("split_count"), operand.shape.dimensions
    if not 0 <= split < len(sizes) or count < 1 or sizes[split] % count:
        raise config.refuse(f"split_count is {count}, which does not divide dimension {split} of {sizes}")
    groups = DeviceList(config.integer_lists("replica_groups"))
    channel = _channel_of(config)
    exchange = AllToAll(
        channel_id=channel, replica_groups=groups, split_dimension=(split,), constrain_layout=False
    )
    if split == concatenated:
        return writer.op(exchange, operand)
    parts = writer.reshape(operand, (*sizes[:split], count, sizes[split] // count, *sizes[split + 1 :]))
    received = writer.op(exchange, parts)
    order = [d for d in range(len(sizes) + 1) if d != split]
    order.insert(concatenated, split)
    return writer.reshape(writer.op(Transpose(dimensions=tuple(order)), received), i.shape.dimensions)
