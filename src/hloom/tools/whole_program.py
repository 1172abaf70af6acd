"""Programs on whole arrays for several devices, as they are before XLA's partitioner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hloom.ir.module import HloModule
from hloom.operations.custom_call import CustomCall
from hloom.runtime.device import Device
from hloom.runtime.executable import compile as compile_module
from hloom.shape.shape import Shape
from hloom.sharding.partitioner import partition
from hloom.sharding.tiling import Tiling

if TYPE_CHECKING:
    from hloom.cpu.runtime.profile import Profile

Array = np.ndarray[Any, Any]

_REGIONS: Final = ("xla.sdy.GlobalToLocalShape", "SPMDFullToShardShape")
"""Calls behind which a program on whole arrays computes on the tiles of the devices."""


def has_regions(module: HloModule) -> bool:
    """Return whether a program on whole arrays has parts on tiles, so that it must be partitioned to run."""
    operations = (i.operation for i in module.instructions())
    return any(isinstance(o, CustomCall) and o.custom_call_target in _REGIONS for o in operations)


class WholeProgram:
    """A program that is partitioned, run on tiles, and whose results are put together.

    It runs as an `Executable` of one device.
    """

    num_replicas: Final = 1
    num_partitions: Final = 1

    def __init__(self, module: HloModule, backend: str, devices: int) -> None:
        """Partition and compile a program."""
        self._partitioned = partition(module, devices)
        self._executable = compile_module(self._partitioned.module, backend, num_partitions=devices)
        self._result = module.entry.root.shape

    @property
    def devices(self) -> list[Device]:
        """The device that stands for all."""
        return self._executable.devices[:1]

    def run(self, arguments: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the whole result for whole arguments, both in a list for the one device."""
        results = self._executable.run(self._parts(arguments[0]))
        tiles = [list(_flat(result)) for result in results]
        pairs = zip(zip(*tiles), self._partitioned.results, self._result.leaves())
        whole = iter([_joined(each, tiling, shape.dimensions) for each, tiling, (_, shape) in pairs])
        return [_nested(self._result, whole)]

    def profile(self, *arguments: Any) -> Profile:
        """Run on whole arguments, and return the times of all devices; see `Executable.profile`."""
        parts = self._parts(arguments)
        return self._executable.profile(*parts[0]) if len(parts) == 1 else self._executable.profile(parts)

    def _parts(self, given: Sequence[Any]) -> list[Any]:
        """Return the arguments of each device."""
        count = len(self._executable.devices)
        return [_cut(given, iter(self._partitioned.parameters), device) for device in range(count)]


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        for part in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _flat(part)
    else:
        yield value


def _nested(shape: Shape, parts: Iterator[Any]) -> Any:
    return tuple(_nested(s, parts) for s in shape.tuple_shapes) if shape.is_tuple else next(parts)


def _cut(value: Any, tilings: Iterator[Tiling], device: int) -> Any:
    """Return a device's tiles of the arrays of a value; beyond an array's end they hold zeros."""
    if isinstance(value, list | tuple):
        return tuple(_cut(part, tilings, device) for part in value)  # pyright: ignore[reportUnknownVariableType]
    tiling = next(tilings)
    if value is None:
        return None
    array: Array = np.asarray(value)
    extents = tiling.local(array.shape)
    missing = [(0, n * t - d) for n, t, d in zip(extents, tiling.tiles, array.shape, strict=True)]
    place = tiling.places[device]
    tile = np.pad(array, missing)[_part(place, extents)] if missing else array
    return np.zeros_like(tile) if tiling.summands and tiling.summands[device] else tile


def _joined(tiles: Sequence[Any], tiling: Tiling, dimensions: Sequence[int]) -> Any:
    """Return the array of the devices' tiles, or the sum of those that hold summands."""
    if tiles[0] is None:
        return None
    arrays = [np.asarray(tile) for tile in tiles]
    extents = arrays[0].shape
    whole = np.zeros([n * t for n, t in zip(extents, tiling.tiles, strict=True)], arrays[0].dtype)
    added: set[tuple[tuple[int, ...], int]] = set()
    for device, (tile, place) in enumerate(zip(arrays, tiling.places, strict=True)):
        part = _part(place, extents)
        number = tiling.summands[device] if tiling.summands else 0
        if (place, number) not in added:
            whole[part] += tile
            added.add((place, number))
    return whole[tuple(slice(0, d) for d in dimensions)]


def _part(place: Sequence[int], extents: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(p * n, (p + 1) * n) for p, n in zip(place, extents, strict=True))
