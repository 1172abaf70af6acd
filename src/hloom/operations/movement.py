"""Operations that rearrange elements: broadcast, transpose, reverse, slice, pad, concatenate.

The pages "BroadcastInDim", "Transpose", "Rev", "Slice", "Pad" and "Concatenate".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple

import numpy as np

from hloom.error_bounds.rules import linear
from hloom.errors import EvaluationError, ShapeError, plural
from hloom.ir.affine import Index, Indices
from hloom.ir.codec import dims
from hloom.ir.indexing import Condition, Element, Indexing, Read, Steps, Stretch, Stretches, undilated
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import (
    Array,
    MergedDimensions,
    Operation,
    ProgramShape,
    Run,
    operation,
    require_dynamic,
)
from hloom.ir.sharding_rule import Factor, same_extents, with_halos
from hloom.ir.traits import ElementCost, Family, LayoutSource, Roundoff, shape_bytes
from hloom.ir.window import (
    PaddingDimension,
    SliceDimension,
    dilate,
    fits_int64,
    padding_config,
    slice_ranges,
)
from hloom.operations.elementwise import joint_element_type
from hloom.shape.shape import Shape

UNBOUNDED = Shape.UNBOUNDED


def require_array(opcode: str, *operands: Shape) -> None:
    """Refuse operands that are not arrays."""
    for operand in operands:
        if not operand.is_array:
            raise ShapeError(f"{opcode} takes arrays, got {operand}", rule=f"{opcode}.operand-array")


def require_dimensions(opcode: str, dimensions: Sequence[int], shape: Shape) -> None:
    """Refuse dimension numbers that are out of range or repeated."""
    for dimension in dimensions:
        if not 0 <= dimension < shape.rank:
            message = f"dimension {dimension} is not one of {shape}"
            raise ShapeError(message, rule=f"{opcode}.dimension-range")
    if len(set(dimensions)) != len(dimensions):
        message = f"dimensions {tuple(dimensions)} hold one twice"
        raise ShapeError(message, rule=f"{opcode}.dimensions-unique")


def without_dimension(dimensions: Sequence[int], removed: int) -> tuple[int, ...]:
    """Return dimension numbers as they are once dimension ``removed`` is gone; its own number is left out."""
    return tuple(n - (n > removed) for n in dimensions if n != removed)


class Movement(Operation):
    """Common to operations whose elements are those of operands, by default of the first one."""

    __slots__ = ()
    family: ClassVar[Family] = Family.MOVEMENT
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    errors = linear
    copied_operands: ClassVar[tuple[int, ...]] = (0,)


@operation("broadcast", "operand")
class Broadcast(Movement):
    """Repeats ``operand`` along new dimensions: result[i] = operand[i[dimensions[0]], i[dimensions[1]], ...].

    Arguments:
        operand: an array.
        dimensions: for each dimension of the operand, the dimension of the result that it becomes; may be
            left out for a scalar.
    """

    highlighted: ClassVar[str] = "dimensions"
    element_cost: ClassVar[ElementCost] = ElementCost.FREE
    scalar_identity: ClassVar[bool] = True
    infers: ClassVar[bool] = False
    dimensions: tuple[int, ...] = dims(default=(), always=True)

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        """Return the dimensions of the operand, and new ones, which no operand has."""
        (operand,) = operands
        sources = {into: d for d, into in enumerate(self.dimensions)}
        factors: list[Factor] = []
        for d, extent in enumerate(call.shape.dimensions):
            source = sources.get(d)
            if source is None:
                factors.append(Factor(extent, {}, d))
            elif operand.dimensions[source] == extent:
                factors.append(Factor(extent, {0: source}, d))
        return factors

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check that each operand dimension has the size of the result dimension it becomes."""
        (operand,) = operands
        require_array(self.opcode, shape, operand)
        if shape.element_type is not operand.element_type:
            message = f"{operand} is broadcast to {shape}, of another element type"
            raise ShapeError(message, rule="broadcast.element-type")
        if len(self.dimensions) != operand.rank:
            message = f"{operand} needs {plural(operand.rank, 'dimension')}, got {self.dimensions}"
            raise ShapeError(message, rule="broadcast.dimensions-rank")
        require_dimensions(self.opcode, self.dimensions, shape)
        for size, dimension in zip(operand.dimensions, self.dimensions, strict=True):
            if shape.dimensions[dimension] != size and UNBOUNDED not in (size, shape.dimensions[dimension]):
                message = (
                    f"a dimension of {operand} becomes dimension {dimension} of {shape}, of another size"
                )
                raise ShapeError(message, rule="broadcast.dimension-size")
        dynamic = list(shape.dynamic_dimensions)
        for number, dimension in enumerate(self.dimensions):
            dynamic[dimension] = operand.is_dynamic_at(number)
        require_dynamic(shape, Shape(shape.element_type, shape.dimensions, tuple(dynamic)))

    def leading_of_operands(self, leading: int, rank: int) -> int | None:
        """Return the leading dimensions of an operand with all others of the result in order, or none."""
        own = sum(d < leading for d in self.dimensions)
        return own if self.dimensions[own:] in ((), tuple(range(leading, rank))) else None

    def merge_dimensions(self, call: HloInstruction, d: int) -> MergedDimensions | None:
        """Merge the operand's dimensions if it has both, one after the other."""
        sources = [self.dimensions.index(n) for n in (d, d + 1) if n in self.dimensions]
        if len(sources) == 1 or (sources and sources[1] != sources[0] + 1):
            return None
        outer = sources[0] if sources else None
        return MergedDimensions(Broadcast(dimensions=without_dimension(self.dimensions, d + 1)), [outer])

    def element(
        self, x: Indexing[Condition, Element], i: HloInstruction, indices: Indices
    ) -> Steps[Condition, Element]:
        """Read the operand at the indices of its dimensions."""
        return (yield Read(i.operands[0], tuple(indices[d] for d in self.dimensions)))

    def evaluate(self, run: Run, operand: Array) -> Array:
        """Broadcast; sizes come from the operand, elsewhere from the shape (a dynamic one from its bound)."""
        if not run.shape.rank:  # a scalar, or an array in its stead
            return operand
        sizes = list(run.shape.dimensions)
        for size, dimension in zip(operand.shape, self.dimensions, strict=True):
            sizes[dimension] = size
        if UNBOUNDED in sizes:
            raise EvaluationError(f"no operand gives the sizes of {run.shape}", rule="broadcast.unbounded")
        order = np.argsort(np.asarray(self.dimensions, np.intp))
        ahead = [size if i in self.dimensions else 1 for i, size in enumerate(sizes)]
        return np.broadcast_to(operand.transpose(order).reshape(ahead), sizes)


