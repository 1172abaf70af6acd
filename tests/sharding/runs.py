"""Run a program whole, and partitioned on virtual devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

import hloom
from hloom.ir.module import HloModule
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.partitioner import Partitioned, partitioned_program
from hloom.sharding.tiling.tiling import Tiling

Array = np.ndarray[Any, Any]


def tile_of(array: Array, tiling: Tiling, device: int) -> Array:
    """Return a device's tile of an array; what it has beyond the array is filled with a strange value."""
    extents = tiling.local(array.shape)
    missing = [(0, n * t - d) for n, t, d in zip(extents, tiling.tiles, array.shape, strict=True)]
    strange = np.array(77).astype(array.dtype)
    padded = np.pad(array, missing, constant_values=strange) if missing else array
    place = tiling.tile_indices[device]
    tile = padded[tuple(slice(p * n, (p + 1) * n) for p, n in zip(place, extents, strict=True))]
    return np.zeros_like(tile) if tiling.unreduced and tiling.unreduced[device] else tile


def joined(tiles: Sequence[Array], tiling: Tiling, dimensions: Sequence[int]) -> Array:
    """Return the array of the devices' tiles, or the sum of those that hold summands.

    Devices with the same tile, of the same summand, must have the same elements.
    """
    extents = tiles[0].shape
    whole = np.zeros([n * t for n, t in zip(extents, tiling.tiles, strict=True)], tiles[0].dtype)
    seen: dict[tuple[tuple[int, ...], int], Array] = {}
    for device, (tile, place) in enumerate(zip(tiles, tiling.tile_indices, strict=True)):
        part = tuple(slice(p * n, (p + 1) * n) for p, n in zip(place, extents, strict=True))
        real = tuple(slice(0, max(0, d - s.start)) for d, s in zip(dimensions, part, strict=True))
        summand = tiling.unreduced[device] if tiling.unreduced is not None else 0
        first = seen.setdefault((place, summand), tile)
        if first is not tile:
            assert first[real].tobytes() == tile[real].tobytes(), f"device {device} has another replica"
        else:
            whole[part] = whole[part] + tile if tiling.unreduced is not None else tile
    return whole[tuple(slice(0, d) for d in dimensions)]


def partitioned_of(module: HloModule, devices: int) -> Partitioned:
    """Partition a program; the result is valid."""
    partitioned = partitioned_program(module, devices)
    partitioned.module.verify()
    return partitioned


def run_partitioned(
    module: HloModule, devices: int, arguments: Sequence[Array], backend: str = "evaluator"
) -> tuple[Partitioned, list[Array]]:
    """Partition a program, run it on tiles, and return the leaves of the whole result."""
    partitioned = partitioned_of(module, devices)
    return partitioned, run_tiles(partitioned, devices, module, arguments, backend)


def run_tiles(
    partitioned: Partitioned,
    devices: int,
    module: HloModule,
    arguments: Sequence[Array],
    backend: str = "evaluator",
) -> list[Array]:
    """Run a partitioned program on tiles of the leaves of its arguments; return those of the whole result."""
    executable = hloom.compile(partitioned.module, backend, num_partitions=devices)
    rows: list[list[Any]] = []
    for device in range(devices):
        pairs = zip(arguments, partitioned.parameters, strict=True)
        tiles = iter([None if a is None else tile_of(a, t, device) for a, t in pairs])
        rows.append([_built(p.shape, tiles) for p in module.entry.parameters])
    results = [leaves_of(result) for result in cast("list[Any]", executable.run(rows))]
    columns = list(zip(*results, strict=True))
    root = module.entry.root.shape
    shapes = [leaf for _, leaf in root.leaves() if leaf.is_array]
    kinds = [(t, s) for t, s in zip(partitioned.results, [leaf for _, leaf in root.leaves()], strict=True)]
    tilings = [t for t, s in kinds if s.is_array]
    return [
        joined(list(tiles), tiling, shape.dimensions)
        for tiles, tiling, shape in zip(columns, tilings, shapes, strict=True)
    ]


def _built(shape: Shape, leaves: Iterator[Any]) -> Any:
    """Return a value of a shape from its leaves."""
    return tuple(_built(s, leaves) for s in shape.tuple_shapes) if shape.is_tuple else next(leaves)


def leaves_of(value: Any) -> list[Array]:
    """Return the arrays of a value."""
    if isinstance(value, tuple):
        return [leaf for part in cast("tuple[Any, ...]", value) for leaf in leaves_of(part)]
    return [] if value is None else [np.asarray(value)]
