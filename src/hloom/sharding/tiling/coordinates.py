"""Device coordinates: the tile index of each device along one dimension.

A regular coordinate is a mixed-radix number of digits of the device id: ``((4, 2), (1, 2))`` has the major
digit ``device // 4 % 2`` and the minor digit ``device // 1 % 2``. Algorithms on digits take the same time for
8 devices and for 65,536. An irregular coordinate lists the index of each device.

`refined` factors device ids into axes of prime size such that several coordinates all consist of whole axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise, permutations
from typing import Final, TypeAlias

import numpy as np

from hloom.ir.device_groups import DeviceList, IotaDeviceList, IotaTiles
from hloom.records import dataclass

Digit: TypeAlias = tuple[int, int]
"""(stride, size) of the digit ``device // stride % size`` of a device id."""
DeviceGroups: TypeAlias = DeviceList | IotaDeviceList

MOST_LISTED: Final = 64
"""Maximum number of devices for which groups and per-device constants are written as lists."""


@dataclass(frozen=True)
class Coordinate:
    """The tile index of each device along one dimension of an array.

    Attributes:
        devices: the number of devices.
        digits: for a regular coordinate, the mixed-radix digits of the tile index, major first. The digit
            (stride, size) of a device is ``device // stride % size``. Adjacent digits that one digit can
            express are merged.
        listed: for an irregular coordinate, the tile index of each device, by device id; empty for a regular
            one.
    """

    devices: int
    digits: tuple[Digit, ...] = ()
    listed: tuple[int, ...] = ()

    @staticmethod
    def along(digits: Iterable[Digit], devices: int) -> Coordinate:
        """Return the coordinate whose tile index is the mixed-radix number with ``digits``, major first.

        A digit (stride, size) of a device id is ``device // stride % size``. Digits of size 1 are dropped,
        and adjacent digits are merged if one digit can express both.
        """
        merged: list[Digit] = []
        for stride, size in digits:
            if size == 1:
                continue
            if merged and merged[-1][0] == stride * size:
                merged[-1] = (stride, merged[-1][1] * size)
            else:
                merged.append((stride, size))
        return Coordinate(devices, tuple(merged))

    @staticmethod
    def of(indices: Sequence[int]) -> Coordinate:
        """Return the coordinate (tile index of each device along a dimension) with ``indices``, by device id.

        They are stored as mixed-radix digits of the device id if digits can express them, else as a list.
        """
        return _recognized(tuple(indices))

    @cached_property
    def indices(self) -> tuple[int, ...]:
        """The tile index of each device, in order of device id."""
        if self.listed:
            return self.listed
        numbers = np.arange(self.devices)
        total = np.zeros_like(numbers)
        for stride, size in self.digits:
            total = total * size + numbers // stride % size
        return tuple(total.tolist())

    @property
    def count(self) -> int:
        """The number of tiles along the dimension: the largest tile index plus 1."""
        return max(self.listed) + 1 if self.listed else math.prod(size for _, size in self.digits)

    def __getitem__(self, device: int) -> int:
        return self.indices[device]


