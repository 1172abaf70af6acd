"""sharding-propagation: how values are to be cut, from the shardings that the program states.

Cuts flow along the factors of operations, forward and backward, until nothing changes: first through
operations that compute element by element, which never need other tiles, then through all others. What loops
carry, what conditionals take and return, and the arrays of a sharding group get the same cuts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from hloom.ir.instruction import HloInstruction
from hloom.ir.sharding_rule import Factor
from hloom.operations.structure import Parameter
from hloom.sharding.planning.assignment import is_complete, product
from hloom.sharding.planning.decisions import Step, Steps
from hloom.sharding.planning.flow import Flow, Leaf
from hloom.sharding.tiling.coordinates import Column, are_independent
from hloom.sharding.tiling.tiling import Tiling

_MOST_PASSES: Final = 16

_Place: TypeAlias = "tuple[Leaf, tuple[int, ...], int]"
"""The class of an array, its extents, and a dimension."""
_Way: TypeAlias = "tuple[int, list[_Place]]"
"""The size of a factor, and its places."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A tiling that the program states.

    Attributes:
        leaf: the array.
        tiling: its tiling.
        open: dimensions that may be cut further.
    """

    leaf: Leaf
    tiling: Tiling
    open: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Border:
    """The call that enters or leaves a manual region.

    Attributes:
        manual: for each operand, and for each result, its tiling along the manual axes.
        places: the places of the devices along the manual axes, along which nothing inside can be cut.
    """

    manual: tuple[Tiling, ...]
    places: tuple[Column, ...]


class Propagation:
    """The cuts of the arrays of a program.

    Attributes:
        flow: the classes of arrays.
        found: for each class its tiling, if some dimension is to be cut or a tiling is stated.
        factors: the factors of each operation.
        steps: for each dimension that was cut here, where the cut came from.
    """

    def __init__(
        self,
        flow: Flow,
        stated: Iterable[Statement],
        wanted: Mapping[HloInstruction, Tiling],
        borders: Mapping[HloInstruction, Border],
        devices: int,
    ) -> None:
        """Propagate tilings.

        Args:
            flow: the classes of arrays.
            stated: tilings that stay as they are but in open dimensions; the first one of a class counts.
            wanted: tilings in which some arrays are used, which may cut more dimensions.
            borders: the calls that enter and leave manual regions, through which other cuts flow.
            devices: the number of devices.
        """
        self.flow = flow
        self._borders = borders
        self.devices = devices
        self.found: dict[Leaf, Tiling] = {}
        self.steps = Steps(flow)
        self._closed: dict[Leaf, Collection[int]] = {}
        for statement in stated:
            i, index = statement.leaf
            leaf = flow.class_of(i, index)
            if leaf not in self.found:
                self.found[leaf], self.steps.stated[leaf] = statement.tiling, i
                self._closed[leaf] = set(range(len(statement.tiling.tiles))) - statement.open
        for i, tiling in wanted.items():
            self.found.setdefault(flow.class_of(i), tiling)
            self.steps.stated.setdefault(flow.class_of(i), i)
        self.factors: dict[HloInstruction, list[Factor]] = {
            i: i.operation.sharding_rule(i, [o.shape for o in i.operands]) for i in flow.instructions
        }
        self._spread_all()

    def tiling(self, i: HloInstruction, index: tuple[int, ...] = ()) -> Tiling | None:
        """Return how an array is to be cut; None if nothing says so."""
        return self.found.get(self.flow.class_of(i, index))

    def _spread_all(self) -> None:
        every = [(i, ways) for i in self.flow.instructions if (ways := self._ways(i))]
        for elementwise in (True, False):
            chosen = [
                (i, ways)
                for i, ways in every
                if not elementwise or i.operation.elementwise or i.opcode == "copy"
            ]
            for _ in range(_MOST_PASSES):
                forward = [self._through(i, ways, elementwise) for i, ways in chosen]
                backward = [self._through(i, ways, elementwise) for i, ways in reversed(chosen)]
                if not any(forward) and not any(backward):
                    break

    def _ways(self, i: HloInstruction) -> list[_Way]:
        """Return for each factor of an instruction its size and its places, those of results first."""
        if i in self._borders:
            return self._border_ways(i, self._borders[i])
        if isinstance(i.operation, Parameter) or not all(o.shape.is_array for o in i.operands):
            return []
        results = [
            (self.flow.class_of(i, index), leaf.dimensions)
            for index, leaf in i.shape.leaves()
            if leaf.is_array
        ]
        operands = [(self.flow.class_of(o), o.shape.dimensions) for o in i.operands]
        ways: list[_Way] = []
        for factor in self.factors[i]:
            d = factor.result
            places = [] if d is None else [(*result, d) for result in results if d < len(result[1])]
            places += [(*operands[number], d) for number, d in factor.operands.items()]
            ways.append((factor.size, places))
        return ways

    def _border_ways(self, i: HloInstruction, border: Border) -> list[_Way]:
        """Return the dimensions that manual axes do not cut: they are the same inside and outside."""
        ways: list[_Way] = []
        for operand, (index, result), manual in zip(i.operands, i.shape.leaves(), border.manual, strict=True):
            if not result.is_array:
                continue
            for d, size in enumerate(result.dimensions):
                if not manual.cuts(d):
                    outer = (self.flow.class_of(operand), operand.shape.dimensions, d)
                    ways.append((size, [(self.flow.class_of(i, index), result.dimensions, d), outer]))
        return ways

    def _crosses(self, i: HloInstruction, cut: Tiling) -> bool:
        """Return whether a cut flows through an instruction; at a border, if it is along no manual axis."""
        border = self._borders.get(i)
        return border is None or are_independent([*border.places, cut.column(0)])

    def _through(self, i: HloInstruction, ways: Sequence[_Way], elementwise: bool) -> bool:
        """Spread cuts between the operands and the results of an instruction; return whether any did."""
        changed = False
        for size, places in ways:
            source = self._cut_of(places)
            if source is None:
                continue
            cut = self.found[source[0]].select([source[1]])
            if size % cut.tiles[0] == 0 and self._crosses(i, cut):
                for place in places:
                    if self._spread(place, cut):
                        self.steps.last[place[0], place[2]] = Step(i, *source, elementwise)
                        changed = True
        return changed

    def _cut_of(self, places: Sequence[_Place]) -> tuple[Leaf, int] | None:
        """Return the first class and dimension that is cut."""
        for leaf, _, d in places:
            tiling = self.found.get(leaf)
            if tiling is not None and d < len(tiling.tiles) and tiling.cuts(d):
                return leaf, d
        return None

    def _spread(self, place: _Place, cut: Tiling) -> bool:
        """Cut a dimension that nothing states, if it is whole and the cut is independent of the others."""
        leaf, dimensions, d = place
        if d in self._closed.get(leaf, ()) or dimensions[d] % cut.tiles[0]:
            return False
        tiling = self.found.get(leaf) or Tiling.replicated(len(dimensions), self.devices)
        if tiling.cuts(d):
            return False
        columns = [tiling.select([e]) if e != d else cut for e in range(len(dimensions))]
        if not is_complete(columns):
            return False
        self.found[leaf] = product(columns)
        return True
