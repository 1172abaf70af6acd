"""Reshapes: the same elements in the same order, in other dimensions.

The pages "Reshape" and "DynamicReshape".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import ClassVar

from hloom.error_bounds.rules import linear_in_first
from hloom.errors import EvaluationError, ShapeError, plural
from hloom.ir.affine import Index, Indices
from hloom.ir.codec import INTEGER, FirstCodec, attribute
from hloom.ir.indexing import Condition, Element, Indexing, Read, Steps
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, MergedDimensions, ProgramShape, Run, operation
from hloom.ir.sharding_rule import Factor
from hloom.ir.traits import ElementCost
from hloom.operations.movement import Movement, require_array
from hloom.shape.shape import Shape

UNBOUNDED = Shape.UNBOUNDED


def _check_reshape(opcode: str, shape: Shape, operand: Shape) -> None:
    require_array(opcode, shape, operand)
    if shape.element_type is not operand.element_type:
        message = f"{operand} is reshaped to {shape}, of another element type"
        raise ShapeError(message, rule=f"{opcode}.element-type")
    if not (shape.is_unbounded or operand.is_unbounded) and shape.element_count != operand.element_count:
        message = (
            f"{operand} has {plural(operand.element_count, 'element')}, {shape} has {shape.element_count}"
        )
        raise ShapeError(message, rule=f"{opcode}.element-count")


def _reshaped(x: Indexing[Condition, Element], i: HloInstruction, indices: Indices) -> Read[Condition]:
    """Return the read of the element at the same linear index; sizes of 1 come and go without arithmetic.

    Indices of padded arrays may be outside, where divisions of linear ones are not affine.
    """
    sizes = i.operands[0].shape.dimensions
    longer = [index for index, size in zip(indices, i.shape.dimensions, strict=True) if size != 1]
    if [size for size in sizes if size != 1] == [size for size in i.shape.dimensions if size != 1]:
        following = iter(longer)
        return Read(i.operands[0], tuple(Index(0) if size == 1 else next(following) for size in sizes))
    return Read(i.operands[0], x.reshaped(i.operands[0], x.linear(indices, i.shape.dimensions)))


@operation("reshape", "operand")
class Reshape(Movement):
    """The elements of ``operand`` in the same row-major order, in other dimensions.

    Arguments:
        operand: an array of as many elements as the result.
        inferred_dimension: the dynamic result dimension whose size follows from the others; -1 for none.
    """

    element_cost: ClassVar[ElementCost] = ElementCost.FREE
    aliases_operand: ClassVar[bool] = True
    scalar_identity: ClassVar[bool] = True
    infers: ClassVar[bool] = False
    inferred_dimension: int = attribute(FirstCodec(INTEGER, absent=-1), default=-1, proto="dimensions")

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        """Pair dimensions with the same extents before them; a tile of either is a tile of the other.

        If a dimension is split, tiles of its major part may also be made of ranges of the operand's tiles.
        """
        (operand,), result = operands, call.shape
        before = list(accumulate(operand.dimensions, lambda a, b: a * b, initial=1))
        after = list(accumulate(result.dimensions, lambda a, b: a * b, initial=1))
        factors: list[Factor] = []
        for d, extent in enumerate(operand.dimensions):
            for e, other in enumerate(result.dimensions):
                if extent > 1 and other > 1 and before[d] == after[e]:
                    factors.append(Factor(math.gcd(extent, other), {0: d}, e))
                    if extent % other == 0 and extent > other:
                        factors.append(Factor(other, {0: d}, e, kind="halo"))
        return factors

    def traffic(self, shape: Shape, *operands: Shape) -> int:
        return 0

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check for the same element type and number of elements."""
        _check_reshape(self.opcode, shape, operands[0])
        if not -1 <= self.inferred_dimension < shape.rank:
            message = f"inferred_dimension {self.inferred_dimension} is not one of {shape}"
            raise ShapeError(message, rule="reshape.inferred-dimension")

    def merge_dimensions(self, call: HloInstruction, d: int) -> MergedDimensions | None:
        """Merge the operand's dimensions that meet where those of the result do, if there are any."""
        inside = math.prod(call.shape.dimensions[d + 1 :])
        before = call.operands[0].shape.dimensions
        meeting = [n for n in range(len(before) - 1) if math.prod(before[n + 1 :]) == inside]
        return MergedDimensions(Reshape(), [meeting[-1] if meeting else None])

    def element(
        self, x: Indexing[Condition, Element], i: HloInstruction, indices: Indices
    ) -> Steps[Condition, Element]:
        """Read the operand at the same linear index."""
        return (yield _reshaped(x, i, indices))

    def evaluate(self, run: Run, operand: Array) -> Array:
        """Reshape; dynamic sizes follow from the operand's actual size."""
        if run.shape.is_static:
            sizes = run.shape.dimensions
        else:
            sizes = _actual_sizes(
                run.instruction.operands[0].shape, operand, run.shape, self.inferred_dimension
            )
        if math.prod(sizes) != operand.size:
            message = f"{run.shape} is not made of {plural(operand.size, 'element')}"
            raise EvaluationError(message, rule="reshape.actual-size")
        return operand.reshape(sizes)


