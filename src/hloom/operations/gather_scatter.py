"""Gather and scatter: many slices read from, or combined into, positions given by an array of indices.

The pages "Gather" and "Scatter", in their names. Both see the indices as an array of index vectors, which lie
along ``index_vector_dim``; the other dimensions of the indices are the batch dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar, TypeAlias

import numpy as np

from hloom.error_bounds.bounded import is_inexact_type
from hloom.error_bounds.rules import indexed, no_bound
from hloom.error_bounds.sums import growth
from hloom.errors import ShapeError, plural
from hloom.ir.affine import Index, Indices
from hloom.ir.codec import dims, flag, integer
from hloom.ir.indexing import Condition, Element, Indexing, Read, Steps
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, ErrorRun, Operation, ProgramShape, Run, Value, operation
from hloom.ir.sharding_rule import Factor
from hloom.ir.traits import (
    AppliedTypes,
    ElementCost,
    Family,
    LayoutSource,
    Roundoff,
    shape_bytes,
    shape_elements,
)
from hloom.operations.arithmetic import Add, Multiply
from hloom.operations.combined_errors import combined_errors, combiner
from hloom.operations.combiners import commutative_combiner
from hloom.operations.index_vectors import iota_dimension
from hloom.operations.movement import Movement, require_array
from hloom.operations.scatter_updates import apply_updates
from hloom.shape.element_type import ElementType
from hloom.shape.shape import Shape

Sizes: TypeAlias = tuple[int, ...]
UNBOUNDED = Shape.UNBOUNDED
_GATHER = "gather_dimension_numbers."
_SCATTER = "scatter_dimension_numbers."


# -- rules that gather and scatter share


def _dimensions(opcode: str, name: str, numbers: Sequence[int], rank: int, *, sorted_: bool = True) -> None:
    """Refuse dimension numbers out of range, repeated or (where order is required) out of order."""
    if sorted_ and list(numbers) != sorted(numbers):
        raise ShapeError(f"{name} are ascending, got {tuple(numbers)}", rule=f"{opcode}.{name}-sorted")
    if len(set(numbers)) != len(numbers):
        raise ShapeError(f"{name} hold a dimension twice: {tuple(numbers)}", rule=f"{opcode}.{name}-unique")
    for number in numbers:
        if not 0 <= number < rank:
            message = f"{name} hold {number}, of {plural(rank, 'dimension')}"
            raise ShapeError(message, rule=f"{opcode}.{name}-range")


def _disjoint(opcode: str, a: str, numbers: Sequence[int], b: str, others: Sequence[int]) -> None:
    common = set(numbers) & set(others)
    if common:
        message = f"{a} and {b} have {sorted(common)} in common"
        raise ShapeError(message, rule=f"{opcode}.{a}-{b}-disjoint")


def _check_indices(opcode: str, indices: Shape, index_vector_dim: int) -> tuple[int, ...]:
    """Refuse non-integer indices and an index_vector_dim out of range; return the batch sizes."""
    if not indices.element_type.is_integer:
        raise ShapeError(f"indices are integers, got {indices}", rule=f"{opcode}.indices-integer")
    if not 0 <= index_vector_dim <= indices.rank:
        message = f"index_vector_dim {index_vector_dim} of {indices}"
        raise ShapeError(message, rule=f"{opcode}.index_vector_dim-range")
    return (*indices.dimensions[:index_vector_dim], *indices.dimensions[index_vector_dim + 1 :])


def _check_index_map(
    opcode: str, name: str, index_map: Sequence[int], operand: Shape, indices: Shape, index_vector_dim: int
) -> None:
    """Check for one operand dimension per component of an index vector."""
    size = indices.dimensions[index_vector_dim] if index_vector_dim < indices.rank else 1
    if size not in (len(index_map), UNBOUNDED):
        message = (
            f"{name} has {plural(len(index_map), 'dimension')}, an index vector {plural(size, 'component')}"
        )
        raise ShapeError(message, rule=f"{opcode}.{name}-size")
    _dimensions(opcode, name, index_map, operand.rank, sorted_=False)


def _check_batching(
    opcode: str,
    names: tuple[str, str],
    batching: tuple[tuple[int, ...], tuple[int, ...]],
    operand: Shape,
    indices: Shape,
    index_vector_dim: int,
) -> None:
    """Check that batching dimensions of operand and indices come in pairs of equal size."""
    (mine, theirs), (name, indices_name) = batching, names
    _dimensions(opcode, name, mine, operand.rank)
    _dimensions(opcode, indices_name, theirs, indices.rank, sorted_=False)
    if index_vector_dim in theirs:
        message = f"{indices_name} hold index_vector_dim {index_vector_dim}"
        raise ShapeError(message, rule=f"{opcode}.{indices_name}-index_vector_dim")
    if len(mine) != len(theirs):
        message = f"{name} are {len(mine)}, {indices_name} {len(theirs)}"
        raise ShapeError(message, rule=f"{opcode}.{indices_name}-count")
    for a, b in zip(mine, theirs, strict=True):
        sizes = operand.dimensions[a], indices.dimensions[b]
        if sizes[0] != sizes[1] and UNBOUNDED not in sizes:
            message = f"dimension {a} of {operand} and dimension {b} of {indices} differ in size"
            raise ShapeError(message, rule=f"{opcode}.{indices_name}-size")


# -- index vectors at work


def _index_vectors(
    indices: Array, index_vector_dim: int, batch_axes: Sequence[int], rank: int
) -> Iterator[Array]:
    """Yield the components of the index vectors as s64 arrays of ``rank`` axes, batch axes in place.

    An index of any type keeps its value up to 2**62, where it is clamped: that is out of bounds of any array.
    """
    if index_vector_dim == indices.ndim:
        indices = indices[..., np.newaxis]
    limit = 1 << 62
    wide = np.minimum(indices, limit) if indices.dtype == np.uint64 else indices
    for component in np.moveaxis(np.clip(wide.astype(np.int64), -limit, limit), index_vector_dim, 0):
        yield _spread(component, batch_axes, rank)


def _spread(array: Array, axes: Sequence[int], rank: int) -> Array:
    """Return the array with its axes at ``axes`` (ascending) of ``rank`` axes, the others of size 1."""
    sizes = [1] * rank
    for axis, size in zip(axes, array.shape, strict=True):
        sizes[axis] = size
    return array.reshape(sizes)


def _batch_number(indices_dimension: int, index_vector_dim: int) -> int:
    """Return the number of the batch dimension that a dimension of the indices becomes."""
    return indices_dimension - (indices_dimension > index_vector_dim)


def _without(rank: int, *left_out: Sequence[int]) -> list[int]:
    """Return the dimensions 0 to rank - 1 that are in none of the lists."""
    return [d for d in range(rank) if not any(d in some for some in left_out)]


# -- gather


@operation("gather", "operand start_indices")
class Gather(Movement):
    """Collects slices of ``operand``, one for each index vector in ``start_indices``.

    Of an index of the result let the batch index G be the components outside ``offset_dims`` and the offset
    index O those inside. The index vector S at G gives the start: ``start_index_map[k]`` is the operand
    dimension of its component k, dimensions without one start at 0, and batching dimensions at the
    component of G that goes with them. The start is clamped so that the whole slice lies inside the
    operand. The element is ``operand[start + O]``, with O spread over the dimensions that are neither
    collapsed nor batching.

    Arguments:
        operand: the array that is read.
        start_indices: integers; the index vectors lie along ``index_vector_dim``.
        offset_dims: the dimensions of the result that run through a slice.
        collapsed_slice_dims: dimensions of the operand, of slice size 1, that the result does not have.
        start_index_map: the operand dimension of each component of an index vector.
        operand_batching_dims: dimensions of the operand that go along with dimensions of ``start_indices``.
        start_indices_batching_dims: the dimensions of ``start_indices`` that they go along with.
        index_vector_dim: the dimension of the index vectors; the rank of the indices if these are scalars.
        slice_sizes: the size of a slice in each dimension of the operand.
        indices_are_sorted: a promise of the program; it does not change the result.
    """

    element_cost: ClassVar[ElementCost] = ElementCost.INDEXED
    errors = indexed
    offset_dims: tuple[int, ...] = dims(proto=_GATHER + "offset_dims")
    collapsed_slice_dims: tuple[int, ...] = dims(proto=_GATHER + "collapsed_slice_dims")
    start_index_map: tuple[int, ...] = dims(proto=_GATHER + "start_index_map")
    operand_batching_dims: tuple[int, ...] = dims(default=(), proto=_GATHER + "operand_batching_dims")
    start_indices_batching_dims: tuple[int, ...] = dims(
        default=(), proto=_GATHER + "start_indices_batching_dims"
    )
    index_vector_dim: int = integer(proto=_GATHER + "index_vector_dim")
    slice_sizes: tuple[int, ...] = dims(proto="gather_slice_sizes")
    indices_are_sorted: bool = flag()

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        """Return dimensions of indices, whole ones of slices, and those that single indices choose."""
        operand, indices = operands
        batch = [d for d in range(call.shape.rank) if d not in self.offset_dims]
        sources = [d for d in range(indices.rank) if d != self.index_vector_dim]
        pairs = dict(zip(self.start_indices_batching_dims, self.operand_batching_dims, strict=True))
        factors: list[Factor] = []
        for component, d in enumerate(self.start_index_map):
            axis = iota_dimension(call.operands[1], self.index_vector_dim, component)
            if (
                axis is not None
                and self.slice_sizes[d] == 1
                and indices.dimensions[axis] == operand.dimensions[d]
            ):
                result_dimension = batch[sources.index(axis)]
                factors.append(
                    Factor(operand.dimensions[d], {0: d, 1: axis}, result_dimension, kind="parallel")
                )
        for d, s in zip(batch, sources, strict=True):
            both = {0: pairs[s], 1: s} if s in pairs else {1: s}
            factors.append(Factor(call.shape.dimensions[d], both, d))
        left_out = {*self.collapsed_slice_dims, *self.operand_batching_dims}
        window = [d for d in range(operand.rank) if d not in left_out]
        for d, o in zip(window, self.offset_dims, strict=True):
            if self.slice_sizes[d] == operand.dimensions[d]:
                factors.append(Factor(operand.dimensions[d], {0: d}, o))
        for d in self.start_index_map:
            if self.slice_sizes[d] == 1 and operand.dimensions[d] > 1:
                factors.append(Factor(operand.dimensions[d], {0: d}, None, Add(), kind="indexed"))
        return factors

    def traffic(self, shape: Shape, *operands: Shape) -> int:
        """Count the start indices and the gathered elements read, and the latter written."""
        return 2 * shape_bytes(shape) + shape_bytes(operands[1])

    def infer(self, operand: Shape, start_indices: Shape) -> Shape:
        """Return batch sizes from the indices, slice sizes in the dimensions ``offset_dims``."""
        require_array(self.opcode, operand, start_indices)
        batch = _check_indices(self.opcode, start_indices, self.index_vector_dim)
        rank = len(batch) + len(self.offset_dims)
        _dimensions(self.opcode, "offset_dims", self.offset_dims, rank)
        _dimensions(self.opcode, "collapsed_slice_dims", self.collapsed_slice_dims, operand.rank)
        self._check_operand_dimensions(operand, start_indices)
        self._check_slice_sizes(operand)
        window = _without(operand.rank, self.collapsed_slice_dims, self.operand_batching_dims)
        sizes = {o: self.slice_sizes[d] for o, d in zip(self.offset_dims, window, strict=True)}
        dynamic = {
            o: operand.dynamic_dimensions[d] and self.slice_sizes[d] == operand.dimensions[d]
            for o, d in zip(self.offset_dims, window, strict=True)
        }
        batch_numbers = _without(start_indices.rank, (self.index_vector_dim,))
        for result_dimension, number in zip(_without(rank, self.offset_dims), batch_numbers, strict=True):
            sizes[result_dimension] = start_indices.dimensions[number]
            dynamic[result_dimension] = start_indices.dynamic_dimensions[number]
        return Shape(operand.element_type, [sizes[i] for i in range(rank)], [dynamic[i] for i in range(rank)])

    def _check_operand_dimensions(self, operand: Shape, start_indices: Shape) -> None:
        """Check that each operand dimension is an offset, a collapsed or a batching dimension."""
        opcode, batching = self.opcode, self.operand_batching_dims
        _check_index_map(
            opcode, "start_index_map", self.start_index_map, operand, start_indices, self.index_vector_dim
        )
        names = "operand_batching_dims", "start_indices_batching_dims"
        both = batching, self.start_indices_batching_dims
        _check_batching(opcode, names, both, operand, start_indices, self.index_vector_dim)
        _disjoint(opcode, "collapsed_slice_dims", self.collapsed_slice_dims, names[0], batching)
        _disjoint(opcode, "start_index_map", self.start_index_map, names[0], batching)
        count = len(self.offset_dims) + len(self.collapsed_slice_dims) + len(batching)
        if count != operand.rank:
            message = f"offset, collapsed and batching dimensions are {count}, {operand} has {operand.rank}"
            raise ShapeError(message, rule="gather.offset_dims-count")

    def _check_slice_sizes(self, operand: Shape) -> None:
        if len(self.slice_sizes) != operand.rank:
            message = f"{operand} needs {plural(operand.rank, 'slice size')}, got {self.slice_sizes}"
            raise ShapeError(message, rule="gather.slice_sizes-count")
        for number, (size, bound) in enumerate(zip(self.slice_sizes, operand.dimensions, strict=True)):
            if size < 0 or size > bound != UNBOUNDED:
                message = f"slice size {size} in dimension {number} of size {bound}"
                raise ShapeError(message, rule="gather.slice_sizes-range")
        for name in ("collapsed_slice_dims", "operand_batching_dims"):
            for number in getattr(self, name):
                if self.slice_sizes[number] > 1:
                    message = (
                        f"slice size {self.slice_sizes[number]} in dimension {number} of {name} is not 1"
                    )
                    raise ShapeError(message, rule=f"gather.{name}-slice-size")

    def element(
        self, x: Indexing[Condition, Element], i: HloInstruction, indices: Indices
    ) -> Steps[Condition, Element]:
        """Read the operand at start + offset, with the start clamped; 0 where slices are empty."""
        operand, start_indices = i.operands
        if 0 in self.slice_sizes:
            return x.zero(operand.shape.element_type)
        batch = [indices[d] for d in _without(len(indices), self.offset_dims)]
        offsets = iter([indices[d] for d in self.offset_dims])
        source: list[Index] = []
        for d, (bound, size) in enumerate(zip(operand.shape.dimensions, self.slice_sizes, strict=True)):
            index = Index(0)
            if d in self.start_index_map:
                vector = [*batch]
                if self.index_vector_dim < start_indices.shape.rank:
                    vector.insert(self.index_vector_dim, Index(self.start_index_map.index(d)))
                known = x.known_position(start_indices, tuple(vector), bound - size + 1)
                if known is None:
                    start = yield Read(start_indices, tuple(vector))
                    known = x.position(start, start_indices.shape.element_type, bound - size + 1)
                index = known
            if d in self.operand_batching_dims:
                dimension = self.start_indices_batching_dims[self.operand_batching_dims.index(d)]
                index = index + batch[_batch_number(dimension, self.index_vector_dim)]
            elif d not in self.collapsed_slice_dims:
                index = index + next(offsets)
            source.append(index)
        return (yield Read(operand, tuple(source)))

    def evaluate(self, run: Run, operand: Array, start_indices: Array) -> Array:
        """Index once with arrays of start + offset; dimensions that are read in whole are sliced."""
        batch = [start_indices.shape[d] for d in _without(start_indices.ndim, (self.index_vector_dim,))]
        sizes = [min(size, bound) for size, bound in zip(self.slice_sizes, operand.shape, strict=True)]
        window = _without(operand.ndim, self.collapsed_slice_dims, self.operand_batching_dims)
        full = [d for d in window if sizes[d] == operand.shape[d]]
        indexed = _without(operand.ndim, full)
        partial = [d for d in indexed if d in window]
        space = (*batch, *(sizes[d] for d in partial))
        if 0 in sizes or 0 in space:
            picked = np.zeros((*space, *(sizes[d] for d in full)), operand.dtype)
        else:
            index = self._index_arrays(operand, start_indices, sizes, indexed, partial)
            places = np.broadcast_arrays(*index, np.empty(space, np.bool_))[:-1]
            source = operand.transpose(indexed + full)
            picked = source[tuple(places)] if places else np.broadcast_to(source, (*space, *source.shape))
        axis_of = {d: len(batch) + i for i, d in enumerate(partial + full)}
        order = dict(zip(self.offset_dims, (axis_of[d] for d in window), strict=True))
        order |= zip(_without(picked.ndim, self.offset_dims), range(len(batch)), strict=True)
        return picked.transpose([order[i] for i in range(picked.ndim)])

    def _index_arrays(
        self, operand: Array, start_indices: Array, sizes: list[int], indexed: list[int], partial: list[int]
    ) -> list[Array]:
        """Return start + offset per indexed dimension, over the axes (batch, partial dimensions)."""
        batch_rank = start_indices.ndim - (self.index_vector_dim < start_indices.ndim)
        rank = batch_rank + len(partial)
        start: dict[int, Array] = {}
        vectors = _index_vectors(start_indices, self.index_vector_dim, range(batch_rank), rank)
        for d, component in zip(self.start_index_map, vectors, strict=True):
            start[d] = np.clip(component, 0, operand.shape[d] - sizes[d])
        for d, number in zip(self.operand_batching_dims, self.start_indices_batching_dims, strict=True):
            axis = _batch_number(number, self.index_vector_dim)
            start[d] = _spread(np.arange(start_indices.shape[number], dtype=np.int64), [axis], rank)
        for i, d in enumerate(partial):
            offset = _spread(np.arange(sizes[d], dtype=np.int64), [batch_rank + i], rank)
            start[d] = start[d] + offset if d in start else offset
        return [start.get(d, np.zeros([1] * rank, np.int64)) for d in indexed]


# -- scatter


@operation("scatter", "*arguments", computations=["to_apply"])
class Scatter(Operation):
    """Combines updates into slices of operands, one slice for each index vector in ``scatter_indices``.

    Of an update index U let the scatter index G be the components outside ``update_window_dims`` and the
    window index W those inside. The index vector S at G gives the start:
    ``scatter_dims_to_operand_dims[k]`` is the operand dimension of its component k, dimensions without one
    start at 0, and batching dimensions at the component of G that goes with them. The element at
    I = start + W, with W spread over the dimensions that are neither inserted nor batching, becomes
    ``to_apply(current element at I, updates[U])``. A window that is not entirely inside the operand is
    dropped. Updates are applied one after the other, in row-major order of ``updates``.

    Arguments:
        arguments: N operands of equal dimensions, ``scatter_indices``, and N updates of equal dimensions.
        update_window_dims: the dimensions of the updates that run through a slice.
        inserted_window_dims: operand dimensions that the updates lack; a slice has one element there.
        scatter_dims_to_operand_dims: the operand dimension of each component of an index vector.
        input_batching_dims: operand dimensions that go along with dimensions of ``scatter_indices``.
        scatter_indices_batching_dims: the dimensions of ``scatter_indices`` that they go along with.
        index_vector_dim: the dimension of the index vectors; the rank of the indices if these are scalars.
        indices_are_sorted, unique_indices: promises of the program; they do not change the result.
        to_apply: maps N current elements and N updates to the N new elements.
    """

    layout_source: ClassVar[LayoutSource] = LayoutSource.OPERANDS
    family: ClassVar[Family] = Family.COMBINATION
    element_cost: ClassVar[ElementCost] = ElementCost.COMBINED
    roundoff: ClassVar[Roundoff] = Roundoff.COMBINED
    updates_operand: ClassVar[bool] = True
    update_window_dims: tuple[int, ...] = dims(proto=_SCATTER + "update_window_dims")
    inserted_window_dims: tuple[int, ...] = dims(proto=_SCATTER + "inserted_window_dims")
    scatter_dims_to_operand_dims: tuple[int, ...] = dims(proto=_SCATTER + "scatter_dims_to_operand_dims")
    input_batching_dims: tuple[int, ...] = dims(default=(), proto=_SCATTER + "input_batching_dims")
    scatter_indices_batching_dims: tuple[int, ...] = dims(
        default=(), proto=_SCATTER + "scatter_indices_batching_dims"
    )
    index_vector_dim: int = integer(proto=_SCATTER + "index_vector_dim")
    indices_are_sorted: bool = flag()
    unique_indices: bool = flag()

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        """Return batching, whole window dimensions, and dimensions that indices choose."""
        count = len(operands) // 2
        operand, indices, updates = operands[0], operands[count], operands[count + 1]
        arrays, later = range(count), range(count + 1, 2 * count + 1)
        scattered = [d for d in range(updates.rank) if d not in self.update_window_dims]
        sources = [d for d in range(indices.rank) if d != self.index_vector_dim]
        pairs = dict(zip(self.scatter_indices_batching_dims, self.input_batching_dims, strict=True))
        combiner = commutative_combiner(call) if count == 1 else None
        factors: list[Factor] = []
        for component, d in enumerate(self.scatter_dims_to_operand_dims):
            axis = iota_dimension(call.operands[count], self.index_vector_dim, component)
            is_inserted = axis is not None and d in self.inserted_window_dims
            if is_inserted and axis is not None and indices.dimensions[axis] == operand.dimensions[d]:
                having = {count: axis, **dict.fromkeys(later, scattered[sources.index(axis)])}
                both = {**dict.fromkeys(arrays, d), **having}
                factors.append(Factor(operand.dimensions[d], both, d, kind="parallel"))
        for u, s in zip(scattered, sources, strict=True):
            having = {count: s, **dict.fromkeys(later, u)}
            extent = updates.dimensions[u]
            if s in pairs:
                factors.append(Factor(extent, {**dict.fromkeys(arrays, pairs[s]), **having}, pairs[s]))
            elif combiner is not None:
                factors.append(Factor(extent, having, None, combiner, kind="indexed"))
        left_out = {*self.inserted_window_dims, *self.input_batching_dims}
        window = [d for d in range(operand.rank) if d not in left_out]
        for d, u in zip(window, self.update_window_dims, strict=True):
            if updates.dimensions[u] == operand.dimensions[d] and d not in self.scatter_dims_to_operand_dims:
                having = {**dict.fromkeys(arrays, d), **dict.fromkeys(later, u)}
                factors.append(Factor(operand.dimensions[d], having, d))
        for d in self.scatter_dims_to_operand_dims:
            if d in self.inserted_window_dims:
                factors.append(Factor(operand.dimensions[d], dict.fromkeys(arrays, d), d, kind="indexed"))
        return factors

    def flops(self, shape: Shape, *operands: Shape, applied: float = 0.0) -> float:
        """Count one application of the computation per update."""
        return max(1.0, applied) * shape_elements(operands[-1])

    def traffic(self, shape: Shape, *operands: Shape) -> int:
        """Count the indices and updates read, and the changed elements read and written."""
        count = len(operands) // 2
        return shape_bytes(operands[count]) + 3 * sum(map(shape_bytes, operands[count + 1 :]))

    def applied_types(self, operands: Sequence[ElementType]) -> Sequence[AppliedTypes]:
        """Return (operands..., updates...) of the update computation."""
        count = len(operands) // 2
        return (AppliedTypes((*operands[:count], *operands[count + 1 :])),)

    def infer(self, *arguments: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """Return the operand's shape, or the tuple of the operands' shapes."""
        count = len(arguments) // 2
        if len(arguments) % 2 == 0 or not count:
            message = (
                f"scatter takes N operands, indices and N updates, got {plural(len(arguments), 'argument')}"
            )
            raise ShapeError(message, rule="scatter.argument-count")
        require_array(self.opcode, *arguments)
        operands, indices, updates = arguments[:count], arguments[count], arguments[count + 1 :]
        _check_same("operands", operands)
        _check_same("updates", updates)
        for operand, update in zip(operands, updates, strict=True):
            if not _same_type(operand, update):
                raise ShapeError(f"updates {update} for the operand {operand}", rule="scatter.element-type")
        batch = _check_indices(self.opcode, indices, self.index_vector_dim)
        self._check_operand_dimensions(operands[0], indices)
        self._check_updates(operands[0], updates[0], batch)
        for computation in computations:
            _check_combiner(computation, operands)
        return operands[0] if count == 1 else Shape.tuple_(operands)

    def _check_operand_dimensions(self, operand: Shape, indices: Shape) -> None:
        """Check that each operand dimension is a window, an inserted or a batching dimension."""
        opcode, batching = self.opcode, self.input_batching_dims
        _dimensions(opcode, "inserted_window_dims", self.inserted_window_dims, operand.rank)
        names = "input_batching_dims", "scatter_indices_batching_dims"
        both = batching, self.scatter_indices_batching_dims
        _check_batching(opcode, names, both, operand, indices, self.index_vector_dim)
        name, index_map = "scatter_dims_to_operand_dims", self.scatter_dims_to_operand_dims
        _check_index_map(opcode, name, index_map, operand, indices, self.index_vector_dim)
        _disjoint(opcode, "inserted_window_dims", self.inserted_window_dims, names[0], batching)
        _disjoint(opcode, name, index_map, names[0], batching)
        count = len(self.update_window_dims) + len(self.inserted_window_dims) + len(batching)
        if count != operand.rank:
            message = f"window, inserted and batching dimensions are {count}, {operand} has {operand.rank}"
            raise ShapeError(message, rule="scatter.update_window_dims-count")

    def _check_updates(self, operand: Shape, update: Shape, batch: tuple[int, ...]) -> None:
        """Check that updates have batch and window dimensions, none larger than the operand."""
        if update.rank != len(batch) + len(self.update_window_dims):
            message = (
                f"updates have {plural(len(batch) + len(self.update_window_dims), 'dimension')}, got {update}"
            )
            raise ShapeError(message, rule="scatter.updates-rank")
        _dimensions(self.opcode, "update_window_dims", self.update_window_dims, update.rank)
        window = _without(operand.rank, self.inserted_window_dims, self.input_batching_dims)
        for number, d in zip(self.update_window_dims, window, strict=True):
            size, bound = update.dimensions[number], operand.dimensions[d]
            if size > bound and UNBOUNDED not in (size, bound):
                message = f"dimension {number} of {update} is larger than dimension {d} of {operand}"
                raise ShapeError(message, rule="scatter.updates-window-size")
        for number, size in zip(_without(update.rank, self.update_window_dims), batch, strict=True):
            if update.dimensions[number] != size and UNBOUNDED not in (size, update.dimensions[number]):
                message = f"dimension {number} of {update} has the size {size} of the indices"
                raise ShapeError(message, rule="scatter.updates-batch-size")

    def errors(self, run: ErrorRun) -> Value:
        """Bound sums and products, each partial one rounded to the result's type, and extremes."""
        if not is_inexact_type(run.value):
            raise no_bound(run)
        if isinstance(combiner(run.instruction.called_computations[0]), Multiply):
            count: object = 1 + np.size(run.operands[-1].value)
        else:
            zeros, ones = np.zeros(run.value.shape), np.ones(np.shape(run.operands[2].value))
            count = 1 + run.apply([zeros, run.operands[1].value, ones])
        return combined_errors(run, growth(count), in_place=True)

    def evaluate(self, run: Run, *arguments: Array) -> Value:
        """Address elements by row; dimensions that a window covers in whole are a row's columns."""
        count = len(arguments) // 2
        operands, indices, updates = arguments[:count], arguments[count], arguments[count + 1 :]
        shape, update_shape = operands[0].shape, updates[0].shape
        window = _without(len(shape), self.inserted_window_dims, self.input_batching_dims)
        axis_of = dict(zip(window, self.update_window_dims, strict=True))
        moved = self.scatter_dims_to_operand_dims
        full = [d for d in window if d not in moved and update_shape[axis_of[d]] == shape[d]]
        addressed = _without(len(shape), full)
        columns = math.prod(shape[d] for d in full)
        rows, inside = self._rows(shape, indices, update_shape, addressed, axis_of)
        columns_last = _without(len(update_shape), [axis_of[d] for d in full]) + [axis_of[d] for d in full]
        flat_updates = [u.transpose(columns_last).reshape(inside.size, columns)[inside] for u in updates]
        order = addressed + full
        height = math.prod(shape[d] for d in addressed)
        tables = [np.array(o.transpose(order), order="C").reshape(height, columns) for o in operands]
        if rows.size and columns:
            apply_updates(run, tables, rows, flat_updates)
        sizes = [shape[d] for d in order]
        results = [table.reshape(sizes).transpose(np.argsort(np.array(order, np.intp))) for table in tables]
        return results[0] if count == 1 else tuple(results)

    def _rows(
        self, shape: Sizes, indices: Array, update_shape: Sizes, addressed: list[int], axis_of: dict[int, int]
    ) -> tuple[Array, Array]:
        """Return the positions of the in-bounds update rows, and a mask of in-bounds rows."""
        rank = len(update_shape)
        batch_axes = _without(rank, self.update_window_dims)
        positions: dict[int, Array] = {}
        vectors = _index_vectors(indices, self.index_vector_dim, batch_axes, rank)
        positions.update(zip(self.scatter_dims_to_operand_dims, vectors, strict=True))
        for d, number in zip(self.input_batching_dims, self.scatter_indices_batching_dims, strict=True):
            axis = batch_axes[_batch_number(number, self.index_vector_dim)]
            positions[d] = _spread(np.arange(indices.shape[number], dtype=np.int64), [axis], rank)
        spanned = {axis_of[d] for d in range(len(shape)) if d not in addressed}
        space = [1 if axis in spanned else size for axis, size in enumerate(update_shape)]
        rows = np.zeros(space, np.int64)
        inside = np.ones(space, np.bool_)
        for d in addressed:
            size = update_shape[axis_of[d]] if d in axis_of else 1
            start = np.clip(positions.get(d, np.zeros((), np.int64)), -1, shape[d])
            inside &= (start >= 0) & (start <= shape[d] - size)
            if d in axis_of:
                start = start + _spread(np.arange(size, dtype=np.int64), [axis_of[d]], rank)
            rows = rows * shape[d] + start
        return rows.reshape(-1)[inside.reshape(-1)], inside.reshape(-1)