@operation("transpose", "operand")
class Transpose(Movement):
    """Permutes dimensions: dimension i of the result is dimension ``dimensions[i]`` of ``operand``."""

    highlighted: ClassVar[str] = "dimensions"
    element_cost: ClassVar[ElementCost] = ElementCost.INDEXED
    scalar_identity: ClassVar[bool] = True
    dimensions: tuple[int, ...] = dims()

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        """Return all dimensions."""
        pairs = enumerate(self.dimensions)
        return [Factor(operands[0].dimensions[s], {0: s}, d) for d, s in pairs]

    def infer(self, operand: Shape) -> Shape:
        """Return the permuted dimensions."""
        require_array(self.opcode, operand)
        if sorted(self.dimensions) != list(range(operand.rank)):
            message = f"{self.dimensions} is no permutation of the dimensions of {operand}"
            raise ShapeError(message, rule="transpose.permutation")
        return Shape(
            operand.element_type,
            [operand.dimensions[d] for d in self.dimensions],
            [operand.dynamic_dimensions[d] for d in self.dimensions],
        )

    def merge_dimensions(self, call: HloInstruction, d: int) -> MergedDimensions | None:
        """Merge the operand's dimensions if they are adjacent there as well."""
        outer, inner = self.dimensions[d : d + 2]
        if inner != outer + 1:
            return None
        return MergedDimensions(Transpose(dimensions=without_dimension(self.dimensions, inner)), [outer])

    def element(
        self, x: Indexing[Condition, Element], i: HloInstruction, indices: Indices
    ) -> Steps[Condition, Element]:
        """Read the operand at the permuted index."""
        source = dict(zip(self.dimensions, indices, strict=True))
        return (yield Read(i.operands[0], tuple(source[d] for d in range(len(indices)))))

    def evaluate(self, run: Run, operand: Array) -> Array:
        return operand.transpose(self.dimensions)