@lru_cache(maxsize=1024)
def _recognized(indices: tuple[int, ...]) -> Coordinate:
    """Return the coordinate with the given tile index of each device, as digits of device ids if possible.

    Tries mixed-radix digits whose sizes are the prime factors of the number of devices, in several orders. If
    none gives the indices, the coordinate lists them.
    """
    devices = len(indices)
    for sizes in _radices(devices):
        strides = [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
        weighed = [(indices[stride], stride, size) for stride, size in zip(strides, sizes, strict=True)]
        used = sorted((w for w in weighed if w[0]), reverse=True)
        regular = Coordinate.along([(stride, size) for _, stride, size in used], devices)
        if regular.indices == indices:
            return regular
    return Coordinate(devices, (), indices)


@lru_cache
def _radices(devices: int) -> tuple[tuple[int, ...], ...]:
    """Return the distinct orderings of the prime factors of ``devices``, as radices of mixed-radix numbers.

    If there are more than 6 prime factors, or if all are equal, returns the ascending ordering only.
    """
    primes = _primes(devices)
    if len(set(primes)) < 2 or len(primes) > 6:
        return (tuple(primes),)
    return tuple(sorted(set(permutations(primes))))


def _primes(number: int) -> list[int]:
    primes: list[int] = []
    candidate = 2
    while number > 1:
        while number % candidate == 0:
            primes.append(candidate)
            number //= candidate
        candidate += 1
    return primes


Axes: TypeAlias = "tuple[int, ...]"
"""Numbers of axes, major axis first."""


@lru_cache(maxsize=8192)
def refined(coordinates: tuple[Coordinate, ...]) -> tuple[tuple[int, ...], tuple[Axes, ...]] | None:
    """Find a device mesh, with axes of prime size, whose axes express each of the given coordinates.

    A coordinate is the tile index of each device along one dimension; it must be the row-major index of the
    device along some of the axes. Returns (sizes of all axes, for each coordinate the numbers of its axes),
    both major axis first. Returns None if there is no such mesh: if a coordinate is irregular (lists its
    indices), or if digits of two coordinates overlap partially.
    """
    if not coordinates or any(coordinate.listed for coordinate in coordinates):
        return None
    devices = coordinates[0].devices
    digits = [digit for coordinate in coordinates for digit in coordinate.digits]
    bounds = sorted({1, devices, *(s for s, _ in digits), *(s * size for s, size in digits)})
    if any(larger % smaller for smaller, larger in pairwise(bounds)):
        return None
    axes: list[Digit] = []
    for smaller, larger in pairwise(bounds):
        for size in _primes(larger // smaller):
            axes.append((smaller, size))
            smaller *= size
    axes.reverse()
    axes_of = tuple(
        tuple(
            k
            for stride, size in coordinate.digits
            for k, (s, _) in enumerate(axes)
            if stride <= s < stride * size
        )
        for coordinate in coordinates
    )
    return tuple(size for _, size in axes), axes_of


def coordinate_along(axes: Iterable[int], sizes: Sequence[int]) -> Coordinate:
    """Return the row-major index of each device along some axes of a device mesh.

    Args:
        axes: the numbers of the axes, major axis first.
        sizes: the sizes of all axes of the mesh, major axis first; device ids are row-major.
    """
    strides = [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
    return Coordinate.along([(strides[k], sizes[k]) for k in axes], math.prod(sizes))


@lru_cache(maxsize=1024)
def groups_along(axes: Axes, sizes: tuple[int, ...]) -> DeviceGroups:
    """Return the device groups for a collective along ``axes`` of a device mesh.

    The devices of a group differ only in their indices along ``axes`` and are in row-major order of ``axes``.
    ``sizes`` are the sizes of all axes of the mesh, major axis first; device ids are row-major.
    """
    others = [k for k in range(len(sizes)) if k not in axes]
    width, devices = math.prod(sizes[k] for k in axes), math.prod(sizes)
    tiles = IotaTiles.canonical(sizes, (*others, *axes))
    groups = IotaDeviceList(devices // width, width, tiles)
    return groups if devices > MOST_LISTED else DeviceList(groups.groups)


def group_size(groups: DeviceGroups) -> int:
    """Return the number of devices in each group of a collective, which is the same for all groups."""
    return groups.group_size if isinstance(groups, IotaDeviceList) else len(groups.groups[0])


def are_independent(coordinates: Sequence[Coordinate]) -> bool:
    """Return true if each combination of tile indices occurs on the same number of devices, at least one.

    A coordinate is the tile index of each device along one dimension; a combination has one index for each
    coordinate.
    """
    basis = refined(tuple(coordinates))
    if basis is not None:
        used = [k for axes in basis[1] for k in axes]
        return len(used) == len(set(used))
    copies: dict[tuple[int, ...], int] = {}
    for position in zip(*(coordinate.indices for coordinate in coordinates), strict=True):
        copies[position] = copies.get(position, 0) + 1
    combinations = math.prod(coordinate.count for coordinate in coordinates)
    return len(copies) == combinations and len(set(copies.values())) == 1


def same_classes(coordinates: Sequence[Coordinate], coordinate: Coordinate) -> bool:
    """Return true if ``coordinates`` together divide devices into the same sets as the single ``coordinate``.

    A coordinate is the tile index of each device along one dimension. Two devices are in the same set if
    their indices are equal, in all of ``coordinates`` or in ``coordinate``.
    """
    basis = refined((*coordinates, coordinate))
    if basis is not None:
        *others, axes = basis[1]
        return {k for other in others for k in other} == set(axes)
    pairs = set(zip(zip(*(c.indices for c in coordinates), strict=True), coordinate.indices, strict=True))
    return len(pairs) == len({one for one, _ in pairs}) == len({other for _, other in pairs})
