"""Run a program whole, and partitioned on virtual devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

import agreement
import hloom
from hloom.ir.module import HloModule
from hloom.sharding.partitioner import Partitioned, partition
from hloom.sharding.tiling import Tiling

Array = np.ndarray[Any, Any]


def tile_of(array: Array, tiling: Tiling, device: int) -> Array:
    """Return a device's tile of an array."""
    extents = tiling.local(array.shape)
    place = tiling.places[device]
    return array[tuple(slice(p * n, (p + 1) * n) for p, n in zip(place, extents, strict=True))]


def joined(tiles: Sequence[Array], tiling: Tiling) -> Array:
    """Return the array of the devices' tiles; devices with the same tile must have the same elements."""
    extents = tiles[0].shape
    whole = np.zeros([n * t for n, t in zip(extents, tiling.tiles, strict=True)], tiles[0].dtype)
    seen: dict[tuple[int, ...], Array] = {}
    for tile, place in zip(tiles, tiling.places, strict=True):
        agreement.same(seen.setdefault(place, tile), tile)
        whole[tuple(slice(p * n, (p + 1) * n) for p, n in zip(place, extents, strict=True))] = tile
    return whole


def run_partitioned(
    module: HloModule, devices: int, arguments: Sequence[Array], backend: str = "evaluator"
) -> tuple[Partitioned, list[Array]]:
    """Partition a program, run it on tiles, and return the leaves of the whole result."""
    partitioned = partition(module, devices)
    partitioned.module.verify()
    executable = hloom.compile(partitioned.module, backend, num_partitions=devices)
    rows = [
        [tile_of(a, t, device) for a, t in zip(arguments, partitioned.parameters, strict=True)]
        for device in range(devices)
    ]
    results = [leaves_of(result) for result in cast("list[Any]", executable.run(rows))]
    columns = zip(*results, strict=True)
    return partitioned, [
        joined(list(tiles), tiling) for tiles, tiling in zip(columns, partitioned.results, strict=True)
    ]


def leaves_of(value: Any) -> list[Array]:
    """Return the arrays of a value."""
    if isinstance(value, tuple):
        return [leaf for part in cast("tuple[Any, ...]", value) for leaf in leaves_of(part)]
    return [] if value is None else [np.asarray(value)]
