"""Tiles of whole values: cut for devices, and put together from theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hloom.shape.shape import Shape
from hloom.sharding.tiling.tiling import Tiling

Array = np.ndarray[Any, Any]


def cut(value: Any, tilings: Sequence[Tiling], device: int) -> Any:
    """Return a device's tiles of the arrays of a value.

    Args:
        value: an array, or a nested tuple or list of arrays; tokens are None. Of a `StoredArray` only the
            tile is read.
        tilings: of all its arrays and tokens, in order.
        device: the number of the device.

    Returns:
        The same nested tuple of tiles. All devices have tiles of one size: beyond an array's end are zeros.
    """
    return _cut(value, iter(tilings), device)


def _cut(value: Any, tilings: Iterator[Tiling], device: int) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_cut(part, tilings, device) for part in value)  # pyright: ignore[reportUnknownVariableType]
    tiling = next(tilings)
    return None if value is None else tile_of(value, tiling, device)


def tile_of(value: Any, tiling: Tiling, device: int) -> Array:
    """Return a device's tile of an array; zeros if the device is to add nothing to a sum."""
    array: Any = value if isinstance(getattr(value, "shape", None), tuple) else np.asarray(value)
    extents = tiling.local(array.shape)
    begins = [n * p for n, p in zip(extents, tiling.places[device], strict=True)]
    sizes = [max(0, min(n, d - b)) for n, b, d in zip(extents, begins, array.shape, strict=True)]
    part = np.asarray(array[tuple([slice(b, b + n) for b, n in zip(begins, sizes, strict=True)])])
    if tiling.summands and tiling.summands[device]:
        return np.zeros(extents, part.dtype)
    if part.shape == extents:
        return part
    return np.pad(part, [(0, n - m) for n, m in zip(extents, sizes, strict=True)])


def joined(tiles: Sequence[Any], tilings: Sequence[Tiling], shape: Shape) -> Any:
    """Return a whole value from the values of all devices: the inverse of `cut`, with summands added.

    Args:
        tiles: the value of each device: an array, or a nested tuple.
        tilings: of its leaves.
        shape: of the whole value.
    """
    leaves = zip(*(flat(value) for value in tiles), strict=True)
    pairs = zip(leaves, tilings, shape.leaves(), strict=True)
    return nested(shape, iter([_whole(each, tiling, leaf.dimensions) for each, tiling, (_, leaf) in pairs]))


def flat(value: Any) -> Iterator[Any]:
    """Yield the leaves of a nested tuple."""
    if isinstance(value, tuple):
        for part in value:  # pyright: ignore[reportUnknownVariableType]
            yield from flat(part)
    else:
        yield value


def nested(shape: Shape, leaves: Iterator[Any]) -> Any:
    """Return a value of a shape from its leaves."""
    return tuple([nested(s, leaves) for s in shape.tuple_shapes]) if shape.is_tuple else next(leaves)


def _whole(tiles: Sequence[Any], tiling: Tiling, dimensions: Sequence[int]) -> Any:
    """Return the array of the devices' tiles, or the sum of those that hold summands."""
    if tiles[0] is None:
        return None
    arrays: list[Array] = [np.asarray(tile) for tile in tiles]
    extents = arrays[0].shape
    whole = np.zeros([n * t for n, t in zip(extents, tiling.tiles, strict=True)], arrays[0].dtype)
    added: set[tuple[tuple[int, ...], int]] = set()
    for device, (tile, place) in enumerate(zip(arrays, tiling.places, strict=True)):
        number = tiling.summands[device] if tiling.summands else 0
        if (place, number) not in added:
            part = tuple([slice(p * n, (p + 1) * n) for p, n in zip(place, extents, strict=True)])
            whole[part] += tile
            added.add((place, number))
    return whole[tuple([slice(0, d) for d in dimensions])]