@operation("reverse", "operand")
class Reverse(Movement):
    """Reverses the order of elements along each of ``dimensions``."""

    highlighted: ClassVar[str] = "dimensions"
    layout_source: ClassVar[LayoutSource] = LayoutSource.OPERANDS
    element_cost: ClassVar[ElementCost] = ElementCost.FREE
    dimensions: tuple[int, ...] = dims()

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        """Return all dimensions; along those that are reversed, tiles come from other devices."""
        return with_halos(call.shape, operands, self.dimensions)

    def infer(self, operand: Shape) -> Shape:
        """Return the operand's shape."""
        require_array(self.opcode, operand)
        require_dimensions(self.opcode, self.dimensions, operand)
        return operand

    def merge_dimensions(self, call: HloInstruction, d: int) -> MergedDimensions | None:
        """Merge the operand's dimensions if both are reversed, or none."""
        if (d in self.dimensions) != (d + 1 in self.dimensions):
            return None
        return MergedDimensions(Reverse(dimensions=without_dimension(self.dimensions, d + 1)), [d])

    def element(
        self, x: Indexing[Condition, Element], i: HloInstruction, indices: Indices
    ) -> Steps[Condition, Element]:
        """Read the operand at the index counted from the other end."""
        source = list(indices)
        for d in self.dimensions:
            source[d] = indices[d] * -1 + (i.shape.dimensions[d] - 1)
        return (yield Read(i.operands[0], tuple(source)))

    def evaluate(self, run: Run, operand: Array) -> Array:
        return np.flip(operand, self.dimensions)


# -- slice, pad, concatenate


def filled(array: Array, shape: Shape) -> Array:
    """Pad static dimensions with zeros where an operand of dynamic shape had too few elements."""
    missing = [
        0 if flag or size == UNBOUNDED else size - n
        for n, size, flag in zip(array.shape, shape.dimensions, shape.dynamic_dimensions, strict=True)
    ]
    return np.pad(array, [(0, n) for n in missing]) if any(missing) else array


