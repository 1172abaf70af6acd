"""Data of the sharding tab: the report of a program with shardings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hloom.ir.module import HloModule
    from hloom.sharding.partitioning.partitioner import Partitioned


def is_sharded(module: HloModule, axes: Mapping[str, int]) -> bool:
    """Return whether a program has shardings and several devices."""
    from hloom.sharding.reading.meshes import device_count
    from hloom.sharding.reading.preparation import is_annotated

    return device_count(module, axes) > 1 and any(map(is_annotated, module.instructions()))


def partitioned(module: HloModule, axes: Mapping[str, int]) -> Partitioned:
    """Partition a program. Raises HloError as `hloom.sharding.partitioned_program`."""
    from hloom.sharding.partitioning.partitioner import partitioned_program
    from hloom.sharding.reading.meshes import device_count, resized

    return partitioned_program(resized(module, axes), device_count(module, axes))


def sharding_part(
    module: HloModule, axes: Mapping[str, int], tries: int, progress: Callable[[str], None] | None = None
) -> dict[str, object]:
    """Return the data of the sharding tab; see `hloom.sharding.report` for arguments and errors."""
    from hloom.sharding.reporting.report import report

    data = report(module, axes, tries=tries, progress=progress).to_json()
    data["memory"].pop("timeline")
    return {"sharding": data}
