"""Programs of higher ranks, made from an example by repeating one of its dimensions.

Dimensions of the values of a program correspond as operations relate them: those of a transpose's operand and
result, or the contracting dimensions of both operands of a dot. Such a class of dimensions is repeated in all
values at once. Dimensions that occur once by their nature, such as that of a concatenation, are not repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.operations.contraction import Dot
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.movement import Broadcast, Concatenate, Pad, Reverse, Slice, Transpose
from hloom.operations.reduction import Reduce
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Constant, Iota, Parameter
from hloom.operations.window_reduction import ReduceWindow
from hloom.passes.rules.dimensions import reshape_groups
from hloom.shape.shape import Shape

Dimension: TypeAlias = tuple[HloInstruction, int]
HIGHEST_RANK: Final = 4
SAME_DIMENSIONS: Final = (Slice, Pad, Reverse, DynamicSlice, DynamicUpdateSlice, Concatenate, ReduceWindow)
"""Operations whose operands have the dimensions of the result."""


def repeated_programs(text: str, times: int) -> Iterator[str]:
    """Yield a program for each dimension that is repeated some times, up to rank 4."""
    count = len(_Classes(HloModule.from_text(text)).representatives())
    for number in range(count):
        module = HloModule.from_text(text)
        classes = _Classes(module)
        if _repeat(module, classes, classes.representatives()[number], times):
            yield module.to_text()


class _Classes:
    """The dimensions of a program's values, those that correspond joined."""

    def __init__(self, module: HloModule) -> None:
        self._parents: dict[Dimension, Dimension] = {}
        self._single: set[Dimension] = set()
        self._all: list[Dimension] = []
        for i in module.entry.post_order():
            if i.shape.is_array:
                self._all += [(i, d) for d in range(i.shape.rank)]
            self._relate(i)

    def representatives(self) -> list[Dimension]:
        """Return a dimension of each class that can be repeated."""
        single = {self.root(d) for d in self._single}
        return [d for d in dict.fromkeys(map(self.root, self._all)) if d not in single]

    def root(self, dimension: Dimension) -> Dimension:
        """Return the representative of a dimension."""
        while dimension in self._parents:
            dimension = self._parents[dimension]
        return dimension

    def _join(self, a: Dimension, b: Dimension) -> None:
        a, b = self.root(a), self.root(b)
        if a != b:
            self._parents[b] = a

    def _relate(self, i: HloInstruction) -> None:
        operation = i.operation
        arrays = [o for o in i.operands if o.shape.is_array and o.shape.rank]
        match operation:
            case Parameter():
                pass
            case Iota(iota_dimension=d):
                self._single.add((i, d))
            case Broadcast(dimensions=into):
                for n, d in enumerate(into):
                    self._join((i, d), (i.operands[0], n))
            case Transpose(dimensions=order):
                for n, d in enumerate(order):
                    self._join((i, n), (i.operands[0], d))
            case Reduce(dimensions=reduced) if len(arrays) == 1 and i.shape.is_array:
                remaining = [d for d in range(arrays[0].shape.rank) if d not in reduced]
                for n, d in enumerate(remaining):
                    self._join((i, n), (arrays[0], d))
            case Dot():
                self._relate_dot(i, operation)
            case Reshape():
                self._relate_reshape(i)
            case DynamicSlice() | DynamicUpdateSlice() if any(o.shape.rank for o in _starts(i)):
                self._single |= {(v, d) for v in (*arrays, i) for d in range(v.shape.rank)}
            case _ if i.shape.is_array and (operation.elementwise or isinstance(operation, SAME_DIMENSIONS)):
                for array in arrays:
                    for d in range(min(array.shape.rank, i.shape.rank)):
                        self._join((i, d), (array, d))
                if isinstance(operation, Concatenate):
                    self._single.add((i, operation.dimensions[0]))
            case _:
                values = (v for v in (*arrays, i) if v.shape.is_array)
                self._single |= {(v, d) for v in values for d in range(v.shape.rank)}

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
            for d in range(operand.shape.rank):
                if d not in named:
                    self._join((operand, d), (i, position))
                    position += 1

    def _relate_reshape(self, i: HloInstruction) -> None:
        (x,) = i.operands
        pairs = {
            a[0]: b[0]
            for a, b in reshape_groups(x.shape.dimensions, i.shape.dimensions) or ()
            if len(a) == len(b) == 1
        }
        for a, b in pairs.items():
            self._join((x, a), (i, b))
        self._single |= {(x, d) for d in range(x.shape.rank) if d not in pairs}
        self._single |= {(i, d) for d in range(i.shape.rank) if d not in pairs.values()}