@operation("slice", "operand")
class Slice(Movement):
    """A box out of ``operand``: in each dimension every stride-th element from start to before limit.

    Arguments:
        operand: an array.
        slice: ``[start:limit:stride]`` for each dimension.
    """

    element_cost: ClassVar[ElementCost] = ElementCost.FREE
    fixes_sizes: ClassVar[bool] = True
    slice: tuple[SliceDimension, ...] = slice_ranges()

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        """Return all dimensions; along those that are cut, tiles need parts of other tiles."""
        full = same_extents(operands[0], call.shape)
        return with_halos(call.shape, operands, set(range(call.shape.rank)) - full)

    def traffic(self, shape: Shape, *operands: Shape) -> int:
        """Count the slice, read and written."""
        return 2 * shape_bytes(shape)

    def infer(self, operand: Shape) -> Shape:
        """Return ceil((limit - start) / stride) elements in each dimension."""
        require_array(self.opcode, operand)
        if len(self.slice) != operand.rank:
            message = f"{operand} needs {plural(operand.rank, 'range')}, got {len(self.slice)}"
            raise ShapeError(message, rule="slice.rank")
        sizes: list[int] = []
        for number, (d, size) in enumerate(zip(self.slice, operand.dimensions, strict=True)):
            if d.start < 0:
                raise ShapeError(f"start {d.start} in dimension {number} is negative", rule="slice.start")
            if d.limit < d.start:
                message = f"limit {d.limit} in dimension {number} is less than start {d.start}"
                raise ShapeError(message, rule="slice.limit-after-start")
            if d.limit > size != UNBOUNDED:
                message = f"limit {d.limit} in dimension {number} is more than its size {size}"
                raise ShapeError(message, rule="slice.limit")
            if d.stride <= 0:
                raise ShapeError(
                    f"stride {d.stride} in dimension {number} is not positive", rule="slice.stride"
                )
            sizes.append(-((d.start - d.limit) // d.stride))
        dynamic = [
            flag and d == SliceDimension(0, size)
            for flag, d, size in zip(operand.dynamic_dimensions, self.slice, operand.dimensions, strict=True)
        ]
        return Shape(operand.element_type, sizes, dynamic)

    def merge_dimensions(self, call: HloInstruction, d: int) -> MergedDimensions | None:
        """Merge the dimensions if a range of the outer one is taken, and all of the inner one."""
        outer, inner = self.slice[d : d + 2]
        size = call.operands[0].shape.dimensions[d + 1]
        if inner != SliceDimension(0, size) or outer.stride != 1:
            return None
        merged = SliceDimension(outer.start * size, outer.limit * size)
        return MergedDimensions(Slice(slice=(*self.slice[:d], merged, *self.slice[d + 2 :])), [d])

    def element(
        self, x: Indexing[Condition, Element], i: HloInstruction, indices: Indices
    ) -> Steps[Condition, Element]:
        """Read the operand at start + stride * index."""
        ranges = zip(indices, self.slice, strict=True)
        return (yield Read(i.operands[0], tuple(index * d.stride + d.start for index, d in ranges)))

    def evaluate(self, run: Run, operand: Array) -> Array:
        return filled(operand[tuple(slice(d.start, d.limit, d.stride) for d in self.slice)], run.shape)


@operation("pad", "operand padding_value")
class Pad(Movement):
    """Puts ``padding_value`` around and between the elements of ``operand``.

    In each dimension ``interior`` elements come between neighbours, then ``low`` before the first and
    ``high`` after the last; negative ``low`` and ``high`` remove elements from the ends.

    Arguments:
        operand: an array.
        padding_value: a scalar of its element type.
        padding: ``low_high_interior`` for each dimension.
    """

    copied_operands: ClassVar[tuple[int, ...]] = (0, 1)
    element_cost: ClassVar[ElementCost] = ElementCost.INDEXED
    padding: tuple[PaddingDimension, ...] = padding_config()

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        """Return all dimensions; along those that are padded, tiles need parts of other tiles."""
        moved = {d for d, p in enumerate(self.padding) if p.low or p.high or p.interior}
        return with_halos(call.shape, operands[:1], moved)

    def infer(self, operand: Shape, padding_value: Shape) -> Shape:
        """Return d + max(d - 1, 0) * interior + low + high elements in each dimension."""
        require_array(self.opcode, operand)
        if not padding_value.is_scalar:
            raise ShapeError(f"the padding value is a scalar, got {padding_value}", rule="pad.value-scalar")
        if len(self.padding) != operand.rank:
            message = f"{operand} needs {plural(operand.rank, 'padding')}, got {len(self.padding)}"
            raise ShapeError(message, rule="pad.rank")
        sizes: list[int] = []
        for number, (d, size) in enumerate(zip(self.padding, operand.dimensions, strict=True)):
            if d.interior < 0:
                message = f"interior padding {d.interior} in dimension {number} is negative"
                raise ShapeError(message, rule="pad.interior")
            if any(not fits_int64(extent) for extent in d.extents(max(size, 0))):
                message = f"{d} of {size} elements in dimension {number} needs numbers of more than 64 bits"
                raise ShapeError(message, rule="pad.range")
            sizes.append(UNBOUNDED if size == UNBOUNDED else d.output_size(size))
            if sizes[-1] < 0 and size != UNBOUNDED:
                message = (
                    f"padding {d.low}_{d.high} of {size} elements in dimension {number} leaves less than none"
                )
                raise ShapeError(message, rule="pad.result-size")
        element_type = joint_element_type(self.opcode, (operand, padding_value))
        return Shape(element_type, sizes, operand.dynamic_dimensions)

    def loop_dimensions(self, shape: Shape) -> Sequence[int]:
        """Return the dimensions, those with interior padding divided by its period where that is whole."""
        split: list[int] = []
        for size, d in zip(shape.dimensions, self.padding, strict=True):
            period = d.interior + 1
            split += [size // period, period] if d.interior and size % period == 0 else [size]
        return split

    def merge_dimensions(self, call: HloInstruction, d: int) -> MergedDimensions | None:
        """Merge the dimensions if the outer one alone is padded, at its ends."""
        outer, inner = self.padding[d : d + 2]
        if inner != PaddingDimension(0, 0) or outer.interior:
            return None
        size = call.shape.dimensions[d + 1]
        merged = PaddingDimension(outer.low * size, outer.high * size)
        return MergedDimensions(Pad(padding=(*self.padding[:d], merged, *self.padding[d + 2 :])), [d, None])

    def element(
        self, x: Indexing[Condition, Element], i: HloInstruction, indices: Indices
    ) -> Steps[Condition, Element]:
        """Read the operand where the index is one of its elements."""
        operand, padding_value = i.operands
        source: list[Index] = []
        inside: Condition | None = None
        is_padding = 0 in operand.shape.dimensions
        for index, d, size in zip(indices, self.padding, operand.shape.dimensions, strict=True):
            place = index - d.low
            is_padding = is_padding or place.maximum() < 0 or place.minimum() >= dilate(size, d.interior + 1)
            is_padding = is_padding or _is_between(place, d.interior + 1)
            index, condition = undilated(x, place, d.interior + 1, size)
            source.append(index)
            inside = x.both(inside, condition)
        outside = yield Read(padding_value, ())
        if is_padding:
            return outside
        element = yield Read(operand, tuple(source), inside)
        return element if inside is None else x.choose(inside, element, outside)

    def evaluate(self, run: Run, operand: Array, padding_value: Array) -> Array:
        """Pad the interior first, then the edges."""
        sizes = [d.output_size(size) for d, size in zip(self.padding, operand.shape, strict=True)]
        if any(size < 0 for size in sizes):
            raise EvaluationError(f"padding {operand.shape} leaves less than none", rule="pad.result-size")
        result = np.full(sizes, padding_value, run.dtype)
        source: list[slice] = []
        target: list[slice] = []
        for d, size, padded in zip(self.padding, operand.shape, sizes, strict=True):
            step = d.interior + 1
            first = max(0, -(d.low // step))
            end = min(size, (padded - 1 - d.low) // step + 1)
            source.append(slice(first, max(first, end)))
            at = d.low + first * step
            target.append(slice(at, at + max(0, end - first - 1) * step + (end > first), step))
        result[tuple(target)] = operand[tuple(source)]
        return result


def _is_between(place: Index, step: int) -> bool:
    """Return whether no multiple of the step is among the values of an index."""
    quotient = place.divide(step)
    return quotient is not None and (place - quotient * step).minimum() > 0


@operation("concatenate", "*operands")
class Concatenate(Movement):
    """Joins arrays one after the other along one dimension.

    Arguments:
        operands: arrays of equal sizes in all other dimensions.
        dimensions: the one dimension along which they are joined.
    """

    highlighted: ClassVar[str] = "dimensions"
    element_cost: ClassVar[ElementCost] = ElementCost.INDEXED
    dimensions: tuple[int, ...] = dims()

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        """Return all dimensions; along one, tiles need parts of other tiles."""
        return with_halos(call.shape, operands, self.dimensions)

    def element_sources(self, operand_count: int) -> Sequence[int]:
        """Return every operand: each element is copied from one of them."""
        return range(operand_count)

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """Return the sum of the sizes in that dimension."""
        if not operands:
            raise ShapeError("concatenate takes at least one operand", rule="concatenate.operands")
        require_array(self.opcode, *operands)
        if len(self.dimensions) != 1:
            message = f"concatenate takes one dimension, got {self.dimensions}"
            raise ShapeError(message, rule="concatenate.one-dimension")
        require_dimensions(self.opcode, self.dimensions, operands[0])
        (dimension,) = self.dimensions
        element_type = joint_element_type(self.opcode, operands)
        sizes, dynamic = list(operands[0].dimensions), list(operands[0].dynamic_dimensions)
        for operand in operands[1:]:
            if operand.rank != len(sizes):
                message = f"{operand} has another rank than {operands[0]}"
                raise ShapeError(message, rule="concatenate.same-rank")
            for i, (size, flag) in enumerate(
                zip(operand.dimensions, operand.dynamic_dimensions, strict=True)
            ):
                if i == dimension:
                    sizes[i] = UNBOUNDED if UNBOUNDED in (size, sizes[i]) else sizes[i] + size
                    dynamic[i] = dynamic[i] or flag
                else:
                    sizes[i], dynamic[i] = _joint_dimension(i, (sizes[i], dynamic[i]), (size, flag), operand)
        return Shape(element_type, sizes, dynamic)

    def merge_dimensions(self, call: HloInstruction, d: int) -> MergedDimensions | None:
        """Merge the operands' dimensions unless arrays are joined along the inner one."""
        joined = without_dimension(self.dimensions, d + 1)
        return MergedDimensions(Concatenate(dimensions=joined), [d] * len(call.operands)) if joined else None

    def element(
        self, x: Indexing[Condition, Element], i: HloInstruction, indices: Indices
    ) -> Steps[Condition, Element]:
        """Read each operand where the index is one of its elements, the last operand first.

        The elements of an array that is rotated or extended at its ends are read where they are.
        """
        (d,) = self.dimensions
        index = indices[d]
        joined = slices_of_one(i)
        if joined is not None:
            array, stretches = joined
            source = x.relocate(index, stretches, array.shape.dimensions[d])
            if source is not None:
                return (yield Read(array, (*indices[:d], source, *indices[d + 1 :])))
        reads: list[Read[Condition]] = []
        for operand in i.operands:
            size = operand.shape.dimensions[d]
            if size and index.maximum() >= 0 and index.minimum() < size:
                reads.append(Read(operand, (*indices[:d], index, *indices[d + 1 :]), x.inside(index, size)))
            index = index - size
        joined = yield reads.pop()
        for read in reversed(reads):
            element = yield read
            joined = element if read.condition is None else x.choose(read.condition, element, joined)
        return joined

    def evaluate(self, run: Run, *operands: Array) -> Array:
        """Join the arrays."""
        arrays = [a if a.dtype == run.dtype else a.astype(run.dtype) for a in operands]
        return np.concatenate(arrays, self.dimensions[0])


_MOST_STRETCHES: Final = 3
"""Maximum number of operands of a concatenation whose index is relocated by comparisons."""


def slices_of_one(i: HloInstruction) -> tuple[HloInstruction, Stretches] | None:
    """Return the array of which all operands of a concatenation are slices, and their stretches; or None.

    The array is rotated (`jnp.roll`) or extended at its ends (`jnp.pad` by wrapping, reflection, the edges).
    It has no more elements than the concatenation, whose operands are itself, slices and reversed slices.
    """
    if not isinstance(i.operation, Concatenate) or not 1 < len(i.operands) <= _MOST_STRETCHES:
        return None
    (d,) = i.operation.dimensions
    stretches: list[Stretch] = []
    limit = 0
    sources = [_source(o, d) for o in i.operands]
    for o, (_, start, step) in zip(i.operands, sources, strict=True):
        stretches.append(Stretch(limit + o.shape.dimensions[d], start - step * limit, step))
        limit += o.shape.dimensions[d]
    arrays = {array for array, _, _ in sources}
    array = arrays.pop()
    return (array, tuple(stretches)) if not arrays and array.shape.dimensions[d] <= limit else None


def _source(x: HloInstruction, d: int) -> tuple[HloInstruction, int, int]:
    """Return the array of which x is a range along a dimension, the first index, and the step (1 or -1)."""
    start, step = 0, 1
    while True:
        operation = x.operation
        if isinstance(operation, Reverse) and operation.dimensions == (d,):
            start, step = x.shape.dimensions[d] - 1 - start, -step
        elif isinstance(operation, Slice) and operation == range_slice(
            x.operands[0], d, operation.slice[d].start, operation.slice[d].limit
        ):
            start += operation.slice[d].start
        else:
            return x, start, step
        (x,) = x.operands


class Rotation(NamedTuple):
    """An array whose elements along a dimension are those from ``start`` on, then those before it."""

    array: HloInstruction
    dimension: int
    start: int


def rotation_in_slices(i: HloInstruction) -> Rotation | None:
    """Return what a concatenation of two slices of an array rotates, as `jnp.roll` writes it; or None."""
    if not isinstance(i.operation, Concatenate) or len(i.operands) != 2:
        return None
    (d,) = i.operation.dimensions
    behind, before = i.operands
    if not isinstance(behind.operation, Slice) or not isinstance(before.operation, Slice):
        return None
    x, start = behind.operands[0], behind.operation.slice[d].start
    ranges = range_slice(x, d, start, x.shape.dimensions[d]), range_slice(x, d, 0, start)
    if before.operands[0] is not x or (behind.operation, before.operation) != ranges:
        return None
    return Rotation(x, d, start)


def range_slice(x: HloInstruction, d: int, start: int, limit: int) -> Slice:
    """Return the slice of a range of one dimension of an array."""
    ranges = [SliceDimension(0, extent) for extent in x.shape.dimensions]
    ranges[d] = SliceDimension(start, limit)
    return Slice(slice=tuple(ranges))


def _joint_dimension(
    number: int, a: tuple[int, bool], b: tuple[int, bool], operand: Shape
) -> tuple[int, bool]:
    """Return size and dynamic flag of a dimension shared by two operands of a concatenation."""
    if a[0] != b[0] and UNBOUNDED not in (a[0], b[0]):
        message = f"{operand} has {b[0]} elements in dimension {number}, another operand {a[0]}"
        raise ShapeError(message, rule="concatenate.same-dimensions")
    if a[0] == UNBOUNDED:
        return b
    if b[0] == UNBOUNDED:
        return a
    return a[0], a[1] or b[1]
