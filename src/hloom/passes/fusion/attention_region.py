"""The arrays of an attention between its products: those that are computed from an exponential."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, TypeAlias

from hloom.analysis.instructions import operation_of
from hloom.ir.instruction import HloInstruction
from hloom.operations.contraction import Dot
from hloom.operations.movement import Broadcast, Transpose
from hloom.operations.reduction import Reduce
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Constant, Iota
from hloom.passes.rules.contraction import inner_of

FEWEST: Final = 16
"""Minimum number of rows, and of keys."""
MOST_MEMBERS: Final = 128
"""Maximum number of arrays of a region, or of operations in a fusion."""
_DEEPEST: Final = 4
"""Maximum depth of a mask that is computed from indices."""

Axes: TypeAlias = tuple[int, ...]
"""The dimension of the weights for each dimension of an array; -1 for dimensions of size 1."""


class Region:
    """The arrays that are computed from an exponential, up to products.

    Attributes:
        start: the exponential.
        sizes: of the dimensions of the weights: batches, rows, keys.
        axes: of each array.
        products: those of an array of the region, and the number of its operand.
        gradient, forward: the products of the gradient, and the others.
    """

    def __init__(self, exponential: HloInstruction) -> None:
        self.start, dimensions = exponential, exponential.shape.dimensions
        self.sizes = tuple(size for size in dimensions if size != 1)
        self.last = len(self.sizes) - 1
        numbers = iter(range(len(self.sizes)))
        self.axes: dict[HloInstruction, Axes] = {
            exponential: tuple(-1 if size == 1 else next(numbers) for size in dimensions)
        }
        self.products: list[tuple[HloInstruction, int]] = []
        self.gradient: list[tuple[HloInstruction, int]] = []
        self.forward: list[tuple[HloInstruction, int]] = []

    @property
    def row(self) -> int:
        return self.last - 1

    def spread(self) -> bool:
        """Find the region and its products; return false if its arrays do not have the form of attention."""
        if self.last < 1 or self.sizes[-1] < FEWEST or not self.start.shape.is_static:
            return False
        waiting = [self.start]
        while waiting:
            i = waiting.pop()
            for user in i.users:
                if isinstance(user.operation, Dot):
                    self.products += [(user, n) for n, o in enumerate(user.operands) if o is i]
                    continue
                axes, known = self.following(user, i), self.axes.get(user)
                if axes is None or axes == known:
                    continue
                if known is not None or len(self.axes) > MOST_MEMBERS:
                    return False
                self.axes[user] = axes
                waiting.append(user)
        return True

    def following(self, user: HloInstruction, i: HloInstruction) -> Axes | None:
        """Return the axes of a user of an array of the region; None if it does not belong to it."""
        axes, operation, dimensions = self.axes[i], user.operation, user.shape.dimensions
        match operation:
            case Reshape():
                return _reshaped(axes, i.shape.dimensions, dimensions)
            case Transpose():
                return tuple(axes[d] for d in operation.dimensions)
            case Broadcast():
                added = [
                    d for d, size in enumerate(dimensions) if size != 1 and d not in operation.dimensions
                ]
                if len(added) != 1 or self.last in axes or dimensions[added[0]] != self.sizes[-1]:
                    return axes if not added and dimensions == i.shape.dimensions else None
                places = dict(zip(operation.dimensions, axes, strict=True)) | {added[0]: self.last}
                return tuple(places.get(d, -1) for d in range(len(dimensions)))
            case Reduce() if i is user.operands[0] and len(user.operands) == 2:
                reduced = {axes[d] for d in operation.dimensions} - {-1}
                kept = tuple(a for d, a in enumerate(axes) if d not in operation.dimensions)
                return kept if reduced == {self.last} else None
            case _ if operation.elementwise and user.shape.is_array:
                return axes if dimensions == i.shape.dimensions else None
            case _:
                return None

    def summed(self, dot: HloInstruction, side: int) -> set[int]:
        """Return the axes that a product of the weights contracts."""
        axes = self.axes[dot.operands[side]]
        return {axes[d] for d in inner_of(operation_of(dot, Dot), side)} - {-1}

    def choose(self) -> bool:
        """Choose the products of the gradient, and the rows; return whether one fusion can compute them."""
        if len({dot for dot, _ in self.products}) != len(self.products):
            return False
        over_rows = [p for p in self.products if self.last not in self.summed(*p)]
        over_keys = [p for p in self.products if self.summed(*p) == {self.last}]
        common = set[int].intersection(*(self.summed(*p) for p in over_rows)) if over_rows else set[int]()
        common = {a for a in common if self.sizes[a] >= FEWEST}
        if not common or len(over_rows) + len(over_keys) != len(self.products):
            return False
        slices = {p: self.members(p[0].operands[p[1]], self.axes[p[0].operands[p[1]]]) for p in self.products}
        scores = {p: [i for i in members if isinstance(i.operation, Dot)] for p, members in slices.items()}
        self.forward = [p for p in over_keys if len(scores[p]) < 2]
        self.gradient = [p for p in self.products if p not in self.forward]
        inside = {i for p in self.gradient for i in slices[p]}
        computed = {
            *inside,
            *(i for p in self.forward for i in slices[p]),
            *(dot for dot, _ in self.products),
        }
        dots = {dot for dot, _ in self.gradient}
        products = {i for i in inside if isinstance(i.operation, Dot)}
        if len(dots) < 2 or len(products) < 2 or len(inside) > MOST_MEMBERS:
            return False
        if any(self.is_wide(i) and not computed.issuperset(i.users) for i in _dependent(products, inside)):
            return False
        self.exchange(max(common, key=self.sizes.__getitem__))
        return not any(i.has_control_dependencies for i in (*inside, *dots))

    def is_wide(self, i: HloInstruction) -> bool:
        """Return whether an instruction computes an element for each weight."""
        size = math.prod(self.sizes)
        return i.shape.element_count == size and (i.operation.elementwise or isinstance(i.operation, Dot))

    def exchange(self, row: int) -> None:
        """Renumber the axes so that those of the rows are the ones before the keys."""
        order = [a for a in range(self.last) if a != row] + [row, self.last]
        place = {a: n for n, a in enumerate(order)} | {-1: -1}
        self.sizes = tuple(self.sizes[a] for a in order)
        self.axes = {i: tuple(place[a] for a in axes) for i, axes in self.axes.items()}

    def members(self, i: HloInstruction, axes: Axes) -> set[HloInstruction]:
        """Return the instructions that compute an array of the region from scores and arrays from outside."""
        members: set[HloInstruction] = set()
        waiting = [(i, axes)]
        while waiting:
            i, axes = waiting.pop()
            if i in members or len(members) > MOST_MEMBERS:
                continue
            if self.is_scores(i, axes):
                members.add(i)
            elif (operands := self.operands(i, axes)) is not None:
                members.add(i)
                waiting += operands
        return members

    def is_scores(self, i: HloInstruction, axes: Axes) -> bool:
        """Return whether an array is a product with an element for each weight."""
        return isinstance(i.operation, Dot) and len({*axes} - {-1}) == len(self.sizes)

    def operands(self, i: HloInstruction, axes: Axes) -> list[tuple[HloInstruction, Axes]] | None:
        """Return the operands of a member with their axes; None for an array from outside."""
        operation, is_wide = i.operation, len({*axes} - {-1}) == len(self.sizes)
        match operation:
            case Constant() | Iota():
                return [] if i.shape.rank == 0 or isinstance(operation, Iota) else None
            case Reshape():
                before = _reshaped(axes, i.shape.dimensions, i.operands[0].shape.dimensions)
                return None if before is None else [(i.operands[0], before)]
            case Transpose():
                places = dict(zip(operation.dimensions, axes, strict=True))
                return [(i.operands[0], tuple(places[d] for d in range(len(axes))))]
            case Broadcast():
                return [(i.operands[0], tuple(axes[d] for d in operation.dimensions))]
            case Reduce() if len(i.operands) == 2:
                kept, sizes = iter(axes), i.operands[0].shape.dimensions
                reduced = {d: self.last if sizes[d] != 1 else -1 for d in operation.dimensions}
                before = tuple(reduced[d] if d in reduced else next(kept) for d in range(len(sizes)))
                is_of_weights = sorted(a for a in before if a >= 0) == list(range(len(self.sizes)))
                return [(i.operands[0], before), (i.operands[1], ())] if is_of_weights else None
            case _ if operation.elementwise and (is_wide or i in self.axes or _is_of_indices(i)):
                return [(o, axes if o.shape.rank else ()) for o in i.operands]
            case _:
                return None


def _dependent(sources: set[HloInstruction], among: set[HloInstruction]) -> set[HloInstruction]:
    """Return the sources, and which instructions of a set depend on them."""
    dependent, waiting = set(sources), list(sources)
    while waiting:
        new = [u for u in waiting.pop().users if u in among and u not in dependent]
        dependent.update(new)
        waiting += new
    return dependent


def _reshaped(axes: Axes, before: Sequence[int], after: Sequence[int]) -> Axes | None:
    """Return the axes of an array with other dimensions of size 1; None for other reshapes."""
    if [size for size in before if size != 1] != [size for size in after if size != 1]:
        return None
    real = iter([a for a, size in zip(axes, before, strict=True) if size != 1])
    return tuple(-1 if size == 1 else next(real) for size in after)


def _is_of_indices(i: HloInstruction, depth: int = _DEEPEST) -> bool:
    """Return whether an array, such as a causal mask, is computed from indices and constants alone."""
    if isinstance(i.operation, Iota) or (isinstance(i.operation, Constant) and not i.shape.rank):
        return True
    is_inside = depth > 0 and (i.operation.elementwise or isinstance(i.operation, Broadcast))
    return is_inside and all(_is_of_indices(o, depth - 1) for o in i.operands)
