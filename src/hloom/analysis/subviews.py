"""Subviews: slices at positions known at run time that are parts of arrays in memory.

A dynamic slice of consecutive elements needs no copy: it is an address inside its operand, as long as nothing
overwrites the operand before the last read of the slice. Likewise, the update of a dynamic-update-slice can
be computed where it is stored if nothing else needs the old value by then; no code remains of the update.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from hloom.analysis.purity import communicates
from hloom.analysis.updates import SMALL, Leaf, Updates, origin, readers, updated_operands
from hloom.ir.annotations import Annotation
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import Family
from hloom.operations.control_flow import Fusion
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.structure import Constant, Parameter
from hloom.records import dataclass
from hloom.shape.shape import Shape

_COMPUTING: Final = frozenset(
    (Family.ELEMENTWISE, Family.MOVEMENT, Family.CONTRACTION, Family.COMBINATION, Family.LINEAR_ALGEBRA)
)


@dataclass(frozen=True, slots=True)
class Subview(Annotation):
    """A dynamic-slice that is a part of its operand, or a dynamic-update-slice that its update is a part of.

    It holds for the order of instructions in which it was found.
    """


def starts_of(i: HloInstruction) -> Sequence[HloInstruction]:
    """Return the start indices of a dynamic-slice or dynamic-update-slice."""
    return i.operands[1 if isinstance(i.operation, DynamicSlice) else 2 :]


def part_of(i: HloInstruction) -> Shape:
    """Return the shape of the part that a dynamic-slice reads or a dynamic-update-slice replaces."""
    return i.shape if isinstance(i.operation, DynamicSlice) else i.operands[1].shape


def is_consecutive(i: HloInstruction) -> bool:
    """Return whether a dynamic slice, or an update of one, is consecutive in memory, and not small."""
    if not isinstance(i.operation, DynamicSlice | DynamicUpdateSlice):
        return False
    array, part = i.operands[0].shape, part_of(i)
    if not (array.is_static and part.is_static) or len(starts_of(i)) != array.rank or part.byte_size <= SMALL:
        return False
    outer = next((d for d, size in enumerate(part.dimensions) if size != 1), part.rank)
    return part.dimensions[outer + 1 :] == array.dimensions[outer + 1 :]


def memory_of(array: HloInstruction, subviews: Collection[HloInstruction] = ()) -> list[Leaf]:
    """Return the leaves in whose memory an array is: its own, and those that it is an update or subview of.

    The last one is a parameter or constant if the memory exists as long as the computation runs.
    """
    leaves: list[Leaf] = []
    while True:
        i, index = origin(array)
        leaves.append((i, index))
        updated = dict(updated_operands(i))
        if i in subviews:
            array = i.operands[0]
        elif (number := index[0] if index else 0) in updated:
            array = updated[number]
        else:
            return leaves


def is_lasting(leaf: Leaf) -> bool:
    """Return whether the memory of a leaf exists as long as its computation runs."""
    return isinstance(leaf[0].operation, Parameter | Constant)


class Subviews:
    """The subviews of a computation in its order.

    Args:
        computation: a scheduled computation.
        updates: the updates of the module.
        is_body: whether it is the body of a loop, whose state is its parameter.

    Attributes:
        found: dynamic slices that are parts of their operands, and updates that are computed in place.
    """

    def __init__(self, computation: HloComputation, updates: Updates, *, is_body: bool) -> None:
        order = computation.execution_order()
        self.position = {i: n for n, i in enumerate(order)}
        self.found: dict[HloInstruction, None] = {}
        self._readers = readers(order)
        root = computation.root
        self._results = {index: origin(root, index) for index, _ in root.shape.leaves()}
        self._state = computation.parameters[0] if is_body else None
        self._writes: dict[Leaf, set[HloInstruction]] = defaultdict(set)
        """The instructions that overwrite the memory of a leaf."""
        for i in order:
            for leaf in updates.of(i):
                self._writes[leaf].add(i)
        if self._state is not None:
            for index, (producer, _) in self._results.items():
                if not isinstance(producer.operation, Parameter):
                    self._writes[self._state, index].add(producer)
        for i in order:
            if is_consecutive(i) and not i.control_predecessors and not i.control_successors:
                self._examine(i)

    def _examine(self, i: HloInstruction) -> None:
        is_slice = isinstance(i.operation, DynamicSlice)
        if self._is_part(i) if is_slice else self._is_computed_in_place(i):
            self.found[i] = None

    def _is_part(self, i: HloInstruction) -> bool:
        """Return whether nothing overwrites the operand of a slice before the slice's last read."""
        if (i, ()) in self._results.values():
            return False  # it is copied in any case
        last = self._last_read((i, ()))
        leaves = memory_of(i.operands[0], self.found)
        writes = (self.position[write] for leaf in leaves for write in self._writes[leaf])
        return is_lasting(leaves[-1]) and not any(self.position[i] < write <= last for write in writes)

    def _is_computed_in_place(self, i: HloInstruction) -> bool:
        """Return whether an update may be computed in the loop's state, of which it replaces a part.

        The old state must not be read from then on, nor the new one be changed.
        """
        state, update = origin(i.operands[0]), origin(i.operands[1])
        producer, _ = update
        if state[0] is not self._state or not self._is_computed(producer) or producer not in self.position:
            return False
        if self._writes[state] != {i} or self._writes[i, ()] or self._writes[update]:
            return False
        if self._results.get(state[1]) != (i, ()) or {state, update} & set(self._results.values()):
            return False
        if any(origin(other.operands[1]) == update for other in self.found if other.operands[1:]):
            return False
        at = self.position[producer]
        others = (r for r in self._reads(state) if r is not i)
        starts = (origin(start)[0] for start in starts_of(i))
        computed = (start for start in starts if not isinstance(start.operation, Constant))
        return all(self.position[other] < at for other in (*others, *computed))

    def _is_computed(self, i: HloInstruction) -> bool:
        computes = isinstance(i.operation, Fusion) or i.operation.family in _COMPUTING
        return computes and i not in self.found and not i.has_side_effect and not communicates(i)

    def _last_read(self, leaf: Leaf) -> int:
        return max((self.position[r] for r in self._reads(leaf)), default=-1)

    def _reads(self, leaf: Leaf) -> Iterator[HloInstruction]:
        """Yield the instructions that read a leaf, as a whole or through subviews."""
        for reader in self._readers.get(leaf, ()):
            yield reader
            if reader in self.found and isinstance(reader.operation, DynamicSlice):
                yield from self._reads((reader, ()))