def _repeat(module: HloModule, classes: _Classes, repeated: Dimension, times: int) -> bool:
    """Repeat a class of dimensions in every value; return whether all ranks stay within the limit."""
    copies: dict[HloInstruction, list[int]] = {}
    steps = list(module.entry.post_order())
    for i in steps:
        rank = i.shape.rank if i.shape.is_array else 0
        copies[i] = [times if classes.root((i, d)) == repeated else 1 for d in range(rank)]
        if sum(copies[i]) > HIGHEST_RANK:
            return False
    for i in steps:
        i.operation = _operation(i, copies)
        if isinstance(i.operation, DynamicSlice | DynamicUpdateSlice):
            _repeat_starts(module, i, copies[i])
        if i.shape.is_array and not isinstance(i.operation, Constant):
            i.shape = Shape(i.shape.element_type, _each(i.shape.dimensions, copies[i]))
    module.config.entry_layout = None
    return True


def _each(values: Sequence[Any], counts: Sequence[int]) -> tuple[Any, ...]:
    """Return each value as often as its dimension is repeated."""
    return tuple(v for v, count in zip(values, counts, strict=True) for _ in range(count))


def _numbers(dimensions: Sequence[int], counts: Sequence[int]) -> tuple[int, ...]:
    """Return the new numbers of dimensions, those of all copies."""
    starts = [sum(counts[:d]) for d in range(len(counts))]
    return tuple(starts[d] + n for d in dimensions for n in range(counts[d]))


def _operation(i: HloInstruction, copies: dict[HloInstruction, list[int]]) -> Operation:
    operation = i.operation
    mine = copies[i]
    first = copies[i.operands[0]] if i.operands else []
    match operation:
        case Broadcast(dimensions=into) | Transpose(dimensions=into) | Concatenate(dimensions=into):
            target = first if isinstance(operation, Transpose) else mine
            return operation.replace(dimensions=_numbers(into, target))
        case Reverse(dimensions=dimensions) | Reduce(dimensions=dimensions):
            return operation.replace(dimensions=_numbers(dimensions, first))
        case Iota(iota_dimension=d):
            return operation.replace(iota_dimension=_numbers([d], mine)[0])
        case Slice(slice=ranges):
            return operation.replace(slice=_each(ranges, mine))
        case Pad(padding=padding):
            return operation.replace(padding=_each(padding, mine))
        case ReduceWindow(window=window):
            return operation.replace(window=_each(window, mine))
        case DynamicSlice(dynamic_slice_sizes=sizes):
            return operation.replace(dynamic_slice_sizes=_each(sizes, mine))
        case Dot():
            sides = copies[i.operands[0]], copies[i.operands[1]]
            fields = ("lhs_contracting_dims", "lhs_batch_dims"), ("rhs_contracting_dims", "rhs_batch_dims")
            return operation.replace(
                **{
                    name: _numbers(getattr(operation, name), counts)
                    for names, counts in zip(fields, sides, strict=True)
                    for name in names
                }
            )
        case _:
            return operation


def _repeat_starts(module: HloModule, i: HloInstruction, counts: Sequence[int]) -> None:
    """Give each copy of a dimension a start index of its own where that is a parameter."""
    old, starts = _starts(i), list[HloInstruction]()
    for start, count in zip(old, counts, strict=True):
        starts.append(start)
        for n in range(1, count):
            copy = start
            if isinstance(start.operation, Parameter):
                copy = _parameter_like(module, start, n)
            starts.append(copy)
    i.operands[-len(old) :] = starts
    for start in starts:
        start.users[i] = None


def _starts(i: HloInstruction) -> list[HloInstruction]:
    return i.operands[1 if isinstance(i.operation, DynamicSlice) else 2 :]


def _parameter_like(module: HloModule, start: HloInstruction, number: int) -> HloInstruction:
    """Return the parameter that a copy of a dimension has in place of another one, the same everywhere."""
    name = f"{start.name}.{number}"
    for p in module.entry.parameters:
        if p.name == name:
            return p
    operation = Parameter(parameter_number=len(module.entry.parameters))
    return module.entry.add(HloInstruction(name, operation, start.shape))
