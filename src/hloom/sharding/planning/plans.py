"""Plans: the collectives that turn tiles of one tiling into those of another, with the bytes that they send.

The direct way has this order: one permutation, if devices have the wrong tiles of the right size; exchanges
(all-to-all) of cuts between dimensions; gathers along what remains cut; slices, which send nothing. If that
takes several steps, a search finds out whether others send less.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from hloom.sharding.planning.plan_search import MOST_AXES, Move, Search, State, merged
from hloom.sharding.tiling.coordinates import Axes, Column, DeviceGroups, column_along, groups_along, refined
from hloom.sharding.tiling.ranges import Halo, by_device
from hloom.sharding.tiling.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Permute:
    """Devices send their tiles to others."""

    pairs: tuple[tuple[int, int], ...]
    after: Tiling


@dataclass(frozen=True, slots=True)
class Exchange:
    """All-to-all: a cut moves from one dimension to another."""

    source: int
    target: int
    groups: DeviceGroups
    after: Tiling


@dataclass(frozen=True, slots=True)
class Gather:
    """All-gather along a dimension."""

    dimension: int
    groups: DeviceGroups
    after: Tiling


@dataclass(frozen=True, slots=True)
class Spread:
    """The devices of a group that have tiles with elements of the array send them to the others.

    Attributes:
        tiles: the number of these tiles, the first ones.
    """

    dimension: int
    groups: DeviceGroups
    after: Tiling
    tiles: int


@dataclass(frozen=True, slots=True)
class Retile:
    """Devices get the ranges of their new tiles of a dimension from those that hold parts of them."""

    dimension: int
    halo: Halo
    after: Tiling


@dataclass(frozen=True, slots=True)
class Cut:
    """Every device takes its part of what it has."""

    after: Tiling


_MOST_SPREAD: Final = 4
"""Number of tiles up to which each is sent on its own, instead of all with the empty ones."""

Step: TypeAlias = Permute | Exchange | Gather | Spread | Retile | Cut
Plan: TypeAlias = "tuple[tuple[Step, ...], int]"
"""The steps, and the elements that a device sends."""


@lru_cache(maxsize=8192)
def plan(dimensions: tuple[int, ...], have: Tiling, want: Tiling, fixed: tuple[Column, ...]) -> Plan:
    """Return the steps from one tiling of an array to another.

    Args:
        dimensions: those of the whole array.
        fixed: columns in which devices that work together must agree.
    """
    if have == want:
        return (), 0
    return _regular(dimensions, have, want, fixed) or _irregular(dimensions, have, want, fixed)


def sent(dimensions: Sequence[int], have: Tiling, want: Tiling, fixed: tuple[Column, ...]) -> int:
    """Return the number of elements that a device sends for a resharding; summands are added first."""
    added = 2 * math.prod(have.local(dimensions)) if have.summands is not None else 0
    return added + plan(tuple(dimensions), have.summed(), want.summed(), fixed)[1]


def _regular(
    dimensions: tuple[int, ...], have: Tiling, want: Tiling, fixed: tuple[Column, ...]
) -> Plan | None:
    """Return a plan for regular tilings; None if there is none, or tiles do not fit into each other."""
    found = refined((*have.columns, *want.columns, *fixed))
    if found is None:
        return None
    sizes, axes = found
    rank = len(dimensions)
    held = {k for one in axes[2 * rank :] for k in one}
    return _Steps(dimensions, sizes, axes[:rank], axes[rank : 2 * rank], held).planned()


class _Steps:
    """The steps of a regular resharding, as they are found."""

    def __init__(
        self,
        dimensions: tuple[int, ...],
        sizes: tuple[int, ...],
        have: Sequence[Axes],
        want: Sequence[Axes],
        held: Collection[int],
    ) -> None:
        self.dimensions = dimensions
        self.sizes = sizes
        self.cuts = [list(axes) for axes in have]
        self.want: State = tuple(want)
        self.held = held
        self.free = [k for k in range(len(sizes)) if k not in held]
        self.steps: list[Step] = []
        self.elements = 0

    def planned(self) -> Plan:
        """Return the plan: the direct way, unless a search finds one that sends less."""
        start = tuple(map(tuple, self.cuts))
        self._permute_once()
        self._exchange_cuts()
        self._retile()
        self._gather_rest()
        self._cut()
        direct = tuple(self.steps), self.elements
        if self.elements == 0 or len(self.steps) == 1:
            return direct
        return self._searched(start) or direct

    def _searched(self, start: State) -> Plan | None:
        """Return a plan that sends less than the direct one; None if none is found."""
        if len(self.sizes) > MOST_AXES:
            sizes, (*states, held) = merged(self.sizes, (*start, *self.want, tuple(self.held)))
            rank = len(start)
            if len(sizes) == len(self.sizes):
                return None
            steps = _Steps(self.dimensions, sizes, states[:rank], states[rank:], held)
            steps.elements = self.elements
            return steps._searched(tuple(states[:rank]))
        moves = Search(self.dimensions, self.sizes, start, self.want, self.held, self.elements).found()
        return None if moves is None else self._replayed(start, moves)

    def _replayed(self, start: State, moves: Sequence[Move]) -> Plan:
        """Return the plan of some moves."""
        self.cuts = [list(axes) for axes in start]
        self.steps.clear()
        self.elements = 0
        for move in moves:
            match move.kind:
                case "permute":
                    self._permute([list(axes) for axes in move.after])
                case "exchange":
                    self._exchange(move.source, move.target, list(move.after[move.source]), list(move.axes))
                case "gather":
                    self._gather(move.source, len(move.after[move.source]))
                case _:
                    self.cuts = [list(axes) for axes in move.after]
                    self.steps.append(Cut(self._tiling()))
        return tuple(self.steps), self.elements

    def _count(self, axes: Sequence[int]) -> int:
        return math.prod(self.sizes[k] for k in axes)

    def _local(self) -> list[int]:
        return [-(-n // self._count(axes)) for n, axes in zip(self.dimensions, self.cuts, strict=True)]

    def _tiling(self) -> Tiling:
        columns = tuple(column_along(axes, self.sizes) for axes in self.cuts)
        return Tiling(tuple(map(self._count, self.cuts)), columns, math.prod(self.sizes))

    def _fits(self, d: int, coarse: Sequence[int], fine: Sequence[int]) -> bool:
        """Return true if coarse tiles of a dimension consist of whole fine ones, or there is only one."""
        few, many = self._count(coarse), self._count(fine)
        return few == 1 or -(-self.dimensions[d] // few) == -(-self.dimensions[d] // many) * (many // few)

    def _arranged(self) -> list[list[int]] | None:
        """Return cuts of the present numbers of tiles, as close to the wanted ones as possible."""
        made: list[list[int]] = []
        for axes, wanted in zip(self.cuts, self.want, strict=True):
            count, few = self._count(axes), 1
            prefix: list[int] = []
            for k in wanted:
                if count % (few * self.sizes[k]):
                    break
                prefix.append(k)
                few *= self.sizes[k]
            made.append(prefix)
        deficits = [k for m, w in zip(made, self.want, strict=True) for k in w[len(m) :]]
        for d, axes in enumerate(self.cuts):
            lacking = self._count(axes) // self._count(made[d])
            own = [k for k in axes if k not in made[d]]
            taken = {k for m in made for k in m}
            leaving = [k for k in own if k in deficits]
            order = [*(k for k in own if k not in deficits), *leaving, *deficits, *self.free]
            for k in dict.fromkeys(order):
                if lacking > 1 and k not in taken and lacking % self.sizes[k] == 0:
                    made[d].append(k)
                    taken.add(k)
                    lacking //= self.sizes[k]
            if lacking > 1:
                return None
        return made

    def _permute_once(self) -> None:
        """Permute once, if devices have tiles of the right size but not the right ones."""
        arranged = self._arranged()
        if arranged is None or arranged == self.cuts:
            return
        allowed = set(self.free)
        changed = [k for a, b in zip(arranged, self.cuts, strict=True) if a != b for k in (*a, *b)]
        if allowed.issuperset(changed):
            self._permute(arranged)

    def _permute(self, arranged: list[list[int]]) -> None:
        before = self._tiling()
        self.elements += math.prod(self._local())
        self.cuts = arranged
        after = self._tiling()
        self.steps.append(Permute(_pairs(before, after), after))

    def _exchange_cuts(self) -> None:
        """Move cuts from dimensions with too many to those that want them."""
        for d, axes in enumerate(self.cuts):
            for e, wanted in enumerate(self.want):
                have = self.cuts[e]
                if e == d or list(wanted[: len(have)]) != have:
                    continue
                rest = list(wanted[len(have) :])
                for length in range(min(len(rest), len(axes)), 0, -1):
                    kept, moved = axes[: len(axes) - length], axes[len(axes) - length :]
                    is_kept = list(self.want[d][: len(axes)]) == axes
                    if moved != rest[:length] or is_kept:
                        continue
                    if self._fits(d, kept, axes) and self._fits(e, have, [*have, *moved]):
                        self._exchange(d, e, kept, moved)
                        self._exchange_cuts()
                        return

    def _exchange(self, d: int, e: int, kept: list[int], moved: list[int]) -> None:
        count = self._count(moved)
        local = self._local()
        padded = -(-self.dimensions[e] // self._count([*self.cuts[e], *moved])) * count
        size = math.prod(local) // max(local[e], 1) * padded
        self.elements += size * (count - 1) // count
        self.cuts[d] = kept
        self.cuts[e] = [*self.cuts[e], *moved]
        self.steps.append(Exchange(d, e, groups_along(tuple(moved), self.sizes), self._tiling()))

    def _retile(self) -> None:
        """Retile the ranges of new tiles where neither old ones nor new ones divide a dimension evenly."""
        for d, (axes, wanted) in enumerate(zip(self.cuts, self.want, strict=True)):
            others = {k for e, one in enumerate(self.cuts) if e != d for k in one}
            extent = self.dimensions[d]
            even = extent % self._count(axes) == 0 == extent % self._count(wanted)
            if even or not axes or not wanted or list(wanted) == axes or others.intersection(wanted):
                continue
            before, local = self._tiling(), self._local()
            fixed = [column_along((k,), self.sizes) for k in self.held]
            column = column_along(wanted, self.sizes)
            step = _retile(before, d, extent, (self._count(wanted), column), fixed)
            rest = math.prod(n for e, n in enumerate(local) if e != d)
            if step is not None and step.halo.sent() < self._joining(d, wanted) * local[d]:
                self.steps.append(step)
                self.elements += step.halo.sent() * rest
                self.cuts[d] = list(wanted)

    def _joining(self, d: int, wanted: Sequence[int]) -> int:
        """Return how many tiles a device sends if new tiles are cut from joined ones."""
        axes = self.cuts[d]
        if list(wanted[: len(axes)]) == axes and self._fits(d, axes, wanted):
            return 0
        return _joined_tiles(self._count(axes), _filled(self.dimensions[d], self._local()[d]))

    def _gather_rest(self) -> None:
        """Gather along what is cut but should not be."""
        for d, axes in enumerate(self.cuts):
            wanted = list(self.want[d])
            common = 0
            while common < min(len(axes), len(wanted)) and axes[common] == wanted[common]:
                common += 1
            if common == len(axes):
                continue
            while common and not self._fits(d, axes[:common], axes):
                common -= 1
            self._gather(d, common)

    def _gather(self, d: int, kept: int) -> None:
        """Gather a dimension, so that only the first of the axes cut it."""
        moved = tuple(self.cuts[d][kept:])
        local = self._local()
        groups = groups_along(moved, self.sizes)
        self.cuts[d] = self.cuts[d][:kept]
        filled = self._count(moved) if kept else _filled(self.dimensions[d], local[d])
        step, times = _joined(d, groups, self._count(moved), filled, self._tiling())
        self.elements += math.prod(local) * times
        self.steps.append(step)

    def _cut(self) -> None:
        """Take parts along what is wanted; tiles must consist of whole parts."""
        for d, axes in enumerate(self.cuts):
            if not self._fits(d, axes, self.want[d]):
                self._gather(d, 0)
        if [list(axes) for axes in self.want] != self.cuts:
            self.cuts = [list(axes) for axes in self.want]
            self.steps.append(Cut(self._tiling()))


def _filled(extent: int, local: int) -> int:
    """Return the number of tiles that have elements of a dimension; 1 if it has none."""
    return -(-extent // local) if extent else 1


def _joined(
    d: int, groups: DeviceGroups, tiles: int, filled: int, after: Tiling
) -> tuple[Gather | Spread, int]:
    """Return the step that joins the tiles of a group, and how many tiles a device sends.

    Args:
        d: the dimension.
        groups: the groups.
        tiles: the number of tiles of a group.
        filled: how many of them have elements of the array.
        after: the tiling after it.
    """
    times = _joined_tiles(tiles, filled)
    return (Spread(d, groups, after, filled) if times == filled else Gather(d, groups, after)), times


def _joined_tiles(tiles: int, filled: int) -> int:
    """Return how many tiles a device sends so that all tiles of a group are joined."""
    return filled if filled <= min(_MOST_SPREAD, tiles - 2) or filled == 1 < tiles else tiles - 1


def _retile(
    before: Tiling, d: int, extent: int, after: tuple[int, Column], fixed: Sequence[Column]
) -> Retile | None:
    """Return how devices fetch the new tiles of a dimension; None for many devices or permutations.

    Args:
        before: the tiling before it.
        d: the dimension.
        extent: its extent.
        after: the number of the new tiles, and the column of their indices.
        fixed: columns in which devices that work together must agree.
    """
    tiles, column = after
    local = -(-extent // tiles)
    starts = tuple(p * local for p in range(tiles))
    needed = tuple(min(max(extent - start, 0), local) for start in starts)
    halo = by_device(Halo(extent, starts, local, needed), before, d, column, fixed)
    if halo is None:
        return None
    cuts = (*before.tiles[:d], tiles, *before.tiles[d + 1 :])
    columns = (*before.columns[:d], column, *before.columns[d + 1 :])
    return Retile(d, halo, Tiling(cuts, columns, before.devices))


@lru_cache(maxsize=64)
def _pairs(before: Tiling, after: Tiling) -> tuple[tuple[int, int], ...]:
    """Return from which device each one gets its tile: from itself, if it has it already."""
    holders: dict[object, list[int]] = {}
    for device, place in enumerate(before.places):
        holders.setdefault(place, []).append(device)
    found: dict[int, int] = {}
    wanting = list(enumerate(after.places))
    for device, place in wanting:
        group = holders[place]
        if device in group:
            group.remove(device)
            found[device] = device
    for device, place in wanting:
        if device not in found:
            found[device] = holders[place].pop(0)
    return tuple(sorted((source, target) for target, source in found.items()))


def _irregular(dimensions: tuple[int, ...], have: Tiling, want: Tiling, fixed: tuple[Column, ...]) -> Plan:
    """Permute tiles of equal sizes; otherwise gather the dimensions that differ, and slice."""
    local = math.prod(have.local(dimensions))
    if have.tiles == want.tiles and not fixed:
        return (Permute(_pairs(have, want), want.summed()),), local
    steps: list[Step] = []
    elements = 0
    changed = [d for d in range(len(dimensions)) if not have.same_cut(d, want, d)]
    for d in changed:
        if have.cuts(d):
            groups, local = have.groups([d], fixed), have.local(dimensions)
            filled = _filled(dimensions[d], local[d])
            step, times = _joined(d, groups, have.tiles[d], filled, have.without([d]))
            elements += math.prod(local) * times
            have = step.after
            steps.append(step)
    if any(want.cuts(d) for d in changed):
        steps.append(Cut(want.summed()))
    return tuple(steps), elements
