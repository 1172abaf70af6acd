"""Local operations: what a device computes to get its tile of a result, where the same operation will not do.

Windows, slices, paddings and concatenations along a cut dimension fetch halos; attributes that state extents
are adapted; indices are moved to the tile's place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

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
from hloom.passes.writing import Writer
from hloom.shape.element_type import PRED, S32
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.communication import Communication, Region, fixed
from hloom.sharding.partitioning.halos import cropped, halo
from hloom.sharding.planning.fetches import Fetch, fetches
from hloom.sharding.tiling.ranges import by_device
from hloom.sharding.tiling.tiling import Tiling

Accepted: TypeAlias = "Sequence[tuple[Factor, Tiling]]"
Skipped: TypeAlias = "tuple[int, Tiling, Sequence[int]]"
"""A dimension of a result, its cut, and how many elements before those of each tile are computed as well."""


@dataclass(frozen=True, slots=True)
class Place:
    """An instruction that is to compute a tile.

    Attributes:
        i: the instruction; its operands are tiles.
        shapes, result: shapes of the whole operands and of the whole result.
        tilings: the tiles of the operands.
        tiling: the tiles of the result.
        accepted: the factors that are cut.
    """

    i: HloInstruction
    shapes: Sequence[Shape]
    result: Shape
    tilings: Sequence[Tiling | None]
    tiling: Tiling
    accepted: Accepted
    resharder: Communication
    region: Region

    @property
    def writer(self) -> Writer:
        """Return a writer of instructions beside this one."""
        return Writer(self.i)

    @property
    def local(self) -> Shape:
        """Return the shape of a tile of the result."""
        return Shape(self.result.element_type, self.tiling.local(self.result.dimensions))

    def with_kind(self, kind: str) -> list[tuple[Factor, Tiling]]:
        """Return the accepted factors of a kind."""
        return [(f, cut) for f, cut in self.accepted if f.kind == kind]

    def fetch(self, factor: Factor, cut: Tiling, fills: Callable[[int], HloInstruction]) -> list[Fetch]:
        """Replace operands by their halos."""
        found = fetches(self.i, self.shapes, self.result, factor, cut) or []
        for one in found:
            tiling = self.tilings[one.operand]
            assert tiling is not None
            value, wanted, d = self.i.operands[one.operand], one.window.halo, one.dimension
            if not tiling.same_cut(d, cut, 0):
                wanted = by_device(wanted, tiling, d, cut.column(0), fixed(self.region)) or wanted
            fill = fills(one.operand)
            made = halo(value, d, tiling, wanted, fill, self.resharder, self.region)
            self.i.replace_operand(one.operand, made)
        return found

    def skipping(self, operation: Operation, skipped: Sequence[Skipped]) -> HloInstruction:
        """Let the instruction compute an operation; of more elements where devices skip some of them."""
        self.i.operation = operation
        more = {d: (cut, skips) for d, cut, skips in skipped if any(skips)}
        if not more:
            return self.i
        writer, local = self.writer, self.local
        extents = [n + (max(more[d][1]) if d in more else 0) for d, n in enumerate(local.dimensions)]
        made = writer.op(
            operation,
            *self.i.operands,
            shape=Shape(local.element_type, tuple(extents)),
            computations=self.i.called_computations,
        )
        starts = [writer.scalar(0, S32)] * local.rank
        for d, (cut, skips) in more.items():
            starts[d] = self.resharder.of_device(writer, [skips[p] for p in cut.column(0).indices])
        return writer.op(DynamicSlice(dynamic_slice_sizes=local.dimensions), made, *starts, shape=local)

    def zero(self, number: int) -> HloInstruction:
        """Return a zero of an operand's type."""
        return self.writer.scalar(0, self.shapes[number].element_type)

    def first(self, cut: Tiling, extent: int) -> HloInstruction:
        """Return the index of the first element of this device's tile of a dimension."""
        local = -(-extent // cut.tiles[0])
        return self.resharder.of_column(self.writer, cut.column(0), local)


def localized(place: Place) -> HloInstruction:
    """Return the instruction that computes a tile: the given one, adapted, or one that replaces it."""
    rule = _RULES.get(type(place.i.operation))
    if rule is None:
        return place.i
    return rule(place)


def _slice(place: Place) -> HloInstruction:
    operation = place.i.operation
    assert isinstance(operation, Slice)
    ranges = list(operation.slice)
    for factor, _ in place.accepted:
        d = factor.operands[0]
        ranges[d] = SliceDimension(0, place.local.dimensions[d])
    halos = place.with_kind("halo")
    for d in set(range(len(ranges))) - {factor.operands[0] for factor, _ in halos}:
        if halos and ranges[d].stride == 1:
            operand = cropped(place.i.operands[0], d, ranges[d].start, ranges[d].limit)
            place.i.replace_operand(0, operand)
            ranges[d] = SliceDimension(0, place.local.dimensions[d])
    for factor, cut in halos:
        d = factor.operands[0]
        (fetch,) = place.fetch(factor, cut, place.zero)
        ranges[d] = SliceDimension(0, fetch.window.halo.length, operation.slice[d].stride)
    place.i.operation = replace(operation, slice=tuple(ranges))
    return place.i


def _custom_call(place: Place) -> HloInstruction:
    """Return the range of a rotated array that is the tile; other calls are made with tiles."""
    if rotation_of(place.i) is None or not place.with_kind("halo"):
        return place.i
    _fetch_only(place)
    return place.i.operands[0]


def _fetch_only(place: Place) -> HloInstruction:
    """Compute the same operation on halos."""
    for factor, cut in place.with_kind("halo"):
        place.fetch(factor, cut, place.zero)
    return place.i


def _pad(place: Place) -> HloInstruction:
    operation = place.i.operation
    assert isinstance(operation, Pad)
    padding = list(operation.padding)
    skipped: list[Skipped] = []
    for factor, cut in place.with_kind("halo"):
        d = factor.operands[0]
        (fetch,) = place.fetch(factor, cut, lambda _: place.i.operands[1])
        padding[d] = PaddingDimension(fetch.window.low, fetch.window.high, padding[d].interior)
        skipped.append((d, cut, fetch.window.skips))
    return place.skipping(replace(operation, padding=tuple(padding)), skipped)


def _reduce_window(place: Place) -> HloInstruction:
    operation = place.i.operation
    assert isinstance(operation, ReduceWindow)
    window = list(operation.window)
    skipped: list[Skipped] = []
    half = len(place.shapes) // 2
    for factor, cut in place.with_kind("halo"):
        d = factor.operands[0]
        found = place.fetch(factor, cut, lambda number: place.i.operands[half + number])
        w = found[0].window
        window[d] = replace(window[d], padding_low=w.low, padding_high=w.high)
        skipped.append((d, cut, [skip // window[d].stride for skip in w.skips]))
    return place.skipping(replace(operation, window=tuple(window)), skipped)


def _concatenate(place: Place) -> HloInstruction:
    halos = place.with_kind("halo")
    if not halos:
        return place.i
    ((factor, cut),) = halos
    place.fetch(factor, cut, place.zero)
    writer, shape = place.writer, place.local
    d = factor.operands[0]
    first = place.first(cut, place.result.dimensions[d])
    index = writer.op(Iota(iota_dimension=d), shape=Shape(S32, shape.dimensions))
    index = writer.op(Add(), index, writer.broadcast(first, shape.dimensions), shape=index.shape)
    result = place.i.operands[0]
    offset = 0
    for number in range(1, len(place.shapes)):
        offset += place.shapes[number - 1].dimensions[d]
        limit = writer.full(offset, Shape(S32, shape.dimensions))
        behind = writer.compare(index, "GE", limit)
        result = writer.op(Select(), behind, place.i.operands[number], result, shape=shape)
    return result


def _convolution(place: Place) -> HloInstruction:
    operation = place.i.operation
    assert isinstance(operation, Convolution)
    labels = operation.dim_labels
    window = list(operation.window)
    skipped: list[Skipped] = []
    for factor, cut in place.with_kind("halo"):
        number = labels.input_spatial_dimensions.index(factor.operands[0])
        (fetch,) = place.fetch(factor, cut, place.zero)
        w = window[number]
        window[number] = replace(w, padding_low=fetch.window.low, padding_high=fetch.window.high)
        if factor.result is None:
            window[number] = replace(window[number], size=-(-w.size // cut.tiles[0]))
        else:
            skipped.append((factor.result, cut, [skip // w.stride for skip in fetch.window.skips]))
    changes: dict[str, int] = {}
    for factor, cut in place.with_kind("grouped"):
        if factor.result in labels.output_spatial_dimensions:
            number = labels.output_spatial_dimensions.index(factor.result)
            made = batch_window if 0 in factor.operands else free_window
            window[number] = made(window[number].size // cut.tiles[0])
            continue
        name = "feature_group_count" if operation.feature_group_count > 1 else "batch_group_count"
        changes[name] = getattr(operation, name) // cut.tiles[0]
    return place.skipping(replace(operation, window=tuple(window), **changes), skipped)


def _iota(place: Place) -> HloInstruction:
    operation = place.i.operation
    assert isinstance(operation, Iota)
    d = operation.iota_dimension
    cuts = [cut for factor, cut in place.accepted if factor.result == d]
    if not cuts:
        return place.i
    writer, shape = place.writer, place.local
    numbers = writer.op(operation, shape=Shape(S32, shape.dimensions))
    first = writer.broadcast(place.first(cuts[0], place.result.dimensions[d]), shape.dimensions)
    total = writer.op(Add(), numbers, first, shape=numbers.shape)
    return writer.convert(total, shape.element_type)


def _as_s32(writer: Writer, indices: HloInstruction) -> HloInstruction:
    """Convert indices to s32; what s32 does not hold is out of the bounds of any array, and stays so."""
    kind = indices.shape.element_type
    if kind.bits > 32 or (kind.bits == 32 and kind.is_unsigned):
        low = -(1 << 31) if kind.is_signed else 0
        bounds = [writer.full(n, indices.shape) for n in (low, (1 << 31) - 1)]
        indices = writer.op(Clamp(), bounds[0], indices, bounds[1], shape=indices.shape)
    return writer.convert(indices, S32)


def _clamped(place: Place, index: HloInstruction, most: int) -> HloInstruction:
    """Return a scalar index as s32, between 0 and a limit."""
    writer = place.writer
    bounds = writer.scalar(0, S32), writer.scalar(most, S32)
    return writer.op(Clamp(), bounds[0], _as_s32(writer, index), bounds[1], shape=Shape(S32, ()))


def _dynamic_slice(place: Place) -> HloInstruction:
    """Slice the tile between neutral elements, which devices add to what one or two of them have."""
    i, resharder = place.i, place.resharder
    sizes = list(place.local.dimensions)
    for factor, cut in place.with_kind("indexed"):
        d = factor.operands[0]
        size, extent = sizes[d], place.shapes[0].dimensions[d]
        writer = place.writer
        local = i.operands[0].shape.dimensions[d]
        value = resharder.window(i.operands[0], d, size, size, _neutral(place, factor))
        start = _clamped(place, i.operands[1 + d], extent - size)
        start = writer.op(Subtract(), start, place.first(cut, extent), shape=start.shape)
        start = writer.op(Add(), start, writer.scalar(size, S32), shape=start.shape)
        zero, limit = writer.scalar(0, S32), writer.scalar(local + size, S32)
        start = writer.op(Clamp(), zero, start, limit, shape=start.shape)
        i.replace_operand(0, value)
        _same_types(place, 1)
        i.replace_operand(1 + d, start)
    i.operation = replace(i.operation, dynamic_slice_sizes=tuple(sizes))  # type: ignore[call-arg]
    return i


def _same_types(place: Place, first: int) -> None:
    """Convert all start indices to s32; those of dimensions that are whole stay clamped."""
    for number in range(first, len(place.i.operands)):
        index = place.i.operands[number]
        if index.shape.element_type is not S32:
            place.i.replace_operand(number, _as_s32(place.writer, index))


def _dynamic_update(place: Place) -> HloInstruction:
    """Update the tile between elements that are dropped afterwards."""
    i, resharder = place.i, place.resharder
    indexed = place.with_kind("indexed")
    for factor, cut in indexed:
        d = factor.operands[0]
        size, extent = place.shapes[1].dimensions[d], place.shapes[0].dimensions[d]
        writer = place.writer
        local = i.operands[0].shape.dimensions[d]
        i.replace_operand(0, resharder.window(i.operands[0], d, size, size))
        start = _clamped(place, i.operands[2 + d], extent - size)
        start = writer.op(Subtract(), start, place.first(cut, extent), shape=start.shape)
        start = writer.op(Add(), start, writer.scalar(size, S32), shape=start.shape)
        zero, limit = writer.scalar(0, S32), writer.scalar(local + size, S32)
        _same_types(place, 2)
        i.replace_operand(2 + d, writer.op(Clamp(), zero, start, limit, shape=start.shape))
    if not indexed:
        return i
    value = place.writer.op(i.operation, *i.operands, shape=i.operands[0].shape)
    for factor, _ in indexed:
        d = factor.operands[0]
        size = place.shapes[1].dimensions[d]
        value = cropped(value, d, size, value.shape.dimensions[d] - size)
    return value


def _neutral(place: Place, factor: Factor) -> HloInstruction:
    assert factor.combiner is not None
    kind = place.result.element_type
    value = factor.combiner.neutral_element(kind)
    assert value is not None
    return place.writer.scalar(value, kind)


def _gather(place: Place) -> HloInstruction:
    """Gather what is in the tile; devices add what others have."""
    i = place.i
    operation = i.operation
    assert isinstance(operation, Gather)
    sizes = list(operation.slice_sizes)
    for factor, _ in place.accepted:
        if factor.kind == "plain" and 0 in factor.operands and factor.operands[0] not in _batching(operation):
            d = factor.operands[0]
            sizes[d] = i.operands[0].shape.dimensions[d]
    i.operation = replace(operation, slice_sizes=tuple(sizes))
    for factor, cut in place.with_kind("parallel"):
        component = operation.start_index_map.index(factor.operands[0])
        axis, extent = operation.index_vector_dim, place.shapes[0].dimensions[factor.operands[0]]
        i.replace_operand(1, _moved(place, 1, axis, component, cut, extent, clamp=False))
    indexed = place.with_kind("indexed")
    if not indexed:
        return i
    writer = place.writer
    inside: HloInstruction | None = None
    for factor, cut in indexed:
        d = factor.operands[0]
        extent, local = place.shapes[0].dimensions[d], i.operands[0].shape.dimensions[d]
        component = operation.start_index_map.index(d)
        indices = _moved(place, 1, operation.index_vector_dim, component, cut, extent, clamp=True)
        i.replace_operand(1, indices)
        one = _component(place, indices, operation.index_vector_dim, component)
        shape = Shape(PRED, one.shape.dimensions)
        low = writer.compare(one, "GE", writer.full(0, one.shape))
        high = writer.compare(one, "LT", writer.full(local, one.shape))
        found = writer.op(And(), low, high, shape=shape)
        inside = found if inside is None else writer.op(And(), inside, found, shape=shape)
    assert inside is not None
    shape = place.local
    taken = writer.op(i.operation, *i.operands, shape=shape)
    batch = [d for d in range(shape.rank) if d not in operation.offset_dims]
    chosen = writer.broadcast(inside, shape.dimensions, batch)
    neutral = writer.broadcast(_neutral(place, indexed[0][0]), shape.dimensions)
    return writer.op(Select(), chosen, taken, neutral, shape=shape)


def _batching(operation: Gather) -> tuple[int, ...]:
    return operation.operand_batching_dims


def _component(place: Place, indices: HloInstruction, axis: int, component: int) -> HloInstruction:
    """Return one component of all index vectors."""
    if axis == indices.shape.rank:
        return indices
    one = cropped(indices, axis, component, component + 1)
    dimensions = indices.shape.dimensions
    return place.writer.reshape(one, (*dimensions[:axis], *dimensions[axis + 1 :]))


def _moved(
    place: Place, number: int, axis: int, component: int, cut: Tiling, extent: int, *, clamp: bool
) -> HloInstruction:
    """Return indices into a tile: the first index of the tile is subtracted from one component."""
    writer = place.writer
    indices = _as_s32(writer, place.i.operands[number])
    shape = indices.shape
    if clamp:
        bounds = [writer.full(n, shape) for n in (0, extent - 1)]
        limited = writer.op(Clamp(), bounds[0], indices, bounds[1], shape=shape)
        indices = _only(place, limited, indices, axis, component)
    first = writer.broadcast(place.first(cut, extent), shape.dimensions)
    moved = writer.op(Subtract(), indices, first, shape=shape)
    return _only(place, moved, indices, axis, component)


def _only(
    place: Place, new: HloInstruction, old: HloInstruction, axis: int, component: int
) -> HloInstruction:
    """Return index vectors of which one component is new."""
    if axis == old.shape.rank or old.shape.dimensions[axis] == 1:
        return new
    writer = place.writer
    number = writer.op(Iota(iota_dimension=axis), shape=Shape(S32, old.shape.dimensions))
    chosen = writer.compare(number, "EQ", writer.full(component, number.shape))
    return writer.op(Select(), chosen, new, old, shape=old.shape)


def _scatter(place: Place) -> HloInstruction:
    """Scatter into the tile: updates outside of it are dropped. Operands of summands are neutral but one."""
    i = place.i
    operation = i.operation
    assert isinstance(operation, Scatter)
    count = len(place.shapes) // 2
    writer = place.writer
    for factor, cut in (*place.with_kind("parallel"), *place.with_kind("indexed")):
        if factor.result is not None:
            component = operation.scatter_dims_to_operand_dims.index(factor.operands[0])
            axis, extent = operation.index_vector_dim, place.shapes[0].dimensions[factor.operands[0]]
            i.replace_operand(count, _moved(place, count, axis, component, cut, extent, clamp=False))
            continue
        assert factor.combiner is not None
        number = place.resharder.of_column(writer, cut.column(0))
        operand = i.operands[0]
        first = writer.compare(number, "EQ", writer.scalar(0, S32))
        value = factor.combiner.neutral_element(operand.shape.element_type)
        assert value is not None
        neutral = writer.full(value, operand.shape)
        chosen = writer.broadcast(first, operand.shape.dimensions)
        i.replace_operand(0, writer.op(Select(), chosen, operand, neutral, shape=operand.shape))
    return i


_RULES: Final[dict[type[Operation], Callable[[Place], HloInstruction]]] = {
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
