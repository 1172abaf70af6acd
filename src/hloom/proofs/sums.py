"""Fingerprints of operations that combine elements: reductions, windows, dots and convolutions.

The terms of convolutions and windows follow from the declarations by which these are also compiled
(`Operation.accumulation`): `Grid` computes the indices for all result elements at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias, cast

import numpy as np

from hloom.ir.affine import Index, Indices, Variable
from hloom.ir.computation import HloComputation
from hloom.ir.indexing import Accumulation, Addressing, Read
from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import Add, And, Maximum, Minimum, Multiply, Or
from hloom.operations.contraction import Dot
from hloom.operations.convolution import Convolution
from hloom.operations.structure import Parameter
from hloom.proofs import field
from hloom.proofs.algebra import Algebra, Extreme
from hloom.proofs.field import Residues, salt_of
from hloom.proofs.prints import Bag, Prints
from hloom.shape.element_type import ElementType

Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
MOST_STEPS: Final = 1 << 28
"""Maximum number of terms of an operation that are combined one by one."""
PRODUCT_GAIN: Final = 64
"""How much faster terms of products of matrices are combined."""
_CHUNK: Final = 1 << 22
"""Number of terms of convolutions that are in memory at once."""


class TooLarge(Exception):
    """A program that is not run on fingerprints, by its size or its operations; the message says why."""


def combining(computation: HloComputation) -> type[Any] | None:
    """Return the type of the operation that a reducer applies to its two parameters.

    Returns None for other reducers.
    """
    root = computation.root
    if len(computation.parameters) != 2 or len(root.operands) != 2:
        return None
    if (
        any(not isinstance(o.operation, Parameter) for o in root.operands)
        or root.operands[0] is root.operands[1]
    ):
        return None
    operations = (Add, Multiply, Maximum, Minimum, And, Or)
    return type(root.operation) if isinstance(root.operation, operations) else None


def combined(
    algebra: Algebra, operation: type[Any], kind: ElementType, terms: Prints, initial: Prints
) -> Prints | None:
    """Return the reduction of terms along axis 0, from an initial element; None if their order matters."""
    residues = terms.residues
    if issubclass(operation, Add | Multiply) and not kind.is_predicate:
        if not algebra.forms_ring(kind):
            return None
        if issubclass(operation, Add):
            return algebra.rounded(field.add(field.total(residues), initial.residues), kind)
        return algebra.rounded(field.multiply(field.product(residues), initial.residues), kind)
    if kind.is_predicate and issubclass(operation, And | Multiply | Minimum):
        return Prints(field.multiply(field.product(residues), initial.residues))
    if kind.is_predicate:
        none = field.product(field.subtract(field.ONE, residues))
        both = field.multiply(none, field.subtract(field.ONE, initial.residues))
        return Prints(field.subtract(field.ONE, both))
    if kind.is_complex:
        return None
    neutral = algebra.neutral(cast("type[Extreme]", operation), kind)
    bag = Bag.of(operation.opcode, terms, neutral).total(operation.opcode)
    first = initial.moved(lambda array: np.broadcast_to(array, bag.count.shape))
    return bag.joined(Bag.of(operation.opcode, first, neutral)).prints(operation.opcode, neutral)


def in_order(salt: int, terms: Sequence[Prints], initial: Sequence[Prints], count: int) -> list[Prints]:
    """Return results that are unknown functions of the terms along axis 0, in order, and of initial elements.

    Args:
        salt: the fingerprint of the computation that combines the terms.
        terms: the reduced arrays.
        initial: the initial element of each array.
        count: the number of results.
    """
    state = np.zeros((), np.uint64)
    for x in terms:
        state = field.mix(salt, np.asarray(state), field.sequence(salt, x.residues))
    for x in initial:
        state = field.mix(salt, np.asarray(state), x.residues)
    return [Prints(np.asarray(field.mix(salt_of(salt, n), np.asarray(state)))) for n in range(count)]


# -- dots


def dot(algebra: Algebra, i: HloInstruction, lhs: Prints, rhs: Prints) -> Prints:
    """Return the result of a dot."""
    operation = i.operation
    assert isinstance(operation, Dot)
    kind = i.shape.element_type
    lhs_terms, rhs_terms = (
        algebra.converted(x, o.shape.element_type, kind) if o.shape.element_type.is_integer else x
        for x, o in zip((lhs, rhs), i.operands, strict=True)
    )
    batch, bound = operation.lhs_batch_dims, operation.lhs_contracting_dims
    rows = [d for d in range(i.operands[0].shape.rank) if d not in (*batch, *bound)]
    a = lhs_terms.residues.transpose(*batch, *rows, *bound)
    batch, bound = operation.rhs_batch_dims, operation.rhs_contracting_dims
    columns = [d for d in range(i.operands[1].shape.rank) if d not in (*batch, *bound)]
    b = rhs_terms.residues.transpose(*batch, *bound, *columns)
    count, terms = len(batch), math.prod(i.operands[1].shape.dimensions[d] for d in bound)
    sizes = a.shape[:count]
    a = a.reshape(*sizes, math.prod(a.shape[count : count + len(rows)]), terms)
    b = b.reshape(*sizes, terms, math.prod(b.shape[count + len(bound) :]))
    if algebra.forms_ring(kind):
        _require_few(a.size * b.shape[-1] // PRODUCT_GAIN)
        return algebra.rounded(field.matmul(a, b).reshape(i.shape.dimensions), kind)
    salt = salt_of("dot", operation.algorithm, *(o.shape.element_type.name for o in i.operands), kind.name)
    row = field.sequence(salt, np.moveaxis(a, -1, 0))[..., :, None]
    column = field.sequence(salt, np.moveaxis(b, -2, 0))[..., None, :]
    low, high = np.minimum(row, column), np.maximum(row, column)
    return Prints(np.asarray(field.mix(salt, low, high)).reshape(i.shape.dimensions))


# -- windows and convolutions


class Grid(Addressing[Mask]):
    """The index arithmetic of an accumulation for all result elements at once.

    A variable's value is an array of numbers, which broadcasts to the dimensions of the result.
    """

    def __init__(self, dimensions: Sequence[int]) -> None:
        super().__init__()
        self.dimensions = tuple(dimensions)
        rank = len(self.dimensions)
        self.indices: Indices = tuple(
            Index(
                0, [(self._variable(n, np.arange(n).reshape([-1 if d == e else 1 for e in range(rank)])), 1)]
            )
            for d, n in enumerate(self.dimensions)
        )

    @staticmethod
    def _variable(extent: int, value: Any) -> Variable:
        return Variable(max(extent, 1), "g", value)

    def numbers(self, index: Index) -> Any:
        """Return the values of an index for all elements."""
        number: Any = np.asarray(index.constant)
        for variable, coefficient in index.terms:
            number = number + coefficient * np.asarray(variable.value)
        return number

    def read(self, array: Residues, read: Read[Mask], outside: Residues, loops: Sequence[int]) -> Residues:
        """Return an array's elements at an index, and `outside` where the read's condition is false.

        The index may run over loops: the result has their positions along its first dimension.
        """
        positions = [
            np.clip(self.numbers(index), 0, size - 1)
            for index, size in zip(read.indices, array.shape, strict=True)
        ]
        picked = array[tuple(positions)] if positions else array
        if read.condition is not None:
            picked = np.where(read.condition, picked, outside)
        return np.broadcast_to(picked, (*loops, *self.dimensions)).reshape(-1, *self.dimensions)

    def compare(self, index: Index, size: int) -> Mask:
        """Return a mask of the result elements for which an index is in [0, size)."""
        numbers = self.numbers(index)
        return np.asarray((numbers >= 0) & (numbers < size))

    def conjunction(self, a: Mask, b: Mask) -> Mask:
        """Return the mask of the result elements for which both conditions hold."""
        return a & b

    def division(self, index: Index, divisor: int) -> tuple[Index, Index]:
        """Return the quotient and the remainder of an index by a constant, each as a new variable."""
        numbers = self.numbers(index)
        parts = numbers // divisor, numbers % divisor
        quotient, remainder = (self._variable(int(np.max(n, initial=0)) + 1, n) for n in parts)
        return Index(0, [(quotient, 1)]), Index(0, [(remainder, 1)])


def accumulate(
    algebra: Algebra, i: HloInstruction, operands: Sequence[Prints], computation: HloComputation, salt: int
) -> list[Prints]:
    """Return the results of a windowed reduction, from the terms that its operation declares."""
    grid = Grid((i.shape.tuple_shapes[0] if i.shape.is_tuple else i.shape).dimensions)
    plan = i.operation.accumulation(grid, i, grid.indices)
    assert plan is not None
    _require_few(math.prod(plan.extents) * math.prod(grid.dimensions))
    by_instruction = dict(zip(i.operands, operands, strict=True))
    initial = [by_instruction[o] for o in plan.initial]
    half = len(initial)
    reads = [(plan.terms(position), loops) for position, loops in _positions(plan, grid.dimensions)]

    def windows(n: int, array: Residues, outside: Residues) -> Residues:
        if not array.size:
            return np.broadcast_to(outside, (math.prod(plan.extents), *grid.dimensions))
        return np.concatenate([grid.read(array, terms[n], outside, loops) for terms, loops in reads])

    terms: list[Prints] = []
    for n, (x, first) in enumerate(zip(operands[:half], initial, strict=True)):
        arrays = windows(n, x.residues, first.residues)
        parts = zip(Bag.single(x).parts, Bag.single(first).parts) if x.bag is not None else ()
        bag = Bag(*(windows(n, a, b) for a, b in parts)) if x.bag is not None else None
        terms.append(Prints(arrays, bag=bag))
    operation = combining(computation)
    if operation is not None:
        result = combined(algebra, operation, i.shape.element_type, terms[0], initial[0])
        if result is not None:
            return [result]
    return in_order(salt, terms, initial, half)


def convolution(algebra: Algebra, i: HloInstruction, lhs: Prints, rhs: Prints) -> Prints:
    """Return the result of a convolution.

    It is computed as a product of matrices if it has no feature or batch groups: then all output features
    read the same elements of the input.
    """
    operation, kind = i.operation, i.shape.element_type
    assert isinstance(operation, Convolution)
    features = operation.dim_labels.output_feature_dimension
    is_product = operation.feature_group_count == operation.batch_group_count == 1
    grids = [
        Grid(
            [
                1 if is_product and (d == features) is not right else n
                for d, n in enumerate(i.shape.dimensions)
            ]
        )
        for right in (False, True)
    ]
    plans: list[Any] = [operation.accumulation(grid, i, grid.indices) for grid in grids]
    steps = math.prod(plans[0].extents)
    _require_few(steps * i.shape.element_count // (PRODUCT_GAIN if is_product else 1))
    types = [o.shape.element_type for o in i.operands]
    sides = [
        algebra.converted(x, source, kind) if source.is_integer else x
        for x, source in zip((lhs, rhs), types, strict=True)
    ]
    exact = algebra.forms_ring(kind)
    salt = salt_of("convolution", *(t.name for t in types), kind.name)
    totals = [np.zeros(i.shape.dimensions, np.uint64)] * 2
    start = 0
    largest = max((grid.dimensions for grid in grids), key=math.prod)
    for position, loops in _positions(plans[0], largest):
        a, b = (
            grid.read(side.residues, plan.terms(position)[n], field.number(0), loops)
            for n, (grid, plan, side) in enumerate(zip(grids, plans, sides, strict=True))
        )
        if exact and is_product:
            part = field.matmul(a.reshape(len(a), -1).T, b.reshape(len(b), -1))
            sizes = [n for d, n in enumerate(i.shape.dimensions) if d != features]
            products = [np.moveaxis(part.reshape(*sizes, -1), -1, features)]
        elif exact:
            products = [field.total(field.multiply(a, b))]
        else:
            numbers = np.arange(start, start + len(a), dtype=np.uint64).reshape(-1, *[1] * i.shape.rank)
            products = [field.total(field.mix(salt, x, np.broadcast_to(numbers, x.shape))) for x in (a, b)]
        totals = [field.add(total, each) for total, each in zip(totals, products, strict=False)]
        start += len(a)
    if exact:
        return algebra.rounded(totals[0], kind)
    return Prints(np.asarray(field.mix(salt, *totals)))


def _positions(plan: Accumulation[Mask], dimensions: Sequence[int]) -> Iterator[tuple[Indices, list[int]]]:
    """Yield the positions of the loops of an accumulation, in order, as many at once as memory allows.

    Args:
        plan: the accumulation.
        dimensions: those of its result.

    Yields:
        The indices of the loops, and the extents of the inner ones, over all positions of which indices run.
    """
    extents, size = list(plan.extents), max(1, math.prod(dimensions))
    if not extents:
        yield (), []
        return
    split = next(
        n
        for n in range(len(extents))
        if math.prod(extents[n + 1 :]) * size <= _CHUNK or n + 1 == len(extents)
    )
    step = max(1, _CHUNK // (math.prod(extents[split + 1 :]) * size or 1))
    rank = len(extents) - split + len(dimensions)
    for outer in itertools.product(*map(range, extents[:split])):
        for start in range(0, extents[split], step):
            ranges = [range(start, min(start + step, extents[split])), *map(range, extents[split + 1 :])]
            indices = [
                Index(0, [(Variable(max(extents[split + d], 1), "p", values), 1)])
                for d, each in enumerate(ranges)
                for values in [
                    np.arange(each.start, each.stop).reshape([-1 if e == d else 1 for e in range(rank)])
                ]
            ]
            yield (*map(Index, outer), *indices), [len(each) for each in ranges]


def _require_few(steps: int) -> None:
    if steps > MOST_STEPS:
        raise TooLarge("a product has too many terms")
