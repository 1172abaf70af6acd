"""transpose-motion: run operations between transposes on the arrays before them, where that transposes less.

Code that works along any axis moves it to the front and back (`moveaxis`, `vmap` with ``in_axes=1``, loops
over time). What lies between such transposes is elementwise, or takes parts along a dimension, and can do so
in the order of the original array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.movement import Broadcast, Concatenate, Pad, Reverse, Slice, Transpose
from hloom.operations.structure import Iota
from hloom.passes.fuel import consume
from hloom.passes.pipeline import Pass
from hloom.passes.simplify.dead_code import remove_dead
from hloom.passes.writing import Writer
from hloom.shape.shape import Shape

Order = tuple[int, ...]
"""The dimensions of a transpose."""
LEAST_MINOR: Final = 16
"""Minimum size of the minor dimension of arrays of which operations take parts."""


class TransposeMotion(Pass, name="transpose-motion", of=Transpose):
    """``transpose(f(transpose(x)))`` → ``f(x)`` for elementwise f, slices, pads, concatenations, updates."""

    def run(self, module: HloModule) -> bool:
        """Move the transposes of every computation."""
        changed = False
        for computation in module.post_order():
            orders = {i.operation.dimensions: None for i in computation if isinstance(i.operation, Transpose)}
            for order in orders:
                region = _Region(computation, order)
                region.trim()
                region.keep_what_pays()
                if region.members and consume(f"%{next(iter(region.members)).name}"):
                    region.rewrite()
                    changed = True
        return changed


class _Region:
    """Operations whose arrays are transposed in one order, and that can be computed before that.

    Attributes:
        order: the dimensions of the transposes.
        sources: the transposes of this order.
        members: the operations that read nothing but sources, members, and arrays of any order, operands
            first.
    """

    def __init__(self, computation: HloComputation, order: Order) -> None:
        self.computation, self.order = computation, order
        self.sources: dict[HloInstruction, None] = {}
        self.members: dict[HloInstruction, None] = {}
        for i in computation.post_order():
            if isinstance(i.operation, Transpose):
                # An order may be its own inverse: the transpose of a member leads out of the region.
                if i.operation.dimensions == order and i.operands[0] not in self.members:
                    self.sources[i] = None
            elif self._may_join(i):
                self.members[i] = None

    def _may_join(self, i: HloInstruction) -> bool:
        arrays = [o for o in i.operands if o.shape.is_array and o.shape.rank]
        if not any(o in self.sources or o in self.members for o in arrays):
            return False
        is_alike = i.shape.is_array and i.shape.is_static and i.shape.rank == len(self.order)
        if not is_alike or i.has_control_dependencies or permuted(i.operation, self.order) is None:
            return False
        minor = max(before(x.shape, self.order).dimensions[-1] for x in (i, *arrays))
        if not i.operation.elementwise and minor < LEAST_MINOR:
            return False
        return all(o in self.sources or o in self.members or self._is_of_any_order(o) for o in arrays)

    def _is_of_any_order(self, o: HloInstruction) -> bool:
        is_made = isinstance(o.operation, Broadcast | Iota) and o.shape.rank == len(self.order)
        return is_made and permuted(o.operation, self.order) is not None

    def trim(self) -> None:
        """Remove members whose results would be transposed at no less cost than their operands are."""
        for i in reversed(list(self.members)):
            if any(u in self.members for u in i.users):
                continue
            removed = sum(o.shape.element_count for o in dict.fromkeys(i.operands) if self._is_paid_for(o, i))
            if self._cost(i) >= removed:
                del self.members[i]

    def keep_what_pays(self) -> None:
        """Remove connected members that need as many transposes afterwards as before."""
        left = dict(self.members)
        while left:
            together = self._connected(next(iter(left)))
            saved = sum(
                i.shape.element_count for i in together if i in self.sources and self._is_read_here(i)
            )
            if sum(self._cost(i) for i in together if i in self.members) >= saved:
                for i in together & self.members.keys():
                    del self.members[i]
            for i in together & left.keys():
                del left[i]

    def _connected(self, member: HloInstruction) -> set[HloInstruction]:
        """Return the members and sources that a path of operands and users leads to."""
        waiting, together = [member], {member}
        while waiting:
            i = waiting.pop()
            near = [*i.users, *(() if i in self.sources else i.operands)]
            new = {n for n in near if n in self.members or n in self.sources} - together
            together |= new
            waiting += new
        return together

    def _cost(self, i: HloInstruction) -> int:
        """Return how many elements of a member are transposed afterwards, less those that are before."""
        count = i.shape.element_count
        return count * (self._is_needed(i) - sum(map(self._undoes, i.users)))

    def _undoes(self, u: HloInstruction) -> bool:
        """Return whether a user is the inverse transpose."""
        if not isinstance(u.operation, Transpose):
            return False
        return [self.order[d] for d in u.operation.dimensions] == list(range(len(self.order)))

    def _is_needed(self, i: HloInstruction) -> bool:
        """Return whether others than transposes use a member in its present order."""
        return i.is_root or any(
            u not in self.members and not isinstance(u.operation, Transpose) for u in i.users
        )

    def _is_paid_for(self, o: HloInstruction, i: HloInstruction) -> bool:
        """Return whether an operand of ``i`` is transposed only if ``i`` is no member."""
        if o in self.sources:
            return self._is_read_here(o, i)
        return o in self.members and not self._is_needed(o)

    def _is_read_here(self, source: HloInstruction, i: HloInstruction | None = None) -> bool:
        """Return whether only members, and ``i``, read a source."""
        return not source.is_root and all(u is i or u in self.members for u in source.users)

    def rewrite(self) -> None:
        """Compute the members before the transposes, and transpose what others use."""
        new: dict[HloInstruction, HloInstruction] = {s: s.operands[0] for s in self.sources}
        for i in self.members:
            new[i] = self._moved(i, new)
        for i in self.members:
            for u in [u for u in i.users if self._undoes(u) and not u.has_control_dependencies]:
                u.replace_all_uses_with(new[i])
            others = [u for u in i.users if u not in self.members and (u.users or u.is_root)]
            if others or i.is_root:
                again = Writer(i).op(Transpose(dimensions=self.order), new[i], shape=i.shape)
                i.replace_uses_in(others, again)
                if i.is_root:
                    self.computation.root = again
        remove_dead(self.computation)

    def _moved(self, i: HloInstruction, new: Mapping[HloInstruction, HloInstruction]) -> HloInstruction:
        """Add a member, or an array of any order, in the order before the transposes."""
        if isinstance(i.operation, Broadcast | Iota):
            operands: Sequence[HloInstruction] = i.operands
        else:
            operands = [
                new[o] if o in new else self._moved(o, new) if o.shape.rank else o for o in i.operands
            ]
        operation = permuted(i.operation, self.order)
        assert operation is not None
        if isinstance(operation, DynamicSlice | DynamicUpdateSlice):
            count = len(operands) - len(self.order)
            starts = [operands[count + self.order.index(d)] for d in range(len(self.order))]
            operands = [*operands[:count], *starts]
        return Writer(i).op(operation, *operands, shape=before(i.shape, self.order))


def before(shape: Shape, order: Order) -> Shape:
    """Return the shape of an array before its transpose."""
    return Shape(shape.element_type, tuple([shape.dimensions[order.index(d)] for d in range(len(order))]))


def permuted(operation: Operation, order: Order) -> Operation | None:
    """Return the operation on arrays before their transposes; None if there is none."""
    places = [order.index(d) for d in range(len(order))]
    match operation:
        case Slice():
            return operation.replace(slice=tuple([operation.slice[p] for p in places]))
        case Pad():
            return operation.replace(padding=tuple([operation.padding[p] for p in places]))
        case DynamicSlice():
            sizes = operation.dynamic_slice_sizes
            return operation.replace(dynamic_slice_sizes=tuple([sizes[p] for p in places]))
        case DynamicUpdateSlice():
            return operation
        case Concatenate() | Reverse():
            return operation.replace(dimensions=tuple([order[d] for d in operation.dimensions]))
        case Iota():
            return operation.replace(iota_dimension=order[operation.iota_dimension])
        case Broadcast():
            dimensions = tuple([order[d] for d in operation.dimensions])
            return (
                operation.replace(dimensions=dimensions) if list(dimensions) == sorted(dimensions) else None
            )
        case _:
            return operation if operation.elementwise else None
