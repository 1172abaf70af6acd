"""Conversion between global values and the tiles of devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hloom.ir.value import Array, Value
from hloom.shape.shape import Shape
from hloom.sharding.tiling.tiling import Tiling


def cut(value: object, tilings: Sequence[Tiling], device: int) -> Value:
    """Return the tiles of a global value that a device holds.

    Args:
        value: an array, or a nested tuple or list of arrays, with None for tokens. Of a `StoredArray` only
            the tile is read.
        tilings: the tilings of the leaves of ``value``, in order.
        device: the device id.

    Returns:
        The tiles, nested like the value. All tiles of an array have the same size; the last are padded with
        zeros.
    """
    return _cut(value, iter(tilings), device)


def _cut(value: Any, tilings: Iterator[Tiling], device: int) -> Value:
    if isinstance(value, list | tuple):
        return tuple(_cut(part, tilings, device) for part in value)  # pyright: ignore[reportUnknownVariableType]
    tiling = next(tilings)
    return None if value is None else tile_of(value, tiling, device)


def tile_of(value: Any, tiling: Tiling, device: int) -> Array:
    """Return the tile of an array that a device holds, padded with zeros to the size that all tiles have.

    If the tiling has partial sums, devices with the partial sum of index 0 get the tile, all others zeros.
    """
    array: Any = value if isinstance(getattr(value, "shape", None), tuple) else np.asarray(value)
    extents = tiling.local(array.shape)
    begins = [n * p for n, p in zip(extents, tiling.tile_indices[device], strict=True)]
    sizes = [max(0, min(n, d - b)) for n, b, d in zip(extents, begins, array.shape, strict=True)]
    part = np.asarray(array[tuple([slice(b, b + n) for b, n in zip(begins, sizes, strict=True)])])
    if tiling.unreduced and tiling.unreduced[device]:
        return np.zeros(extents, part.dtype)
    if part.shape == extents:
        return part
    return np.pad(part, [(0, n - m) for n, m in zip(extents, sizes, strict=True)])


def joined(tiles: Sequence[object], tilings: Sequence[Tiling], shape: Shape) -> Value:
    """Return the global value, assembled from the tiles of all devices; the inverse of `cut`.

    Partial sums are added, and padding is dropped.

    Args:
        tiles: for each device, in order of id, its tile: an array, or a nested tuple of arrays.
        tilings: the tilings of the leaves of ``shape``, in order.
        shape: the global shape.
    """
    leaves = zip(*(flat(value) for value in tiles), strict=True)
    pairs = zip(leaves, tilings, shape.leaves(), strict=True)
    return nested(
        shape, iter([_assembled(each, tiling, leaf.dimensions) for each, tiling, (_, leaf) in pairs])
    )


def flat(value: Any) -> Iterator[Any]:
    """Yield the leaves of a nested tuple, depth first; a value that is not a tuple is yielded as it is."""
    if isinstance(value, tuple):
        for part in value:  # pyright: ignore[reportUnknownVariableType]
            yield from flat(part)
    else:
        yield value


def nested(shape: Shape, leaves: Iterator[Array | None]) -> Value:
    """Return ``leaves``, in order, nested like the tuple ``shape``; for an array shape, the next leaf."""
    return tuple([nested(s, leaves) for s in shape.tuple_shapes]) if shape.is_tuple else next(leaves)


def _assembled(tiles: Sequence[object], tiling: Tiling, dimensions: Sequence[int]) -> Array | None:
    """Assemble the global array from the tiles of all devices, in order of id; return None for a token.

    Partial sums are added, of copies only one is used, and padding beyond the global ``dimensions`` is
    dropped.
    """
    if tiles[0] is None:
        return None
    arrays: list[Array] = [np.asarray(tile) for tile in tiles]
    extents = arrays[0].shape
    padded = np.zeros([n * t for n, t in zip(extents, tiling.tiles, strict=True)], arrays[0].dtype)
    added: set[tuple[tuple[int, ...], int]] = set()
    for device, (tile, index) in enumerate(zip(arrays, tiling.tile_indices, strict=True)):
        number = tiling.unreduced[device] if tiling.unreduced else 0
        if (index, number) not in added:
            part = tuple([slice(p * n, (p + 1) * n) for p, n in zip(index, extents, strict=True)])
            padded[part] += tile
            added.add((index, number))
    return padded[tuple([slice(0, d) for d in dimensions])]
