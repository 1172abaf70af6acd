"""sharding-propagation: how values are to be cut, from the shardings that the program states.

Cuts flow along the factors of operations, forward and backward, until nothing changes: first through
operations that compute element by element, which never need other tiles, then through all others. The arrays
of a sharding group get the same cuts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.sharding_rule import Factor
from hloom.operations.structure import Parameter
from hloom.sharding.assignment import is_complete, product
from hloom.sharding.decisions import Step
from hloom.sharding.tiling import Tiling

_MOST_PASSES = 16
_NOTHING: Final[Mapping[HloInstruction, Tiling]] = MappingProxyType({})


class Propagation:
    """The cuts of the arrays of a computation.

    Attributes:
        found: for each array its tiling, if some dimension is to be cut or a tiling is stated.
        factors: the factors of each operation.
        steps: for each dimension that was cut here, where the cut came from.
    """

    def __init__(
        self,
        computation: HloComputation,
        stated: Mapping[HloInstruction, Tiling],
        devices: int,
        wanted: Mapping[HloInstruction, Tiling] = _NOTHING,
        groups: Sequence[Sequence[HloInstruction]] = (),
    ) -> None:
        """Propagate tilings.

        Args:
            computation: the computation.
            stated: the tilings of parameters and of annotated arrays, which stay as they are.
            devices: the number of devices.
            wanted: tilings in which some arrays are used, which may cut more dimensions.
            groups: arrays that are to be cut alike.
        """
        self.stated = stated
        self.devices = devices
        self.groups = groups
        self.found: dict[HloInstruction, Tiling] = {**wanted, **stated}
        self.steps: dict[tuple[HloInstruction, int], Step] = {}
        every = computation.post_order()
        self.factors: dict[HloInstruction, list[Factor]] = {
            i: i.operation.sharding_rule(i, [o.shape for o in i.operands]) for i in every
        }
        order = [i for i in every if i.shape.is_array]
        for elementwise in (True, False):
            self._elementwise = elementwise
            chosen = [i for i in order if not elementwise or i.operation.elementwise or i.opcode == "copy"]
            for group in self.groups:
                self._alike(group)
            for _ in range(_MOST_PASSES):
                forward = [self._through(i) for i in chosen]
                backward = [self._through(i) for i in reversed(chosen)]
                grouped = [self._alike(group) for group in self.groups]
                if not any(forward) and not any(backward) and not any(grouped):
                    break

    def _through(self, i: HloInstruction) -> bool:
        """Spread cuts between the operands and the result of an instruction; return whether any did."""
        if isinstance(i.operation, Parameter) or not all(o.shape.is_array for o in i.operands):
            return False
        changed = False
        for factor in self.factors[i]:
            places = [(i.operands[n], d) for n, d in factor.operands.items()]
            if factor.result is not None:
                places.insert(0, (i, factor.result))
            source = self._cut_of(places)
            if source is None:
                continue
            cut = self.found[source[0]].select([source[1]])
            if factor.size % cut.tiles[0] == 0:
                for value, d in places:
                    if self._spread(value, d, cut):
                        self.steps[value, d] = Step(i, *source, self._elementwise)
                        changed = True
        return changed

    def _alike(self, group: Sequence[HloInstruction]) -> bool:
        """Spread the cuts of each member of a group to the others; return whether any did."""
        changed = False
        for member in sorted(group, key=self._tile_count, reverse=True):
            for d in range(member.shape.rank):
                if self._cut_of([(member, d)]) is None:
                    continue
                cut = self.found[member].select([d])
                for other in group:
                    if other is not member and self._spread(other, d, cut):
                        self.steps[other, d] = Step(other, member, d, self._elementwise)
                        changed = True
        return changed

    def _tile_count(self, value: HloInstruction) -> int:
        tiling = self.found.get(value)
        return 1 if tiling is None else math.prod(tiling.tiles)

    def _cut_of(self, places: Sequence[tuple[HloInstruction, int]]) -> tuple[HloInstruction, int] | None:
        """Return the first value and dimension that is cut."""
        for value, d in places:
            tiling = self.found.get(value)
            if tiling is not None and d < len(tiling.tiles) and tiling.cuts(d):
                return value, d
        return None

    def _spread(self, value: HloInstruction, d: int, cut: Tiling) -> bool:
        """Cut a dimension of a value that states no tiling, if it is whole and the cut is independent."""
        if value in self.stated or value.shape.dimensions[d] % cut.tiles[0]:
            return False
        tiling = self.found.get(value) or Tiling.replicated(value.shape.rank, self.devices)
        if tiling.cuts(d):
            return False
        columns = [tiling.select([e]) if e != d else cut for e in range(value.shape.rank)]
        if not is_complete(columns):
            return False
        self.found[value] = product(columns)
        return True
