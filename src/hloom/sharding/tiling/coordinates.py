"""Columns: for each device the index of its tile along one dimension.

A regular column is given by digits of the device's number: ``((4, 2), (1, 2))`` is the index whose major
digit is ``device // 4 % 2`` and whose minor one is ``device // 1 % 2``. Work on digits takes the same time
for 8 devices and for 65,536. Any other column lists the indices.

The digits of several columns are made comparable by `refined`: it divides the number of a device into axes of
prime sizes, the major one first, so that each column consists of whole axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise, permutations
from typing import Final, TypeAlias

import numpy as np

from hloom.ir.device_groups import DeviceList, IotaDeviceList, IotaTiles

Digit: TypeAlias = tuple[int, int]
"""The digit ``device // stride % size`` of a device's number: stride and size."""
DeviceGroups: TypeAlias = DeviceList | IotaDeviceList

MOST_LISTED: Final = 64
"""Up to this number of devices, groups and tables are written as lists, which are easier to read."""


@dataclass(frozen=True)
class Column:
    """The index of each device's tile.

    Attributes:
        devices: the number of devices.
        digits: the digits of a regular column, the major one first; adjacent digits are merged.
        listed: the indices of another column.
    """

    devices: int
    digits: tuple[Digit, ...] = ()
    listed: tuple[int, ...] = ()

    @staticmethod
    def along(digits: Iterable[Digit], devices: int) -> Column:
        """Return the regular column of some digits."""
        merged: list[Digit] = []
        for stride, size in digits:
            if size == 1:
                continue
            if merged and merged[-1][0] == stride * size:
                merged[-1] = (stride, merged[-1][1] * size)
            else:
                merged.append((stride, size))
        return Column(devices, tuple(merged))

    @staticmethod
    def of(indices: Sequence[int]) -> Column:
        """Return the column of some indices."""
        return _recognized(tuple(indices))

    @cached_property
    def indices(self) -> tuple[int, ...]:
        """The index for each device."""
        if self.listed:
            return self.listed
        numbers = np.arange(self.devices)
        total = np.zeros_like(numbers)
        for stride, size in self.digits:
            total = total * size + numbers // stride % size
        return tuple(total.tolist())

    @property
    def count(self) -> int:
        """Return the number of indices."""
        return max(self.listed) + 1 if self.listed else math.prod(size for _, size in self.digits)

    def __getitem__(self, device: int) -> int:
        """Return the index for a device."""
        return self.indices[device]


@lru_cache(maxsize=1024)
def _recognized(indices: tuple[int, ...]) -> Column:
    devices = len(indices)
    for sizes in _radices(devices):
        strides = [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
        weighed = [(indices[stride], stride, size) for stride, size in zip(strides, sizes, strict=True)]
        used = sorted((w for w in weighed if w[0]), reverse=True)
        found = Column.along([(stride, size) for _, stride, size in used], devices)
        if found.indices == indices:
            return found
    return Column(devices, (), indices)


@lru_cache
def _radices(devices: int) -> tuple[tuple[int, ...], ...]:
    """Return the orders of the prime factors of a number of devices; only one of many factors."""
    primes = _primes(devices)
    if len(set(primes)) < 2 or len(primes) > 6:
        return (tuple(primes),)
    return tuple(sorted(set(permutations(primes))))


def _primes(number: int) -> list[int]:
    found: list[int] = []
    candidate = 2
    while number > 1:
        while number % candidate == 0:
            found.append(candidate)
            number //= candidate
        candidate += 1
    return found


Axes: TypeAlias = "tuple[int, ...]"
"""Numbers of axes, major first."""


@lru_cache(maxsize=8192)
def refined(columns: tuple[Column, ...]) -> tuple[tuple[int, ...], tuple[Axes, ...]] | None:
    """Return the sizes of axes, major first, and the axes of each column; None if one is not regular.

    None as well if the digits of different columns cross: there are no common axes.
    """
    if not columns or any(column.listed for column in columns):
        return None
    devices = columns[0].devices
    digits = [digit for column in columns for digit in column.digits]
    bounds = sorted({1, devices, *(s for s, _ in digits), *(s * size for s, size in digits)})
    if any(larger % smaller for smaller, larger in pairwise(bounds)):
        return None
    axes: list[Digit] = []
    for smaller, larger in pairwise(bounds):
        for size in _primes(larger // smaller):
            axes.append((smaller, size))
            smaller *= size
    axes.reverse()
    found = tuple(
        tuple(
            k
            for stride, size in column.digits
            for k, (s, _) in enumerate(axes)
            if stride <= s < stride * size
        )
        for column in columns
    )
    return tuple(size for _, size in axes), found


def column_along(axes: Iterable[int], sizes: Sequence[int]) -> Column:
    """Return the column of some axes, the first of which is the major one."""
    strides = [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
    return Column.along([(strides[k], sizes[k]) for k in axes], math.prod(sizes))


@lru_cache(maxsize=1024)
def groups_along(axes: Axes, sizes: tuple[int, ...]) -> DeviceGroups:
    """Return groups of the devices that differ in some axes only, in the order of those axes."""
    others = [k for k in range(len(sizes)) if k not in axes]
    width, devices = math.prod(sizes[k] for k in axes), math.prod(sizes)
    tiles = IotaTiles.canonical(sizes, (*others, *axes))
    groups = IotaDeviceList(devices // width, width, tiles)
    return groups if devices > MOST_LISTED else DeviceList(groups.groups)


def group_size(groups: DeviceGroups) -> int:
    """Return the number of devices of a group."""
    return groups.group_size if isinstance(groups, IotaDeviceList) else len(groups.groups[0])


def are_independent(columns: Sequence[Column]) -> bool:
    """Return true if every combination of indices is on equally many devices."""
    found = refined(tuple(columns))
    if found is not None:
        used = [k for axes in found[1] for k in axes]
        return len(used) == len(set(used))
    places = list(zip(*(column.indices for column in columns), strict=True))
    copies: dict[tuple[int, ...], int] = {}
    for place in places:
        copies[place] = copies.get(place, 0) + 1
    wanted = math.prod(column.count for column in columns)
    return len(copies) == wanted and len(set(copies.values())) == 1


def same_classes(columns: Sequence[Column], column: Column) -> bool:
    """Return true if devices have the same index in a column exactly if they have the same in all others."""
    found = refined((*columns, column))
    if found is not None:
        *others, own = found[1]
        return {k for axes in others for k in axes} == set(own)
    pairs = set(zip(zip(*(c.indices for c in columns), strict=True), column.indices, strict=True))
    return len(pairs) == len({one for one, _ in pairs}) == len({other for _, other in pairs})
