"""Snapshots: messages that hold a module with the arguments and the result of runs."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.errors import HloError, plural
from hloom.ir.module import HloModule
from hloom.proto.container import Container
from hloom.proto.literal import read_literal, write_literal
from hloom.proto.schema.hlo_pb2 import HloSnapshot, HloUnoptimizedSnapshot
from hloom.proto.writer import module_message
from hloom.shape.literal import Literal

Runs = tuple[tuple[Literal, ...], ...]


def recorded_values(container: Container) -> tuple[Runs, Literal | None]:
    """Return the recorded arguments of each run, and the result, of a message; raise HloError."""
    if isinstance(container, HloSnapshot):
        arguments = tuple(map(read_literal, container.arguments))
        has_result = container.HasField("result")
        runs = (arguments,) if arguments or has_result else ()
        return runs, read_literal(container.result) if has_result else None
    if isinstance(container, HloUnoptimizedSnapshot):
        return tuple(tuple(map(read_literal, p.arguments)) for p in container.partitions), None
    return (), None


def snapshot_message(
    module: HloModule, runs: Sequence[Sequence[Literal]], result: Literal | None
) -> HloSnapshot | HloUnoptimizedSnapshot:
    """Return the message of a module and its recorded runs: an HloSnapshot for at most one run.

    Several runs, one for each partition, make an HloUnoptimizedSnapshot, which holds no result: raise
    HloError (``snapshot.result``) if there is one.
    """
    if len(runs) <= 1:
        snapshot = HloSnapshot(execution_platform="hloom")
        snapshot.hlo.hlo_module.CopyFrom(module_message(module))
        for argument in runs[0] if runs else ():
            write_literal(argument, snapshot.arguments.add())
        if result is not None:
            write_literal(result, snapshot.result)
        return snapshot
    if result is not None:
        text = f"a snapshot of {plural(len(runs), 'run')} holds no result"
        raise HloError(text, rule="snapshot.result")
    unoptimized = HloUnoptimizedSnapshot()
    unoptimized.hlo_module.CopyFrom(module_message(module))
    for arguments in runs:
        partition = unoptimized.partitions.add()
        for argument in arguments:
            write_literal(argument, partition.arguments.add())
    return unoptimized