def _actual_sizes(source: Shape, operand: Array, shape: Shape, inferred: int) -> tuple[int, ...]:
    """Return the actual sizes of a reshape's result of dynamic shape.

    Source and result are cut into the shortest groups of dimensions with equal products of bounds. In each
    group the operand's actual elements are spread over the result's static dimensions, and what is left is
    the size of the dynamic one.
    """
    if UNBOUNDED in source.dimensions or UNBOUNDED in shape.dimensions:
        groups = [((0, source.rank), (0, shape.rank))]
    else:
        groups = _common_groups(source.dimensions, shape.dimensions)
    sizes = list(shape.dimensions)
    for (source_start, source_end), (start, end) in groups:
        open_ = [i for i in range(start, end) if shape.dynamic_dimensions[i]]
        elements = math.prod(operand.shape[source_start:source_end])
        if len(open_) > 1 and inferred in open_:
            open_ = [inferred]
        if len(open_) > 1:
            raise EvaluationError(
                f"the dynamic sizes of {shape} do not follow from {operand.shape}",
                rule="reshape.dynamic-sizes",
            )
        if open_:
            others = math.prod(sizes[i] for i in range(start, end) if i != open_[0])
            sizes[open_[0]] = elements // others if others else 0
    return tuple(sizes)


def _common_groups(
    source: tuple[int, ...], result: tuple[int, ...]
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the shortest ranges of dimensions of both with equal products of sizes."""
    if math.prod(source) == 0:
        return [((0, len(source)), (0, len(result)))]
    products = [list(accumulate(sizes, int.__mul__, initial=1)) for sizes in (source, result)]
    ends = [(products[0].index(p), products[1].index(p)) for p in sorted(set(products[0]) & set(products[1]))]
    ends = [(0, 0), *ends[1:-1], (len(source), len(result))]
    return [((a, c), (b, d)) for (a, b), (c, d) in pairwise(ends)]


@operation("dynamic-reshape", "operand *dim_sizes")
class DynamicReshape(Movement):
    """Reshape whose sizes are scalars computed by the program.

    Arguments:
        operand: an array.
        dim_sizes: for each dimension of the result, its actual size, a scalar integer.
    """

    element_cost: ClassVar[ElementCost] = ElementCost.FREE
    errors = linear_in_first
    infers: ClassVar[bool] = False

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check for one size per dimension, and the same number of elements at the bounds."""
        operand, *dim_sizes = operands
        _check_reshape(self.opcode, shape, operand)
        if len(dim_sizes) != shape.rank:
            message = f"{shape} needs {plural(shape.rank, 'size')}, got {len(dim_sizes)}"
            raise ShapeError(message, rule="dynamic-reshape.size-count")
        for size in dim_sizes:
            if not size.is_scalar or not size.element_type.is_integer:
                raise ShapeError(
                    f"a size is a scalar integer, not {size}", rule="dynamic-reshape.size-scalar"
                )

    def element(
        self, x: Indexing[Condition, Element], i: HloInstruction, indices: Indices
    ) -> Steps[Condition, Element]:
        """Read the operand at the same linear index."""
        return (yield _reshaped(x, i, indices))

    def evaluate(self, run: Run, operand: Array, *dim_sizes: Array) -> Array:
        """Reshape to the given sizes, which must hold exactly the operand's elements."""
        sizes = [int(size) for size in dim_sizes]
        bounds = run.shape.dimensions
        for size, bound, dynamic in zip(sizes, bounds, run.shape.dynamic_dimensions, strict=True):
            if size < 0 or (size > bound != UNBOUNDED) or (size != bound and not dynamic):
                raise EvaluationError(f"size {size} in {run.shape}", rule="dynamic-reshape.size-bound")
        if math.prod(sizes) != operand.size:
            message = f"{sizes} is not made of {plural(operand.size, 'element')}"
            raise EvaluationError(message, rule="dynamic-reshape.actual-size")
        return operand.reshape(sizes)
