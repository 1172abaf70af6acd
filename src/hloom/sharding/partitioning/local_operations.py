"""Local operations: how a device computes a tile, for operations that do not simply apply to tiles.

Windows, slices, pads and concatenations along a sharded dimension exchange halos; attributes with extents are
adapted; indices become relative to the tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from hloom.analysis.instructions import operation_of
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.ir.sharding_rule import Factor
from hloom.ir.window import PaddingDimension, SliceDimension
from hloom.operations.arithmetic import Add, And, Subtract
from hloom.operations.comparison import Clamp, Select
from hloom.operations.convolution import Convolution, batch_window, free_window
from hloom.operations.custom_call import CustomCall, rotation_of
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.gather_scatter import Gather, Scatter
from hloom.operations.movement import Concatenate, Pad, Reverse, Slice
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Iota
from hloom.operations.window_reduction import ReduceWindow
from hloom.passes.writing import Inserter
from hloom.records import dataclass
from hloom.shape.element_type import PRED, S32
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.collectives import CollectiveWriter
from hloom.sharding.partitioning.device_constants import device_constant, device_coordinate
from hloom.sharding.partitioning.extents import cropped, on_first_device, padded
from hloom.sharding.partitioning.halos import exchange_halo
from hloom.sharding.planning.decisions import ShardedFactor
from hloom.sharding.planning.fetches import Fetch, fetches
from hloom.sharding.tiling.coordinates import Coordinate
from hloom.sharding.tiling.ranges import by_device
from hloom.sharding.tiling.tiling import Tiling

Skipped: TypeAlias = "tuple[int, Tiling, Sequence[int]]"
"""A dimension of the result, its tiling, and for each tile the number of leading elements to drop."""


@dataclass(frozen=True, slots=True)
class LocalOperation:
    """An instruction to be rewritten such that it computes a tile of its result.

    Attributes:
        i: the instruction, whose operands are tiles already.
        shapes, result: the global shapes of the operands and of the result.
        tilings: the tilings of the operands; None for operands that are not arrays.
        tiling: the tiling of the result.
        sharded: the sharded factors (indices of the operation, such as a batch dimension), with their tilings
            of rank 1.
        collectives: emits the collectives of halo exchanges.
        fixed: coordinates (one index per device); devices with different indices must not exchange data.
    """

    i: HloInstruction
    shapes: Sequence[Shape]
    result: Shape
    tilings: Sequence[Tiling | None]
    tiling: Tiling
    sharded: Sequence[ShardedFactor]
    collectives: CollectiveWriter
    fixed: Sequence[Coordinate]

    @property
    def inserter(self) -> Inserter:
        return Inserter(self.i)

    @property
    def tile(self) -> Shape:
        """The shape of a tile of the result."""
        return Shape(self.result.element_type, self.tiling.local(self.result.dimensions))

    def of_kind(self, kind: str) -> list[ShardedFactor]:
        """Return the sharded factors (indices of the operation) whose ``Factor.kind`` is ``kind``.

        Each comes with its tiling, of rank 1.
        """
        return [(factor, tiling) for factor, tiling in self.sharded if factor.kind == kind]

    def fetch(self, factor: Factor, tiling: Tiling, fill: Callable[[int], HloInstruction]) -> list[Fetch]:
        """Replace the operands that ``factor`` indexes by the results of halo exchanges; return the halos.

        A factor is an index of the operation, such as a spatial dimension; ``tiling`` is its tiling, of rank
        1. ``fill`` maps an operand index to the scalar for out-of-bounds elements of that operand.
        """
        fetched = fetches(self.i, self.shapes, self.result, factor, tiling) or []
        for fetch in fetched:
            current = self.tilings[fetch.operand]
            assert current is not None
            value, ranges, d = self.i.operands[fetch.operand], fetch.window.halo, fetch.dimension
            if not current.is_sharded_like(d, tiling, 0):
                ranges = by_device(ranges, current, d, tiling.coordinates[0], self.fixed) or ranges
            scalar = fill(fetch.operand)
            halo = exchange_halo(value, d, current, ranges, scalar, self.collectives, self.fixed)
            self.i.replace_operand(fetch.operand, halo)
        return fetched

    def compute(self, operation: Operation, skipped: Sequence[Skipped]) -> HloInstruction:
        """Make the instruction ``self.i`` apply ``operation`` to its operands; return the tile of the result.

        The operands are tiles. ``skipped`` lists (dimension of the result, the dimension's tiling of rank 1,
        number of leading elements to drop from each tile). If that is not 0 for all tiles, a new instruction
        computes a larger tile, and a dynamic-slice drops the elements.
        """
        self.i.operation = operation
        skips_of = {d: (tiling, skips) for d, tiling, skips in skipped if any(skips)}
        if not skips_of:
            return self.i
        inserter, tile = self.inserter, self.tile
        extents = [n + (max(skips_of[d][1]) if d in skips_of else 0) for d, n in enumerate(tile.dimensions)]
        extended = inserter.op(
            operation,
            *self.i.operands,
            shape=Shape(tile.element_type, tuple(extents)),
            computations=self.i.called_computations,
        )
        starts = [inserter.scalar(0, S32)] * tile.rank
        for d, (tiling, skips) in skips_of.items():
            starts[d] = device_constant(inserter, [skips[p] for p in tiling.coordinates[0].indices])
        return inserter.op(DynamicSlice(dynamic_slice_sizes=tile.dimensions), extended, *starts, shape=tile)

    def zero(self, number: int) -> HloInstruction:
        """Emit a scalar zero of the element type of the operand with index ``number``."""
        return self.inserter.scalar(0, self.shapes[number].element_type)

    def first(self, tiling: Tiling, extent: int) -> HloInstruction:
        """Emit the global index, in s32, at which the device's tile of a dimension starts; return the scalar.

        ``tiling`` is the tiling of the dimension, of rank 1; ``extent`` is the dimension's global extent.
        """
        local = -(-extent // tiling.tiles[0])
        return device_coordinate(self.inserter, tiling.coordinates[0], local)


def localized(local: LocalOperation) -> HloInstruction:
    """Rewrite an instruction to compute a tile of its result; return it or its replacement.

    Emits halo exchanges, and changes attributes of the instruction, such as slice bounds, or replaces it.
    """
    rule = _RULES.get(type(local.i.operation))
    return local.i if rule is None else rule(local)


def _slice(local: LocalOperation) -> HloInstruction:
    operation = operation_of(local.i, Slice)
    ranges = list(operation.slice)
    for factor, _ in local.sharded:
        d = factor.operands[0]
        ranges[d] = SliceDimension(0, local.tile.dimensions[d])
    halos = local.of_kind("halo")
    for d in set(range(len(ranges))) - {factor.operands[0] for factor, _ in halos}:
        if halos and ranges[d].stride == 1:
            operand = cropped(local.i.operands[0], d, ranges[d].start, ranges[d].limit)
            local.i.replace_operand(0, operand)
            ranges[d] = SliceDimension(0, local.tile.dimensions[d])
    for factor, tiling in halos:
        d = factor.operands[0]
        (fetch,) = local.fetch(factor, tiling, local.zero)
        ranges[d] = SliceDimension(0, fetch.window.halo.length, operation.slice[d].stride)
    local.i.operation = replace(operation, slice=tuple(ranges))
    return local.i


def _custom_call(local: LocalOperation) -> HloInstruction:
    """Return the halo exchange that replaces a call if the call rotates an array along a sharded dimension.

    Returns other custom calls themselves; they run on tiles unchanged.
    """
    if rotation_of(local.i) is None or not local.of_kind("halo"):
        return local.i
    _fetch_only(local)
    return local.i.operands[0]


def _fetch_only(local: LocalOperation) -> HloInstruction:
    """Replace operands by the results of halo exchanges where needed; the operation does not change."""
    for factor, tiling in local.of_kind("halo"):
        local.fetch(factor, tiling, local.zero)
    return local.i


def _pad(local: LocalOperation) -> HloInstruction:
    operation = operation_of(local.i, Pad)
    padding = list(operation.padding)
    skipped: list[Skipped] = []
    for factor, tiling in local.of_kind("halo"):
        d = factor.operands[0]
        (fetch,) = local.fetch(factor, tiling, lambda _: local.i.operands[1])
        padding[d] = PaddingDimension(fetch.window.low, fetch.window.high, padding[d].interior)
        skipped.append((d, tiling, fetch.window.skips))
    return local.compute(replace(operation, padding=tuple(padding)), skipped)


def _reduce_window(local: LocalOperation) -> HloInstruction:
    operation = operation_of(local.i, ReduceWindow)
    window = list(operation.window)
    skipped: list[Skipped] = []
    half = len(local.shapes) // 2
    for factor, tiling in local.of_kind("halo"):
        d = factor.operands[0]
        w = local.fetch(factor, tiling, lambda number: local.i.operands[half + number])[0].window
        window[d] = replace(window[d], padding_low=w.low, padding_high=w.high)
        skipped.append((d, tiling, [skip // window[d].stride for skip in w.skips]))
    return local.compute(replace(operation, window=tuple(window)), skipped)


def _concatenate(local: LocalOperation) -> HloInstruction:
    halos = local.of_kind("halo")
    if not halos:
        return local.i
    ((factor, tiling),) = halos
    local.fetch(factor, tiling, local.zero)
    inserter, shape = local.inserter, local.tile
    d = factor.operands[0]
    first = local.first(tiling, local.result.dimensions[d])
    index = inserter.op(Iota(iota_dimension=d), shape=Shape(S32, shape.dimensions))
    index = inserter.op(Add(), index, inserter.broadcast(first, shape.dimensions), shape=index.shape)
    result = local.i.operands[0]
    offset = 0
    for number in range(1, len(local.shapes)):
        offset += local.shapes[number - 1].dimensions[d]
        limit = inserter.full(offset, Shape(S32, shape.dimensions))
        is_behind = inserter.compare(index, "GE", limit)
        result = inserter.op(Select(), is_behind, local.i.operands[number], result, shape=shape)
    return result


def _convolution(local: LocalOperation) -> HloInstruction:
    operation = operation_of(local.i, Convolution)
    labels = operation.dim_labels
    window = list(operation.window)
    skipped: list[Skipped] = []
    for factor, tiling in local.of_kind("halo"):
        number = labels.input_spatial_dimensions.index(factor.operands[0])
        (fetch,) = local.fetch(factor, tiling, local.zero)
        w = window[number]
        window[number] = replace(w, padding_low=fetch.window.low, padding_high=fetch.window.high)
        if factor.result is None:
            window[number] = replace(window[number], size=-(-w.size // tiling.tiles[0]))
        else:
            skipped.append((factor.result, tiling, [skip // w.stride for skip in fetch.window.skips]))
    changes: dict[str, int] = {}
    for factor, tiling in local.of_kind("grouped"):
        if factor.result in labels.output_spatial_dimensions:
            number = labels.output_spatial_dimensions.index(factor.result)
            window_of = batch_window if 0 in factor.operands else free_window
            window[number] = window_of(window[number].size // tiling.tiles[0])
            continue
        name = "feature_group_count" if operation.feature_group_count > 1 else "batch_group_count"
        changes[name] = getattr(operation, name) // tiling.tiles[0]
    return local.compute(replace(operation, window=tuple(window), **changes), skipped)


def _iota(local: LocalOperation) -> HloInstruction:
    operation = operation_of(local.i, Iota)
    d = operation.iota_dimension
    tiling = next((tiling for factor, tiling in local.sharded if factor.result == d), None)
    if tiling is None:
        return local.i
    inserter, shape = local.inserter, local.tile
    numbers = inserter.op(operation, shape=Shape(S32, shape.dimensions))
    first = inserter.broadcast(local.first(tiling, local.result.dimensions[d]), shape.dimensions)
    total = inserter.op(Add(), numbers, first, shape=numbers.shape)
    return inserter.convert(total, shape.element_type)


def _as_s32(inserter: Inserter, indices: HloInstruction) -> HloInstruction:
    """Emit a conversion of indices to s32, which clamps them to the range of s32 first.

    An index beyond that range is out of bounds of every array, so that clamping changes no result.
    """
    kind = indices.shape.element_type
    if kind.bits > 32 or (kind.bits == 32 and kind.is_unsigned):
        low = -(1 << 31) if kind.is_signed else 0
        bounds = [inserter.full(n, indices.shape) for n in (low, (1 << 31) - 1)]
        indices = inserter.op(Clamp(), bounds[0], indices, bounds[1], shape=indices.shape)
    return inserter.convert(indices, S32)


def _start_in_padded_tile(
    local: LocalOperation, d: int, tiling: Tiling, index: HloInstruction, size: int
) -> HloInstruction:
    """Emit the s32 start index of a dynamic slice, or update, within the tile of operand 0 after padding.

    The tile is padded by ``size``, the size of the slice, at both ends of dimension ``d``, so that a slice
    outside the tile lies in the padding. ``index`` is the start in the global array, ``tiling`` the tiling of
    the dimension, of rank 1.
    """
    inserter = local.inserter
    extent, tile_extent = local.shapes[0].dimensions[d], local.i.operands[0].shape.dimensions[d]
    zero = inserter.scalar(0, S32)
    last, limit = inserter.scalar(extent - size, S32), inserter.scalar(tile_extent + size, S32)
    start = inserter.op(Clamp(), zero, _as_s32(inserter, index), last, shape=zero.shape)
    start = inserter.op(Subtract(), start, local.first(tiling, extent), shape=zero.shape)
    start = inserter.op(Add(), start, inserter.scalar(size, S32), shape=zero.shape)
    return inserter.op(Clamp(), zero, start, limit, shape=zero.shape)


def _dynamic_slice(local: LocalOperation) -> HloInstruction:
    """Rewrite a dynamic-slice to slice the device's tile, padded at both ends of sharded sliced dimensions.

    A slice may lie on several devices. The padding is the neutral element of the reduction that later
    combines their results.
    """
    i = local.i
    sizes = list(local.tile.dimensions)
    for factor, tiling in local.of_kind("indexed"):
        d = factor.operands[0]
        start = _start_in_padded_tile(local, d, tiling, i.operands[1 + d], sizes[d])
        i.replace_operand(0, padded(i.operands[0], d, sizes[d], sizes[d], _identity(local, factor)))
        _start_indices_to_s32(local, 1)
        i.replace_operand(1 + d, start)
    i.operation = replace(i.operation, dynamic_slice_sizes=tuple(sizes))  # type: ignore[call-arg]
    return i


def _start_indices_to_s32(local: LocalOperation, first: int) -> None:
    """Convert the start indices of a dynamic slice or update, operands ``first`` and following, to s32."""
    for number in range(first, len(local.i.operands)):
        index = local.i.operands[number]
        if index.shape.element_type is not S32:
            local.i.replace_operand(number, _as_s32(local.inserter, index))


def _dynamic_update(local: LocalOperation) -> HloInstruction:
    """Rewrite a dynamic-update-slice to update the device's tile, which is padded first and then cropped.

    The tile is padded by the size of the update at both ends; parts of the update outside the tile land in
    the padding.
    """
    i = local.i
    indexed = local.of_kind("indexed")
    for factor, tiling in indexed:
        d = factor.operands[0]
        size = local.shapes[1].dimensions[d]
        start = _start_in_padded_tile(local, d, tiling, i.operands[2 + d], size)
        i.replace_operand(0, padded(i.operands[0], d, size, size))
        _start_indices_to_s32(local, 2)
        i.replace_operand(2 + d, start)
    if not indexed:
        return i
    value = local.inserter.op(i.operation, *i.operands, shape=i.operands[0].shape)
    for factor, _ in indexed:
        d = factor.operands[0]
        size = local.shapes[1].dimensions[d]
        value = cropped(value, d, size, value.shape.dimensions[d] - size)
    return value


def _identity(local: LocalOperation, factor: Factor) -> HloInstruction:
    """Emit the neutral element, in the element type of the result, of the combiner of ``factor``.

    The factor is an index that the operation reduces. Devices compute partial results, which its combiner
    merges.
    """
    assert factor.combiner is not None
    kind = local.result.element_type
    value = factor.combiner.neutral_element(kind)
    assert value is not None
    return local.inserter.scalar(value, kind)


def _gather(local: LocalOperation) -> HloInstruction:
    """Rewrite a gather to gather from the device's tile.

    Where an index lies outside the tile, the result is the neutral element of the reduction that later
    combines the devices' results.
    """
    i = local.i
    operation = operation_of(i, Gather)
    sizes = list(operation.slice_sizes)
    for factor, _ in local.sharded:
        d = factor.operands.get(0)
        if factor.kind == "plain" and d is not None and d not in operation.operand_batching_dims:
            sizes[d] = i.operands[0].shape.dimensions[d]
    i.operation = replace(operation, slice_sizes=tuple(sizes))
    for factor, tiling in local.of_kind("parallel"):
        component = operation.start_index_map.index(factor.operands[0])
        axis, extent = operation.index_vector_dim, local.shapes[0].dimensions[factor.operands[0]]
        i.replace_operand(1, _relative_indices(local, 1, axis, component, tiling, extent, clamp=False))
    indexed = local.of_kind("indexed")
    if not indexed:
        return i
    inserter = local.inserter
    inside: HloInstruction | None = None
    for factor, tiling in indexed:
        d = factor.operands[0]
        extent, tile_extent = local.shapes[0].dimensions[d], i.operands[0].shape.dimensions[d]
        component = operation.start_index_map.index(d)
        indices = _relative_indices(
            local, 1, operation.index_vector_dim, component, tiling, extent, clamp=True
        )
        i.replace_operand(1, indices)
        index = _component(local, indices, operation.index_vector_dim, component)
        shape = Shape(PRED, index.shape.dimensions)
        low = inserter.compare(index, "GE", inserter.full(0, index.shape))
        high = inserter.compare(index, "LT", inserter.full(tile_extent, index.shape))
        in_bounds = inserter.op(And(), low, high, shape=shape)
        inside = in_bounds if inside is None else inserter.op(And(), inside, in_bounds, shape=shape)
    assert inside is not None
    shape = local.tile
    gathered = inserter.op(i.operation, *i.operands, shape=shape)
    batch = [d for d in range(shape.rank) if d not in operation.offset_dims]
    mask = inserter.broadcast(inside, shape.dimensions, batch)
    identity = inserter.broadcast(_identity(local, indexed[0][0]), shape.dimensions)
    return inserter.op(Select(), mask, gathered, identity, shape=shape)


def _component(local: LocalOperation, indices: HloInstruction, axis: int, component: int) -> HloInstruction:
    """Emit a slice with one component of all index vectors in ``indices``; return it.

    Index vectors lie along dimension ``axis``, which the result lacks; ``component`` is the index of the
    component.
    """
    if axis == indices.shape.rank:
        return indices
    column = cropped(indices, axis, component, component + 1)
    dimensions = indices.shape.dimensions
    return local.inserter.reshape(column, (*dimensions[:axis], *dimensions[axis + 1 :]))


def _relative_indices(
    local: LocalOperation, number: int, axis: int, component: int, tiling: Tiling, extent: int, *, clamp: bool
) -> HloInstruction:
    """Emit the index vectors of a gather or scatter, one component relative to the device's tile.

    Args:
        local: the gather or scatter.
        number: the index of the operand that has the index vectors.
        axis: the dimension along which index vectors lie.
        component: the component that indexes the sharded dimension, from which the start of the tile is
            subtracted.
        tiling: the tiling of the sharded dimension, of rank 1.
        extent: the global extent of the sharded dimension.
        clamp: True to clamp the component to the bounds of the global array first.
    """
    inserter = local.inserter
    indices = _as_s32(inserter, local.i.operands[number])
    shape = indices.shape
    if clamp:
        bounds = [inserter.full(n, shape) for n in (0, extent - 1)]
        limited = inserter.op(Clamp(), bounds[0], indices, bounds[1], shape=shape)
        indices = _with_component(local, limited, indices, axis, component)
    first = inserter.broadcast(local.first(tiling, extent), shape.dimensions)
    relative = inserter.op(Subtract(), indices, first, shape=shape)
    return _with_component(local, relative, indices, axis, component)


def _with_component(
    local: LocalOperation, new: HloInstruction, old: HloInstruction, axis: int, component: int
) -> HloInstruction:
    """Emit the index vectors ``old`` with component ``component`` replaced by that of ``new``.

    Index vectors lie along dimension ``axis``.
    """
    if axis == old.shape.rank or old.shape.dimensions[axis] == 1:
        return new
    inserter = local.inserter
    number = inserter.op(Iota(iota_dimension=axis), shape=Shape(S32, old.shape.dimensions))
    is_component = inserter.compare(number, "EQ", inserter.full(component, number.shape))
    return inserter.op(Select(), is_component, new, old, shape=old.shape)


def _scatter(local: LocalOperation) -> HloInstruction:
    """Rewrite a scatter to update the device's tile; updates outside the tile are dropped.

    If the updates are sharded, only the devices with the first tile of updates scatter into the operand. The
    others scatter into an array of neutral elements, as a reduction later combines all results.
    """
    i = local.i
    operation = operation_of(i, Scatter)
    count = len(local.shapes) // 2
    for factor, tiling in (*local.of_kind("parallel"), *local.of_kind("indexed")):
        if factor.result is not None:
            component = operation.scatter_dims_to_operand_dims.index(factor.operands[0])
            axis, extent = operation.index_vector_dim, local.shapes[0].dimensions[factor.operands[0]]
            i.replace_operand(
                count, _relative_indices(local, count, axis, component, tiling, extent, clamp=False)
            )
            continue
        assert factor.combiner is not None
        operand = i.operands[0]
        identity = factor.combiner.neutral_element(operand.shape.element_type)
        assert identity is not None
        i.replace_operand(0, on_first_device(operand, tiling.coordinates[0], identity))
    return i


_RULES: Final[dict[type[Operation], Callable[[LocalOperation], HloInstruction]]] = {
    Slice: _slice,
    Pad: _pad,
    Reverse: _fetch_only,
    Reshape: _fetch_only,
    ReduceWindow: _reduce_window,
    Concatenate: _concatenate,
    Convolution: _convolution,
    CustomCall: _custom_call,
    Iota: _iota,
    DynamicSlice: _dynamic_slice,
    DynamicUpdateSlice: _dynamic_update,
    Gather: _gather,
    Scatter: _scatter,
}
