"""Programs of all ranks up to 4, made from one: with other numbers of dimensions, in other orders.

Dimensions of the values of a program correspond as operations relate them: those of a transpose's operand
and result, or the contracting dimensions of both operands of a dot. Such a class is an *axis* of the program,
and where it occurs, and what is done there, is its *role*: kept or reduced, repeated, reversed, batch.
Axes of one role can be any number. Programs also get a role that the example may lack: an axis of all arrays.
Axes that occur once by their nature, such as that of a concatenation, stay one.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeAlias

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.ir.window import PaddingDimension, SliceDimension, WindowDimension
from hloom.operations.contraction import Dot
from hloom.operations.conversion import BitcastConvert
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.movement import Broadcast, Concatenate, Pad, Reverse, Slice, Transpose
from hloom.operations.reduction import Reduce
from hloom.operations.reshaping import Reshape
from hloom.operations.sorting import Sort
from hloom.operations.structure import (
    AddDependency,
    AfterAll,
    Constant,
    GetTupleElement,
    Iota,
    OptimizationBarrier,
    Parameter,
    Tuple,
)  # fmt: skip
from hloom.operations.window_reduction import ReduceWindow
from hloom.passes.rules.dimensions import reshape_groups
from hloom.records import dataclass
from hloom.shape.shape import Shape

HIGHEST_RANK: Final = 4
_SAME_DIMENSIONS: Final = (
    AddDependency, AfterAll, BitcastConvert, Concatenate, DynamicSlice, DynamicUpdateSlice, GetTupleElement,
    OptimizationBarrier, Pad, ReduceWindow, Reverse, Slice, Sort, Tuple,
)  # fmt: skip
"""Operations whose operands have the dimensions of the result, but for scalars."""
_SIZES: Final = {"front": 3, "back": 2}
"""Sizes of axes of all arrays, before and after the others."""
_DRAWS: Final = 20
"""Number of orders that are drawn for each program that is wanted."""

Key: TypeAlias = "tuple[int, int] | str"
"""The first dimension of an axis: the number of an instruction, and its dimension."""
Axis: TypeAlias = tuple[Key, int]
"""One of the copies of an axis."""


class _ConflictError(Exception):
    """An order of dimensions that operations do not allow together."""


def programs_of_rank(text: str, rank: int, most: int) -> Iterator[str]:
    """Yield programs made from an example whose values have at most, and some exactly, a rank.

    Args:
        text: the example.
        rank: the rank.
        most: the number of programs; if there are more, about that many are drawn.
    """
    example = _Example(text)
    counts = [c for c in example.counts() if example.rank(c) == rank]
    if len(counts) > most:
        counts = random.Random(rank).sample(counts, most)
    seen: set[str] = set()
    for number, count in enumerate(counts):
        for program in example.orders(count, max(1, most // len(counts)), number):
            if program not in seen:
                seen.add(program)
                yield program


@dataclass(slots=True)
class _Example:
    """An example, and the axes of its values.

    Attributes:
        steps: the instructions.
        axes: the axes of each value in order, before any is repeated.
        keeps_order: whether dimensions must stay in order, because a reshape depends on it.
        is_fixed: whether nothing can be changed.
        single: axes that occur once.
        numbers: those of the instructions.
    """

    text: str
    steps: list[HloInstruction] = field(default_factory=list[HloInstruction])
    axes: list[list[Key]] = field(default_factory=list[list[Key]])
    keeps_order: bool = False
    is_fixed: bool = False
    single: set[Key] = field(default_factory=set[Key])
    _parents: dict[Key, Key] = field(default_factory=dict[Key, Key])
    numbers: dict[HloInstruction, int] = field(default_factory=dict[HloInstruction, int])

    def __post_init__(self) -> None:
        self.steps = list(HloModule.from_text(self.text).entry.post_order())
        self.numbers = {i: n for n, i in enumerate(self.steps)}
        relates_otherwise = [self._relate(i) for i in self.steps]
        self.keeps_order = any(isinstance(i.operation, Reshape) for i in self.steps)
        self.axes = [[self._root((n, d)) for d in range(_rank(i))] for n, i in enumerate(self.steps)]
        if any(relates_otherwise) or any(len(set(axes)) < len(axes) for axes in self.axes):
            self.single, self.is_fixed = {key for axes in self.axes for key in axes}, True
            return
        self.single = {self._root(key) for key in self.single}
        has_dot = any(isinstance(i.operation, Dot) for i in self.steps)
        for axes in self.axes:
            if axes:
                axes.insert(0, "front")
            if axes and self.keeps_order and not has_dot:
                axes.append("back")

    # -- which dimensions correspond

    def _root(self, key: Key) -> Key:
        while key in self._parents:
            key = self._parents[key]
        return key

    def _join(self, a: tuple[HloInstruction, int], b: tuple[HloInstruction, int]) -> None:
        x, y = (self._root((self.numbers[i], d)) for i, d in (a, b))
        if x != y:
            self._parents[max(x, y)] = min(x, y)  # type: ignore[type-var]

    def _once(self, i: HloInstruction, *dimensions: int) -> None:
        self.single |= {(self.numbers[i], d) for d in dimensions}

    def _relate(self, i: HloInstruction) -> bool:
        """Join the dimensions that an instruction relates; return whether they must stay as they are."""
        operation = i.operation
        arrays = [o for o in i.operands if _rank(o)]
        match operation:
            case _ if len(_ranks(i.shape)) > 1:
                return True
            case Parameter():
                pass
            case Constant() if not _rank(i):
                pass
            case Iota(iota_dimension=d):
                self._once(i, d)
            case Broadcast(dimensions=into):
                for n, d in enumerate(into):
                    self._join((i, d), (i.operands[0], n))
            case Transpose(dimensions=order):
                for n, d in enumerate(order):
                    self._join((i, n), (i.operands[0], d))
            case Reduce(dimensions=reduced) if len(arrays) == 1:
                remaining = [d for d in range(_rank(arrays[0])) if d not in reduced]
                for n, d in enumerate(remaining):
                    self._join((i, n), (arrays[0], d))
            case Dot():
                self._relate_dot(i, operation)
            case Reshape():
                self._relate_reshape(i)
            case DynamicSlice() | DynamicUpdateSlice() if any(_rank(o) for o in _starts(i)):
                return True
            case _ if operation.elementwise or isinstance(operation, _SAME_DIMENSIONS):
                for array in arrays if _rank(i) else ():
                    if _rank(array) != _rank(i):
                        return True
                    for d in range(_rank(i)):
                        self._join((i, d), (array, d))
                if isinstance(operation, Concatenate | Sort):
                    self._once(i, operation.dimensions[0])
            case _:
                return bool(_rank(i) or arrays)
        return False

    def _relate_dot(self, i: HloInstruction, dot: Dot) -> None:
        (x, y), position = i.operands, 0
        for a, b in zip(dot.lhs_contracting_dims, dot.rhs_contracting_dims, strict=True):
            self._join((x, a), (y, b))
        for a, b in zip(dot.lhs_batch_dims, dot.rhs_batch_dims, strict=True):
            self._join((x, a), (y, b))
            self._join((x, a), (i, position))
            position += 1
        for operand, named in (
            (x, (*dot.lhs_contracting_dims, *dot.lhs_batch_dims)),
            (y, (*dot.rhs_contracting_dims, *dot.rhs_batch_dims)),
        ):
            for d in range(_rank(operand)):
                if d not in named:
                    self._join((operand, d), (i, position))
                    position += 1

    def _relate_reshape(self, i: HloInstruction) -> None:
        (x,) = i.operands
        for mine, theirs in reshape_groups(x.shape.dimensions, i.shape.dimensions) or ():
            if len(mine) == len(theirs) == 1:
                self._join((x, mine[0]), (i, theirs[0]))
            else:
                self._once(x, *mine)
                self._once(i, *theirs)

    # -- numbers of axes

    def counts(self) -> Iterator[dict[Key, int]]:
        """Yield how often axes occur, up to rank 4."""
        keys = list(dict.fromkeys(key for axes in self.axes for key in axes))
        repeatable = [key for key in keys if key not in self.single]
        if not self.keeps_order:
            by_role = {self._role(key): key for key in sorted(repeatable, key=str)}  # "front" last of a role
            repeatable = [key for key in repeatable if key in by_role.values()]
        once = dict.fromkeys(keys, 0) | dict.fromkeys(self.single, 1)
        for numbers in itertools.product(range(HIGHEST_RANK + 1), repeat=len(repeatable)):
            if sum(numbers) > 2 * HIGHEST_RANK:
                continue
            count = once | dict(zip(repeatable, numbers, strict=True))
            if self.rank(count) <= HIGHEST_RANK:
                yield count

    def _role(self, key: Key) -> tuple[object, ...]:
        """Return where an axis occurs and what is done there."""
        reversed_in = (
            isinstance(i.operation, Reverse) and key in axes and self.place(n, key) in i.operation.dimensions
            for n, (i, axes) in enumerate(zip(self.steps, self.axes, strict=True))
        )
        return (*(key in axes for axes in self.axes), *reversed_in)

    def place(self, n: int, key: Key) -> int:
        """Return the dimension of a value that an axis is in the example; -1 for one of all arrays."""
        axes = [k for k in self.axes[n] if not isinstance(k, str)]
        return axes.index(key) if key in axes else -1

    def rank(self, count: Mapping[Key, int]) -> int:
        """Return the highest rank of a value."""
        return max((sum(count[key] for key in axes) for axes in self.axes), default=0)

    # -- orders

    def orders(self, count: Mapping[Key, int], most: int, seed: int) -> Iterator[str]:
        """Yield programs with numbers of axes, in all orders or in some that are drawn."""
        if self.is_fixed:
            yield self.text
            return
        standard = [[(key, n) for key in axes for n in range(count[key])] for axes in self.axes]
        groups = self._same_orders()
        derived = {groups[n] for n, i in enumerate(self.steps) if isinstance(i.operation, Reduce | Dot)}
        free = [g for g in dict.fromkeys(groups) if g not in derived and len(standard[g]) > 1]
        if self.keeps_order or not free:
            yield self._written(standard)
            return
        draw, seen = random.Random(seed), set[str]()
        if math.prod(math.factorial(len(standard[g])) for g in free) <= _DRAWS * most:
            every = list(itertools.product(*(itertools.permutations(standard[g]) for g in free)))
            choices = iter(draw.sample(every, len(every)))
        else:
            choices = (
                tuple(tuple(draw.sample(standard[g], len(standard[g]))) for g in free)
                for _ in range(_DRAWS * most)
            )
        for choice in choices:
            try:
                orders = self._derived(standard, groups, dict(zip(free, choice, strict=True)))
            except _ConflictError:
                continue
            program = self._written(orders)
            if program not in seen:
                seen.add(program)
                yield program
            if len(seen) == most:
                return

    def _same_orders(self) -> list[int]:
        """Return a number for each value, equal for values whose dimensions are in the same order."""
        groups = list(range(len(self.steps)))
        for n, i in enumerate(self.steps):
            if i.operation.elementwise or isinstance(i.operation, _SAME_DIMENSIONS):
                joined = {groups[self.numbers[o]] for o in i.operands if _rank(o) and _rank(i)} | {n}
                groups = [min(joined) if g in joined else g for g in groups]
        return groups

    def _derived(
        self,
        standard: Sequence[Sequence[Axis]],
        groups: Sequence[int],
        chosen: Mapping[int, Sequence[Axis]],
    ) -> list[Sequence[Axis]]:
        """Return the order of every value, where those of some groups are chosen."""
        orders = dict(chosen) | {g: standard[g] for g in groups if len(standard[g]) < 2}
        for n, i in enumerate(self.steps):
            if not isinstance(i.operation, Reduce | Dot) or len(standard[n]) < 2:
                continue
            mine = set(standard[n])
            arrays = [orders.get(groups[self.numbers[o]]) for o in i.operands if _rank(o)]
            if any(axes is None for axes in arrays):
                raise _ConflictError
            known = [axes for axes in arrays if axes is not None]
            shared = [a for a in known[0] if a in mine and all(a in axes for axes in known)]
            order = [*shared, *(a for axes in known for a in axes if a in mine and a not in shared)]
            if list(orders.setdefault(groups[n], order)) != order:
                raise _ConflictError
        return [orders[g] for g in groups]

    # -- programs

    def _written(self, orders: Sequence[Sequence[Axis]]) -> str:
        module = HloModule.from_text(self.text)
        writer = _Writer(self, module, list(module.entry.post_order()), orders)
        for n in range(len(self.steps)):
            writer.write(n)
        module.config.entry_layout = None
        return module.to_text()


@dataclass(slots=True)
class _Writer:
    """Changes the instructions of a program to other axes."""

    example: _Example
    module: HloModule
    steps: Sequence[HloInstruction]
    orders: Sequence[Sequence[Axis]]

    def write(self, n: int) -> None:
        """Change an instruction."""
        i, order = self.steps[n], self.orders[n]
        places = [self.example.place(n, key) for key, _ in order]
        i.operation = self._operation(i, n, order, places)
        is_slice = isinstance(i.operation, DynamicSlice | DynamicUpdateSlice)
        if is_slice and not any(_rank(o) for o in _starts(i)):
            self._start(i, order, places)
        if not isinstance(i.operation, Constant):
            i.shape = _resized(i.shape, order, places)

    def _operation(self, i: HloInstruction, n: int, order: Sequence[Axis], places: list[int]) -> Operation:
        """Return an operation for the axes of its operands and its result."""
        operation = i.operation
        theirs = [self.orders[self.example.numbers[o]] for o in self.example.steps[n].operands]
        sizes = [_SIZES[str(key)] if d < 0 else 0 for (key, _), d in zip(order, places, strict=True)]
        match operation:
            case Broadcast():
                return operation.replace(dimensions=tuple(map(order.index, theirs[0])))
            case Transpose():
                return operation.replace(dimensions=tuple(map(theirs[0].index, order)))
            case Concatenate(dimensions=(d,)) | Sort(dimensions=(d,)):
                return operation.replace(dimensions=(places.index(d),))
            case Reverse(dimensions=dimensions):
                return operation.replace(dimensions=tuple(p for p, d in enumerate(places) if d in dimensions))
            case Reduce():
                reduced = (p for p, a in enumerate(theirs[0]) if a not in order)
                return operation.replace(dimensions=tuple(reduced))
            case Iota(iota_dimension=d):
                return operation.replace(iota_dimension=places.index(d))
            case Slice(slice=entries):
                return operation.replace(
                    slice=_each(entries, places, [SliceDimension(0, size, 1) for size in sizes])
                )
            case Pad(padding=entries):
                return operation.replace(
                    padding=_each(entries, places, [PaddingDimension(0, 0, 0)] * len(places))
                )
            case ReduceWindow(window=entries):
                return operation.replace(
                    window=_each(entries, places, [WindowDimension(size=1)] * len(places))
                )
            case DynamicSlice(dynamic_slice_sizes=entries):
                return operation.replace(dynamic_slice_sizes=_each(entries, places, sizes))
            case Dot():
                x, y = theirs
                batch = [a for a in order if a in x and a in y]
                inner = [a for a in x if a in y and a not in batch]
                return operation.replace(
                    lhs_contracting_dims=tuple(map(x.index, inner)),
                    rhs_contracting_dims=tuple(map(y.index, inner)),
                    lhs_batch_dims=tuple(map(x.index, batch)),
                    rhs_batch_dims=tuple(map(y.index, batch)),
                )
            case _:
                return operation

    def _start(self, i: HloInstruction, order: Sequence[Axis], places: Sequence[int]) -> None:
        """Give each axis a start index: its own for every copy, where it is a parameter."""
        old, starts = _starts(i), list[HloInstruction]()
        for (_, copy), d in zip(order, places, strict=True):
            start = old[d] if d >= 0 else next(o for o in old)
            is_own = d < 0 or (copy and isinstance(start.operation, Parameter))
            starts.append(
                self._parameter(start, f"{'all' if d < 0 else start.name}.{copy}") if is_own else start
            )
        i.operands[len(i.operands) - len(old) :] = starts
        for start in starts:
            start.users[i] = None

    def _parameter(self, start: HloInstruction, name: str) -> HloInstruction:
        """Return the start index of a name, the same everywhere."""
        for p in self.module.entry.parameters:
            if p.name == name:
                return p
        operation = Parameter(parameter_number=len(self.module.entry.parameters))
        return self.module.entry.add(HloInstruction(name, operation, start.shape))


def _each(entries: Sequence[Any], places: Sequence[int], others: Sequence[Any]) -> tuple[Any, ...]:
    """Return the entry of each dimension, of an example or of an axis of all arrays."""
    return tuple(other if d < 0 else entries[d] for d, other in zip(places, others, strict=True))


def _ranks(shape: Shape) -> set[int]:
    """Return the ranks of the arrays of a shape that are not scalars."""
    return {part.rank for _, part in shape.leaves() if part.is_array and part.rank}


def _rank(i: HloInstruction) -> int:
    return max(_ranks(i.shape), default=0)


def _resized(shape: Shape, order: Sequence[Axis], places: Sequence[int]) -> Shape:
    """Return a shape whose arrays, but for scalars, have other axes."""
    if shape.is_tuple:
        return Shape.tuple_(_resized(part, order, places) for part in shape.tuple_shapes)
    if not shape.is_array or not shape.rank:
        return shape
    old = shape.dimensions
    sizes = [_SIZES[str(a[0])] if d < 0 else old[d] for a, d in zip(order, places, strict=True)]
    return Shape(shape.element_type, sizes)


def _starts(i: HloInstruction) -> list[HloInstruction]:
    return i.operands[1 if isinstance(i.operation, DynamicSlice) else 2 :]
