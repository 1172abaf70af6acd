"""Resharding plans: the collectives that convert one tiling to another, and the elements that they send.

The direct plan consists of a permutation, if tiles of the right size are on the wrong devices; all-to-alls,
which move axes between dimensions; all-gathers along excess axes; and slices, which send nothing. If it has
several steps, `plan_search.py` looks for a plan that sends less.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from hloom.records import dataclass
from hloom.sharding.planning.plan_search import MOST_AXES, Move, Search, State, merged
from hloom.sharding.tiling.coordinates import (
    Axes,
    Coordinate,
    DeviceGroups,
    coordinate_along,
    groups_along,
    refined,
)
from hloom.sharding.tiling.ranges import Halo, by_device, elements_of_tiles
from hloom.sharding.tiling.tiling import Tiling


@dataclass(frozen=True, slots=True)
class PermuteStep:
    """A resharding step that is a collective-permute of tiles.

    Attributes:
        pairs: pairs of device ids, (source, target).
        after: the tiling after the step.
    """

    pairs: tuple[tuple[int, int], ...]
    after: Tiling


@dataclass(frozen=True, slots=True)
class AllToAllStep:
    """A resharding step that is an all-to-all: it moves mesh axes from one dimension to another.

    Attributes:
        source, target: the dimension that the mesh axes shard before the step, and the one that they shard
            afterwards.
        groups: the groups of devices that exchange parts of their tiles.
        after: the tiling after the step.
    """

    source: int
    target: int
    groups: DeviceGroups
    after: Tiling


@dataclass(frozen=True, slots=True)
class AllGatherStep:
    """A resharding step that is an all-gather along a dimension.

    Attributes:
        dimension: the dimension.
        groups: the groups of devices that gather each other's tiles.
        after: the tiling after the step.
    """

    dimension: int
    groups: DeviceGroups
    after: Tiling


@dataclass(frozen=True, slots=True)
class BroadcastStep:
    """A resharding step that gathers tiles along a dimension by one collective-broadcast per tile.

    It replaces an all-gather if most tiles of a group are all padding; these are not sent.

    Attributes:
        dimension: the dimension.
        groups: the groups of devices that gather each other's tiles.
        after: the tiling after the step.
        tiles: the number of broadcasts; the first devices of each group broadcast their tiles.
    """

    dimension: int
    groups: DeviceGroups
    after: Tiling
    tiles: int


@dataclass(frozen=True, slots=True)
class HaloStep:
    """A resharding step that is a halo exchange: each device fetches the elements that its new tile needs.

    Attributes:
        dimension: the dimension whose tiling changes.
        halo: the index range along the dimension that each device needs.
        after: the tiling after the step.
    """

    dimension: int
    halo: Halo
    after: Tiling


@dataclass(frozen=True, slots=True)
class SliceStep:
    """A resharding step that is a dynamic-slice of the current tile; it needs no communication.

    Attributes:
        after: the finer tiling after the step.
    """

    after: Tiling


_MOST_BROADCASTS: Final = 4
"""Maximum number of tiles whose broadcasts replace an all-gather with empty tiles."""

Step: TypeAlias = PermuteStep | AllToAllStep | AllGatherStep | BroadcastStep | HaloStep | SliceStep
ReshardingPlan: TypeAlias = "tuple[tuple[Step, ...], int]"
"""The steps, and the number of elements that a device sends."""


@lru_cache(maxsize=8192)
def plan(
    dimensions: tuple[int, ...], have: Tiling, want: Tiling, fixed: tuple[Coordinate, ...]
) -> ReshardingPlan:
    """Return the resharding steps from tiling ``have`` to ``want``, and the elements that a device sends.

    Partial sums are not allowed in either tiling.

    Args:
        dimensions: the dimensions of the global array.
        have, want: the tilings before and after.
        fixed: coordinates (one index per device); devices with different indices must not exchange data.
    """
    if have == want:
        return (), 0
    return _regular(dimensions, have, want, fixed) or _irregular(dimensions, have, want, fixed)


def sent(dimensions: Sequence[int], have: Tiling, want: Tiling, fixed: tuple[Coordinate, ...]) -> int:
    """Return the number of elements that a device sends to reshard an array from tiling ``have`` to ``want``.

    If ``have`` has partial sums, this includes the elements sent to reduce them. ``dimensions`` are those of
    the global array. ``fixed`` has coordinates (one index per device); devices with different indices must
    not exchange data.
    """
    reduction = 2 * math.prod(have.local(dimensions)) if have.unreduced is not None else 0
    return reduction + plan(tuple(dimensions), have.reduced(), want.reduced(), fixed)[1]


def _regular(
    dimensions: tuple[int, ...], have: Tiling, want: Tiling, fixed: tuple[Coordinate, ...]
) -> ReshardingPlan | None:
    """Return the resharding plan for two tilings that shard dimensions over the axes of one device mesh.

    Returns None if no mesh fits both tilings. The arguments are those of `plan`: the dimensions of the global
    array, the tilings before and after, and coordinates (one index per device); devices with different
    indices must not exchange data.
    """
    basis = refined((*have.coordinates, *want.coordinates, *fixed))
    if basis is None:
        return None
    sizes, axes = basis
    rank = len(dimensions)
    fixed_axes = {k for axes_of_coordinate in axes[2 * rank :] for k in axes_of_coordinate}
    return _RegularPlan(dimensions, sizes, axes[:rank], axes[rank : 2 * rank], fixed_axes).planned()


class _RegularPlan:
    """Builds the steps of a resharding plan between two tilings over the axes of one device mesh.

    Attributes:
        dimensions: the dimensions of the global array.
        sizes: the size of each axis.
        axes: the axes that shard each dimension after the steps so far, major axis first.
        target: the axes that shard each dimension after the last step.
        fixed, free: the axes along which no data may move, and the others.
        steps: the steps so far.
        elements: the number of elements that a device sends in the steps so far.
    """

    def __init__(
        self,
        dimensions: tuple[int, ...],
        sizes: tuple[int, ...],
        start: Sequence[Axes],
        target: Sequence[Axes],
        fixed: Collection[int],
    ) -> None:
        self.dimensions = dimensions
        self.sizes = sizes
        self.axes = [list(axes) for axes in start]
        self.target: State = tuple(target)
        self.fixed = fixed
        self.free = [k for k in range(len(sizes)) if k not in fixed]
        self.steps: list[Step] = []
        self.elements = 0

    def planned(self) -> ReshardingPlan:
        """Return the resharding plan: the direct plan, unless a search finds one that sends fewer elements.

        The direct plan has collective-permute, all-to-alls, halo exchanges, all-gathers and dynamic-slice, as
        far as needed, in this order.
        """
        start = tuple(map(tuple, self.axes))
        self._permute_once()
        self._exchange_axes()
        self._exchange_halos()
        self._gather_excess()
        self._slice()
        direct = tuple(self.steps), self.elements
        if self.elements == 0 or len(self.steps) == 1:
            return direct
        return self._searched(start) or direct

    def _searched(self, start: State) -> ReshardingPlan | None:
        """Search for a plan in which a device sends fewer than ``self.elements`` elements.

        ``start`` has the mesh axes that shard each dimension before the first step. Returns None if no plan
        was found.
        """
        if len(self.sizes) > MOST_AXES:
            sizes, (*states, fixed) = merged(self.sizes, (*start, *self.target, tuple(self.fixed)))
            rank = len(start)
            if len(sizes) == len(self.sizes):
                return None
            steps = _RegularPlan(self.dimensions, sizes, states[:rank], states[rank:], fixed)
            steps.elements = self.elements
            return steps._searched(tuple(states[:rank]))
        moves = Search(self.dimensions, self.sizes, start, self.target, self.fixed, self.elements).shortest()
        return None if moves is None else self._replayed(start, moves)

    def _replayed(self, start: State, moves: Sequence[Move]) -> ReshardingPlan:
        """Convert the steps in ``moves``, which the search found, to a resharding plan.

        ``start`` has the mesh axes that shard each dimension before the first step.
        """
        self.axes = [list(axes) for axes in start]
        self.steps.clear()
        self.elements = 0
        for move in moves:
            match move.kind:
                case "permute":
                    self._permute([list(axes) for axes in move.after])
                case "all-to-all":
                    self._exchange(move.source, move.target, list(move.after[move.source]), list(move.axes))
                case "all-gather":
                    self._gather(move.source, len(move.after[move.source]))
                case _:
                    self.axes = [list(axes) for axes in move.after]
                    self.steps.append(SliceStep(self._tiling()))
        return tuple(self.steps), self.elements

    def _count(self, axes: Sequence[int]) -> int:
        return math.prod(self.sizes[k] for k in axes)

    def _local(self) -> list[int]:
        return [-(-n // self._count(axes)) for n, axes in zip(self.dimensions, self.axes, strict=True)]

    def _tiling(self) -> Tiling:
        coordinates = tuple(coordinate_along(axes, self.sizes) for axes in self.axes)
        return Tiling(tuple(map(self._count, self.axes)), coordinates, math.prod(self.sizes))

    def _fits(self, d: int, coarse: Sequence[int], fine: Sequence[int]) -> bool:
        """Return true if each coarse tile of dimension ``d`` consists of whole fine tiles.

        Sharding the dimension over the mesh axes ``coarse`` or ``fine`` gives these tiles. Always true if
        there is only one coarse tile.
        """
        few, many = self._count(coarse), self._count(fine)
        return few == 1 or -(-self.dimensions[d] // few) == -(-self.dimensions[d] // many) * (many // few)

    def _arranged(self) -> list[list[int]] | None:
        """Return, for each dimension, the mesh axes that shard it after an initial collective-permute.

        The number of tiles along each dimension stays the same, as a permute requires. As many leading axes
        as possible are those of the target tiling. Returns None if no axes give that number of tiles.
        """
        arranged: list[list[int]] = []
        for axes, target in zip(self.axes, self.target, strict=True):
            count, few = self._count(axes), 1
            prefix: list[int] = []
            for k in target:
                if count % (few * self.sizes[k]):
                    break
                prefix.append(k)
                few *= self.sizes[k]
            arranged.append(prefix)
        deficits = [k for a, t in zip(arranged, self.target, strict=True) for k in t[len(a) :]]
        for d, axes in enumerate(self.axes):
            lacking = self._count(axes) // self._count(arranged[d])
            excess = [k for k in axes if k not in arranged[d]]
            used = {k for a in arranged for k in a}
            leaving = [k for k in excess if k in deficits]
            order = [*(k for k in excess if k not in deficits), *leaving, *deficits, *self.free]
            for k in dict.fromkeys(order):
                if lacking > 1 and k not in used and lacking % self.sizes[k] == 0:
                    arranged[d].append(k)
                    used.add(k)
                    lacking //= self.sizes[k]
            if lacking > 1:
                return None
        return arranged

    def _permute_once(self) -> None:
        """Add a collective-permute that gives dimensions the leading mesh axes that the target tiling has.

        The number of tiles along each dimension stays the same. Adds nothing if no permute is needed or
        possible, or if it would move data along a fixed axis.
        """
        arranged = self._arranged()
        if arranged is None or arranged == self.axes:
            return
        allowed = set(self.free)
        changed = [k for a, b in zip(arranged, self.axes, strict=True) if a != b for k in (*a, *b)]
        if allowed.issuperset(changed):
            self._permute(arranged)

    def _permute(self, arranged: list[list[int]]) -> None:
        before = self._tiling()
        self.elements += math.prod(self._local())
        self.axes = arranged
        after = self._tiling()
        self.steps.append(PermuteStep(_pairs(before, after), after))

    def _exchange_axes(self) -> None:
        """Add all-to-alls that move minor mesh axes to the dimension that the target shards over them."""
        for d, axes in enumerate(self.axes):
            for e, target in enumerate(self.target):
                current = self.axes[e]
                if e == d or list(target[: len(current)]) != current:
                    continue
                missing = list(target[len(current) :])
                for length in range(min(len(missing), len(axes)), 0, -1):
                    major, moved = axes[: len(axes) - length], axes[len(axes) - length :]
                    is_final = list(self.target[d][: len(axes)]) == axes
                    if moved != missing[:length] or is_final:
                        continue
                    if self._fits(d, major, axes) and self._fits(e, current, [*current, *moved]):
                        self._exchange(d, e, major, moved)
                        self._exchange_axes()
                        return

    def _exchange(self, d: int, e: int, major: list[int], moved: list[int]) -> None:
        """Add an all-to-all after which the mesh axes ``moved`` shard dimension ``e`` instead of ``d``.

        ``major`` are the axes that still shard dimension ``d``.
        """
        count = self._count(moved)
        local = self._local()
        padded = -(-self.dimensions[e] // self._count([*self.axes[e], *moved])) * count
        size = math.prod(local) // max(local[e], 1) * padded
        self.elements += size * (count - 1) // count
        self.axes[d] = major
        self.axes[e] = [*self.axes[e], *moved]
        self.steps.append(AllToAllStep(d, e, groups_along(tuple(moved), self.sizes), self._tiling()))

    def _exchange_halos(self) -> None:
        """Add a halo exchange for each dimension that its current or target tiles divide unevenly.

        Adds it only if it sends less than the alternative, an all-gather followed by a slice.
        """
        for d, (axes, target) in enumerate(zip(self.axes, self.target, strict=True)):
            others = {k for e, axes_of_dimension in enumerate(self.axes) if e != d for k in axes_of_dimension}
            extent = self.dimensions[d]
            even = extent % self._count(axes) == 0 == extent % self._count(target)
            if even or not axes or not target or list(target) == axes or others.intersection(target):
                continue
            before, local = self._tiling(), self._local()
            fixed = [coordinate_along((k,), self.sizes) for k in self.fixed]
            coordinate = coordinate_along(target, self.sizes)
            after = Tiling((self._count(target),), (coordinate,), before.devices)
            step = _halo_step(before, d, extent, after, fixed)
            stride = math.prod(n for e, n in enumerate(local) if e != d)
            if step is not None and step.halo.sent() < self._tiles_to_gather(d, target) * local[d]:
                self.steps.append(step)
                self.elements += step.halo.sent() * stride
                self.axes[d] = list(target)

    def _tiles_to_gather(self, d: int, target: Sequence[int]) -> int:
        """Return the number of tiles that a device sends if dimension ``d`` is all-gathered and then sliced.

        ``target`` are the mesh axes that shard the dimension afterwards. Returns 0 if slicing suffices.
        """
        axes = self.axes[d]
        if list(target[: len(axes)]) == axes and self._fits(d, axes, target):
            return 0
        return _tiles_sent(self._count(axes), _filled(self.dimensions[d], self._local()[d]))

    def _gather_excess(self) -> None:
        """Add an all-gather for each dimension whose mesh axes are not the leading ones of the target tiling.

        The dimension stays sharded over the leading axes that it has in common with the target, as long as
        the tiles fit together.
        """
        for d, axes in enumerate(self.axes):
            target = list(self.target[d])
            common = 0
            while common < min(len(axes), len(target)) and axes[common] == target[common]:
                common += 1
            if common == len(axes):
                continue
            while common and not self._fits(d, axes[:common], axes):
                common -= 1
            self._gather(d, common)

    def _gather(self, d: int, count: int) -> None:
        """Add an all-gather of dimension ``d``, which stays sharded over its ``count`` major axes only."""
        moved = tuple(self.axes[d][count:])
        local = self._local()
        groups = groups_along(moved, self.sizes)
        self.axes[d] = self.axes[d][:count]
        filled = self._count(moved) if count else _filled(self.dimensions[d], local[d])
        step, times = _gather_step(d, groups, self._count(moved), filled, self._tiling())
        self.elements += math.prod(local) * times
        self.steps.append(step)

    def _slice(self) -> None:
        """Add the dynamic-slice that yields the target tiling, unless it is reached already.

        Dimensions whose current tiles do not consist of whole target tiles are all-gathered first.
        """
        for d, axes in enumerate(self.axes):
            if not self._fits(d, axes, self.target[d]):
                self._gather(d, 0)
        if [list(axes) for axes in self.target] != self.axes:
            self.axes = [list(axes) for axes in self.target]
            self.steps.append(SliceStep(self._tiling()))


def _filled(extent: int, local: int) -> int:
    """Return the number of tiles of a dimension that are not all padding; 1 if the dimension is empty.

    ``extent`` is the global extent of the dimension, ``local`` the extent of a tile.
    """
    return -(-extent // local) if extent else 1


def _gather_step(
    d: int, groups: DeviceGroups, tiles: int, filled: int, after: Tiling
) -> tuple[AllGatherStep | BroadcastStep, int]:
    """Return the step that joins the tiles of each group along ``d``, and how many tiles a device sends.

    The step is an all-gather or, if most tiles are all padding, a broadcast of each of the remaining tiles.

    Args:
        d: the dimension.
        groups: the groups of devices.
        tiles: the number of tiles in a group.
        filled: the number of tiles in a group that are not all padding.
        after: the tiling after the step.
    """
    times = _tiles_sent(tiles, filled)
    return (
        BroadcastStep(d, groups, after, filled) if times == filled else AllGatherStep(d, groups, after)
    ), times


def _tiles_sent(tiles: int, filled: int) -> int:
    """Return the number of tiles that a device sends to join the tiles of a group.

    ``tiles`` is the number of tiles in the group, ``filled`` the number of those that are not all padding.
    Returns ``filled`` if it is best to broadcast only these, else ``tiles - 1``, as an all-gather sends.
    """
    return filled if filled <= min(_MOST_BROADCASTS, tiles - 2) or filled == 1 < tiles else tiles - 1


def _halo_step(
    before: Tiling, d: int, extent: int, after: Tiling, fixed: Sequence[Coordinate]
) -> HaloStep | None:
    """Return the halo exchange that reshards dimension ``d`` to the tiling ``after``; None if not supported.

    Args:
        before: the current tiling of the array.
        d: the dimension.
        extent: the global extent of the dimension.
        after: the new tiling of the dimension, of rank 1.
        fixed: coordinates (one index per device); devices with different indices must not exchange data.
    """
    (tiles,), (local,) = after.tiles, after.local([extent])
    starts = tuple(p * local for p in range(tiles))
    needed = elements_of_tiles(extent, tiles)
    halo = by_device(Halo(extent, starts, local, needed), before, d, after.coordinates[0], fixed)
    return HaloStep(d, halo, before.replaced(d, after)) if halo is not None else None


@lru_cache(maxsize=64)
def _pairs(before: Tiling, after: Tiling) -> tuple[tuple[int, int], ...]:
    """Return the (source, target) pairs of the collective-permute that reshards ``before`` to ``after``.

    A device that already has its new tile sends it to itself.
    """
    owners: dict[object, list[int]] = {}
    for device, tile in enumerate(before.tile_indices):
        owners.setdefault(tile, []).append(device)
    source_of: dict[int, int] = {}
    for device, tile in enumerate(after.tile_indices):
        if device in owners[tile]:
            owners[tile].remove(device)
            source_of[device] = device
    for device, tile in enumerate(after.tile_indices):
        if device not in source_of:
            source_of[device] = owners[tile].pop(0)
    return tuple(sorted((source, target) for target, source in source_of.items()))


def _irregular(
    dimensions: tuple[int, ...], have: Tiling, want: Tiling, fixed: tuple[Coordinate, ...]
) -> ReshardingPlan:
    """Return a resharding plan for any two tilings, even if they are not over axes of one device mesh.

    The plan permutes tiles if both tilings have the same number of tiles along each dimension and ``fixed``
    is empty; otherwise it all-gathers the dimensions that change, and slices them. The arguments are those of
    `plan`: the dimensions of the global array, the tilings before and after, and coordinates (one index per
    device); devices with different indices must not exchange data.
    """
    local = math.prod(have.local(dimensions))
    if have.tiles == want.tiles and not fixed:
        return (PermuteStep(_pairs(have, want), want.reduced()),), local
    steps: list[Step] = []
    elements = 0
    changed = [d for d in range(len(dimensions)) if not have.is_sharded_like(d, want, d)]
    current = have
    for d in changed:
        if current.is_sharded(d):
            groups, tile = current.groups([d], fixed), current.local(dimensions)
            filled = _filled(dimensions[d], tile[d])
            step, times = _gather_step(d, groups, current.tiles[d], filled, current.without([d]))
            elements += math.prod(tile) * times
            current = step.after
            steps.append(step)
    if any(want.is_sharded(d) for d in changed):
        steps.append(SliceStep(want.reduced()))
    return tuple(steps), elements
