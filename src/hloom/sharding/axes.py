"""Axes: the digits of a device's number, and tilings in terms of them.

The number of a device is written with a prime radix for each digit, the major one first: 8 devices have three
axes of size 2. A regular tiling cuts each dimension along a list of axes. What two tilings have in common,
and how to get from one to the other, follows from these lists.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations
from typing import TypeAlias

import numpy as np

from hloom.ir.device_groups import Groups
from hloom.sharding.tiling import Tiling

Cuts: TypeAlias = "tuple[tuple[int, ...], ...]"
"""For each dimension, the axes that cut it, major first."""


@lru_cache
def radices(devices: int) -> tuple[tuple[int, ...], ...]:
    """Return the orders of the prime factors of a number of devices: one, if they are all the same."""
    primes: list[int] = []
    rest, candidate = devices, 2
    while rest > 1:
        while rest % candidate == 0:
            primes.append(candidate)
            rest //= candidate
        candidate += 1
    if len(set(primes)) < 2:
        return (tuple(primes),)
    return tuple(sorted(set(permutations(primes)))) if len(primes) < 7 else (tuple(primes),)


@lru_cache(maxsize=4096)
def axes_of(column: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the axes that number the tiles as a column does, device by device; None if there are none."""
    strides = [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
    if column[0] != 0:
        return None
    weights = [column[stride] for stride in strides]
    used = sorted((k for k, w in enumerate(weights) if w), key=lambda k: -weights[k])
    behind = 1
    for k in reversed(used):
        if weights[k] != behind:
            return None
        behind *= sizes[k]
    return tuple(used) if column == numbered(tuple(used), sizes) else None


@lru_cache(maxsize=4096)
def numbered(axes: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of each device along axes, the first of which is the major one."""
    numbers = np.arange(math.prod(sizes))
    total = np.zeros_like(numbers)
    for k in axes:
        total = total * sizes[k] + numbers // math.prod(sizes[k + 1 :]) % sizes[k]
    return tuple(total.tolist())


def cuts_of(tilings: Sequence[Tiling]) -> tuple[tuple[int, ...], list[Cuts]] | None:
    """Return axes and the cuts of each tiling along them; None if a tiling is not regular."""
    for sizes in radices(tilings[0].devices):
        found = [[axes_of(t.column(d), sizes) for d in range(len(t.tiles))] for t in tilings]
        if all(axes is not None for dims in found for axes in dims):
            return sizes, [tuple(axes for axes in dims if axes is not None) for dims in found]
    return None


def tiling_of(cuts: Cuts, sizes: tuple[int, ...]) -> Tiling:
    """Return the tiling that cuts each dimension along axes."""
    count = math.prod(sizes)
    tiles = tuple(math.prod(sizes[k] for k in axes) for axes in cuts)
    columns = [numbered(axes, sizes) for axes in cuts]
    return Tiling(tiles, tuple(zip(*columns, strict=True)) if columns else ((),) * count)


def groups_along(axes: tuple[int, ...], sizes: tuple[int, ...]) -> Groups:
    """Return groups of the devices that differ in some axes only, in the order of those axes."""
    numbers = np.arange(math.prod(sizes)).reshape(sizes)
    others = [k for k in range(len(sizes)) if k not in axes]
    width = math.prod(sizes[k] for k in axes)
    return tuple(map(tuple, numbers.transpose(*others, *axes).reshape(-1, width).tolist()))
