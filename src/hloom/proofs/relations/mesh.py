"""Device ids as digits: the axes of a mesh, along which groups and tilings are read.

Device ids are mixed-radix numbers. Their digits are chosen such that each tile coordinate and each device
group consists of whole digits, so that what a collective does is said in a few digits for any number of
devices.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np

from hloom.ir.affine import Index, Variable
from hloom.ir.device_groups import DeviceList, IotaDeviceList, IotaTiles, MeshDeviceList
from hloom.ir.module import HloModule
from hloom.proofs.relations.indices import Quotients
from hloom.proofs.sums import TooLarge
from hloom.sharding.tiling.coordinates import Coordinate
from hloom.sharding.tiling.tiling import Tiling

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


class NoRelation(TooLarge):
    """A value has no relation to the global arguments that the prover knows; the text says why."""


class DeviceAxes:
    """The digits of device ids.

    Attributes:
        sizes: of the digits, major first.
        partitions: the number of partitions of each replica.
        variables: one for each digit.
    """

    def __init__(self, sizes: Sequence[int], partitions: int) -> None:
        self.partitions = partitions
        self.sizes: Final = tuple(sizes)
        self.variables: Final = tuple([Variable(size, "d") for size in sizes])
        self.strides: Final = tuple([math.prod(self.sizes[k + 1 :]) for k in range(len(self.sizes))])
        self.device: Final = Index(0, zip(self.variables, self.strides, strict=True))
        self._groups: dict[object, AxisGroup] = {}

    @cached_property
    def digits(self) -> Numbers:
        """The digits of each device: an array of a row for each digit."""
        ids = np.arange(math.prod(self.sizes))
        return np.stack([ids // s % n for s, n in zip(self.strides, self.sizes, strict=True)] or [ids * 0])

    def coordinate(self, coordinate: Coordinate) -> Index:
        """Return the tile index of a device along a dimension."""
        if coordinate.listed:
            raise NoRelation("the tiles of an array are in no regular order")
        total = Index(0)
        for stride, size in coordinate.digits:
            own = [k for k, s in enumerate(self.strides) if stride <= s < stride * size]
            digit = Index(0, [(self.variables[k], self.strides[k] // stride) for k in own])
            total = total * size + digit
        return total

    def group(self, groups: object, *, ordered: bool = True) -> AxisGroup:
        """Return the axes of groups of devices, whose members have an order if this matters."""
        key = groups, ordered
        if key not in self._groups:
            members = groups_of(groups, math.prod(self.sizes))
            self._groups[key] = AxisGroup(self, members if ordered else np.sort(members, axis=1))
        return self._groups[key]


class AxisGroup:
    """Groups of devices that differ in some digits.

    Attributes:
        size: the number of devices of a group.
        weights: the digits in which the members differ, and what each adds to the number of a member.
    """

    def __init__(self, axes: DeviceAxes, members: Numbers) -> None:
        self.size: int = members.shape[1]
        places: Numbers = np.arange(self.size)
        digits = axes.digits[:, members]
        spread = digits.max(axis=2) - digits.min(axis=2)
        differs = np.flatnonzero(spread.max(axis=1)).tolist()
        first = digits[:, 0, :]
        self.weights: dict[Variable, int] = {}
        number: Numbers = np.zeros(members.shape, np.int64)
        for k in differs:
            others = [m for m in differs if m != k]
            is_unit = (first[k] == 1) & np.all(first[others] == 0, axis=0)
            weight = int(np.argmax(is_unit))
            self.weights[axes.variables[k]] = weight
            number += weight * digits[k]
        is_whole = math.prod(axes.sizes[k] for k in differs) == self.size
        if not is_whole or bool(np.any(number != places)) or members.size != axes.digits.shape[1]:
            raise NoRelation("the groups of a collective are no axes of a mesh")
        self.member = Index(0, self.weights.items())

    def at(self, member: Index, quotients: Quotients) -> dict[Variable, Index]:
        """Return the digits of a member of the group."""
        digits: dict[Variable, Index] = {}
        for variable, weight in self.weights.items():
            above = quotients.divide(member, weight)
            digits[variable] = above - quotients.divide(above, variable.extent) * variable.extent
        return digits


def sources(
    axes: DeviceAxes, pairs: Sequence[tuple[int, int]]
) -> tuple[Mapping[Variable, Index], list[Index]]:
    """Return the digits of the device from which each device receives, and conditions that there is one."""
    digits = axes.digits
    source, target = np.asarray(pairs, np.int64).reshape(-1, 2).T
    conditions: list[Index] = []
    for k, variable in enumerate(axes.variables):
        values = digits[k][target]
        low, high = int(values.min()), int(values.max())
        conditions += [Index(-low, [(variable, 1)]), Index(high, [(variable, -1)])]
    inside = np.ones(digits.shape[1], np.bool_)
    for k in range(len(axes.sizes)):
        values = digits[k][target]
        inside &= (digits[k] >= values.min()) & (digits[k] <= values.max())
    if inside.sum() != len(target):
        raise NoRelation("the targets of a permutation are no box of devices")
    moved = {v: _fitted(axes, digits[k][source], target) for k, v in enumerate(axes.variables)}
    return moved, [c for c in conditions if c.minimum() < 0]


def _fitted(axes: DeviceAxes, values: Numbers, devices: Numbers) -> Index:
    """Return an affine function of the digits with some values on some devices."""
    digits = axes.digits[:, devices]
    total = Index(int(values[0]))
    rest = values - values[0]
    for k, variable in enumerate(axes.variables):
        own = digits[k] - digits[k][0]
        alone = np.flatnonzero((own != 0) & ~np.any(np.delete(digits - digits[:, :1], k, axis=0), axis=0))
        if not alone.size:
            continue
        slope, remainder = divmod(int(rest[alone[0]]), int(own[alone[0]]))
        if remainder:
            break
        total = total + Index(-slope * int(digits[k][0]), [(variable, slope)])
    numbers = total.constant + sum(c * digits[axes.variables.index(v)] for v, c in total.terms)
    if (np.broadcast_to(numbers, values.shape) != values).any():
        raise NoRelation("a permutation of devices is not affine in the axes of a mesh")
    return total


# -- the choice of digits


def axes_of(module: HloModule, whole: HloModule, tilings: Iterable[Tiling]) -> DeviceAxes:
    """Return the digits of the devices of a partitioned program, and of the global one's collectives."""
    devices = module.config.replica_count * module.config.num_partitions
    bounds = {1, devices, module.config.num_partitions}
    for tiling in tilings:
        coordinates = [*tiling.coordinates, *([tiling.unreduced] if tiling.unreduced else [])]
        for stride, size in (digit for c in coordinates for digit in c.digits):
            bounds |= {stride, stride * size}
    for i in (*module.instructions(), *whole.instructions()):
        bounds |= _bounds(getattr(i.operation, "replica_groups", None), devices)
    ordered = sorted(bounds)
    if any(larger % smaller for smaller, larger in pairwise(ordered)):
        raise NoRelation("the groups of collectives share no mesh")
    sizes = [larger // smaller for smaller, larger in pairwise(ordered)]
    return DeviceAxes(sizes[::-1], module.config.num_partitions)


def _bounds(groups: object, devices: int) -> set[int]:
    """Return the strides, and their multiples, of the devices of groups."""
    match groups:
        case IotaDeviceList(tiles=IotaTiles(reshape=sizes)):
            return {math.prod(sizes[k:]) for k in range(len(sizes) + 1)}
        case MeshDeviceList(mesh=mesh) if mesh.device_ids is None:
            return {math.prod(mesh.sizes[k:]) for k in range(len(mesh.sizes) + 1)}
        case DeviceList(groups=lists) if lists:
            return _steps(sorted(lists[0]))
        case _:
            return set()


def _steps(ids: Sequence[int]) -> set[int]:
    """Return where runs of equal steps begin and end in the ids of a group."""
    bounds: set[int] = set()
    while len(ids) > 1:
        stride, count = ids[1] - ids[0], 1
        while count < len(ids) and ids[count] - ids[0] == stride * count:
            count += 1
        bounds |= {stride, stride * count}
        ids = ids[::count]
    return bounds


def groups_of(groups: object, devices: int) -> Numbers:
    """Return an array of a row for each group."""
    match groups:
        case IotaDeviceList(group_size=size, tiles=tiles):
            ids = np.arange(math.prod(tiles.reshape)).reshape(tiles.reshape)
            return ids.transpose(tiles.permutation).reshape(-1, size)
        case DeviceList(groups=()) | None:
            return np.arange(devices).reshape(1, -1)
        case _:
            lists: Any = getattr(groups, "groups", ())
            if len({len(each) for each in lists}) != 1:
                raise NoRelation("the groups of a collective have different sizes")
            return np.asarray(lists, np.int64)