def _same_type(a: Shape, b: Shape) -> bool:
    return a.element_type is b.element_type or (a.element_type.is_floating and b.element_type.is_floating)


def _check_same(what: str, shapes: Sequence[Shape]) -> None:
    for shape in shapes[1:]:
        if not shape.equal(shapes[0], layout=False, element_type=False, dynamic=False):
            message = f"{what} are of equal dimensions, got {', '.join(map(str, shapes))}"
            raise ShapeError(message, rule=f"scatter.{what}-same-dimensions")


def _check_combiner(combiner: ProgramShape, operands: Sequence[Shape]) -> None:
    """Check for N current elements and N updates in, N new elements out, of the operands' types."""
    count = len(operands)
    results = combiner.result.tuple_shapes if combiner.result.is_tuple else (combiner.result,)
    if len(results) != count or (combiner.result.is_tuple and count == 1):
        message = f"the combiner makes {plural(count, 'element')}, not {combiner.result}"
        raise ShapeError(message, rule="scatter.combiner-result-count")
    if len(combiner.parameters) != 2 * count:
        message = f"the combiner takes {plural(2 * count, 'parameter')}, not {len(combiner.parameters)}"
        raise ShapeError(message, rule="scatter.combiner-arity")
    for operand, result in zip(operands, results, strict=True):
        if not result.is_scalar or not _same_type(operand, result):
            message = f"the combiner makes {result} for the operand {operand}"
            raise ShapeError(message, rule="scatter.combiner-result")
    for number, parameter in enumerate(combiner.parameters):
        if not parameter.is_scalar or not _same_type(operands[number % count], parameter):
            message = (
                f"parameter {number} of the combiner is {parameter}, the operand {operands[number % count]}"
            )
            raise ShapeError(message, rule="scatter.combiner-parameters")
