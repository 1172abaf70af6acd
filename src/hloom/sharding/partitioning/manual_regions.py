"""Entry to and exit from manual regions, across which values keep their shardings over other axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hloom.errors import HloError
from hloom.ir.instruction import HloInstruction
from hloom.operations.structure import Tuple
from hloom.passes.writing import Inserter
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.extents import copied
from hloom.sharding.partitioning.resharding import resharded
from hloom.sharding.partitioning.state import PartitionState, Region, fixed_coordinates, local_shape
from hloom.sharding.planning.decisions import Decision, Purpose
from hloom.sharding.tiling.coordinates import Coordinate, are_independent
from hloom.sharding.tiling.tiling import Tiling, manual_coordinates

TO_SHARD: Final = "SPMDFullToShardShape"
TO_FULL: Final = "SPMDShardToFullShape"
"""Call targets that enter and leave a region that is manual over all devices, in programs without Shardy."""


def preserved_tiling(have: Tiling, manual: Tiling, shape: Shape, fixed: Sequence[Coordinate]) -> Tiling:
    """Return the tiling over non-manual axes that a value keeps as it enters or leaves a manual region.

    A manual region is code on local shapes, as in ``shard_map``. A dimension stays sharded if its tiles
    divide the array inside the region evenly, and devices with equal indices along the manual axes hold
    all tiles; otherwise the dimension is replicated.

    Args:
        have: the tiling inside the region.
        manual: the tiling outside, restricted to the manual axes.
        shape: the shape of the value outside.
        fixed: for each manual axis, the index of each device along it.
    """
    preserved = Tiling.replicated(len(manual.tiles), have.devices)
    if have.unreduced is not None or manual.unreduced is not None:
        return preserved
    for d, tiles in enumerate(have.tiles):
        if tiles > 1 and shape.dimensions[d] % (tiles * manual.tiles[d]) == 0:
            candidate = preserved.replaced(d, have.select([d]))
            if are_independent([*fixed, *candidate.coordinates]):
                preserved = candidate
    return preserved


def without_manual_axes(have: Tiling, manual: Tiling) -> Tiling:
    """Return a tiling without the manual axes, for the value inside a manual region (``shard_map``).

    If manual and other axes shard the same dimension, it stays sharded over the other axes only if all of
    them are minor to the manual axes, or all are major. In the second case devices must exchange tiles.

    Args:
        have: the tiling outside the region.
        manual: the tiling outside, restricted to the manual axes.
    """
    tiles, coordinates = list(have.tiles), list(have.coordinates)
    for d, count in enumerate(manual.tiles):
        if count == 1:
            continue
        inner, outside = have.tiles[d] // count, have.coordinates[d].indices
        divides = have.tiles[d] % count == 0 and inner > 1
        if divides and [index // inner for index in outside] == list(manual.coordinates[d].indices):
            tiles[d], coordinates[d] = inner, Coordinate.of([index % inner for index in outside])
        elif divides and [index % count for index in outside] == list(manual.coordinates[d].indices):
            tiles[d], coordinates[d] = inner, Coordinate.of([index // count for index in outside])
        else:
            tiles[d], coordinates[d] = 1, Coordinate(have.devices)
    return replace(have, tiles=tuple(tiles), coordinates=tuple(coordinates))


def tiling_inside(tiling: Tiling, inside: Shape, outside: Shape) -> Tiling:
    """Return the tiling of an array inside a manual region for which no element has to change its device.

    A manual region is code on local shapes, as in ``shard_map``. In each dimension the manual axes are major;
    their number of tiles is the ratio of the extents outside and inside.

    Args:
        tiling: the tiling outside the region.
        inside, outside: the shapes of the array inside and outside the region.
    """
    tiles = tuple(
        count * m // n if n and count * m % n == 0 else 1
        for count, m, n in zip(tiling.tiles, inside.dimensions, outside.dimensions, strict=True)
    )
    coordinates = tuple(
        coordinate if count == inner else Coordinate.of([index % inner for index in coordinate.indices])
        for coordinate, count, inner in zip(tiling.coordinates, tiling.tiles, tiles, strict=True)
    )
    return Tiling(tiles, coordinates, tiling.devices)


def united(manual: Tiling, preserved: Tiling) -> Tiling:
    """Return the tiling that shards each dimension over the axes of both given tilings.

    The two are over different axes. Those of ``manual`` are major to those of ``preserved``.
    """
    pairs = list(zip(manual.tiles, preserved.tiles, strict=True))
    coordinates: list[Coordinate] = []
    for d, (many, few) in enumerate(pairs):
        major, minor = manual.coordinates[d], preserved.coordinates[d]
        if many == 1 or few == 1:
            coordinates.append(major if many > 1 else minor)
        elif major.listed or minor.listed:
            both = zip(major.indices, minor.indices, strict=True)
            coordinates.append(Coordinate.of([m * few + k for m, k in both]))
        else:
            coordinates.append(Coordinate.along([*major.digits, *minor.digits], major.devices))
    return replace(manual, tiles=tuple(m * k for m, k in pairs), coordinates=tuple(coordinates))


def enter_region_of_all_devices(state: PartitionState, i: HloInstruction, region: Region) -> HloInstruction:
    """Partition the call ``i``, which enters a manual region over all devices; return its operand's tile.

    A manual region is code on local shapes, so the tile is recorded as a replicated value inside it.
    ``region`` has the manual regions around the call, outermost first. Raises HloError (rule
    ``sharding.manual-axes``) if the shape of ``i`` is not that of the tile.
    """
    tile = copied(i.operands[0])
    if not tile.shape.compatible(i.shape):
        message = (
            f"%{i.name} gives {i.shape}, but a tile of its operand is {tile.shape}; regions with axes "
            f"that are not manual are not implemented"
        )
        raise HloError(message, rule="sharding.manual-axes", instruction=i.name)
    every_device = Coordinate.along([(1, state.devices)], state.devices)
    return state.add(tile, tile.shape, state.replicated(tile.shape), (*region, (every_device,)))


def leave_region_of_all_devices(state: PartitionState, i: HloInstruction, region: Region) -> HloInstruction:
    """Partition the call ``i``, which leaves a manual region over all devices; return the global array.

    A manual region is code on local shapes. The call's operand becomes a tile of the array, whose tiling is
    the annotation of ``i``. ``region`` has the manual regions around the operand, outermost first; the
    innermost is left. If the annotation has manual subgroups, the result lies in a manual region over these.
    Raises HloError (rule ``sharding.manual-axes``) if the operand does not have a tile's shape.
    """
    (operand,) = i.operands
    tiling = state.required.get(i) or state.replicated(i.shape)
    assert isinstance(tiling, Tiling)
    purpose = Purpose("region", Decision(i, i.shape, None))
    inside = tiling_inside(tiling, state.values[operand].shape, i.shape)
    tile = copied(resharded(state, operand, inside, purpose))
    expected = local_shape(i.shape, tiling)
    if not tile.shape.compatible(expected):
        message = f"%{i.name} takes {tile.shape}, but a tile of its result is {expected}"
        raise HloError(message, rule="sharding.manual-axes", instruction=i.name)
    subgroups = manual_coordinates(i.sharding) if i.sharding is not None else ()
    return state.add(tile, i.shape, tiling, (*region[:-1], subgroups) if subgroups else region[:-1])


def enter_region(state: PartitionState, i: HloInstruction, region: Region) -> HloInstruction:
    """Partition the call ``i``, which enters a manual region; return its operands' tiles along manual axes.

    A manual region is code on local shapes, as in ``shard_map``. Each tile may stay sharded over other mesh
    axes. The tiles are returned as a tuple instruction if the value of ``i`` is a tuple, else as one array.
    ``region`` has the manual regions around the call, outermost first.
    """
    border = state.annotations.border(i)
    inner_region = (*region, border.coordinates)
    purpose = Purpose("region", Decision(i, i.shape, None))
    parts: list[HloInstruction] = []
    for operand, manual in zip(i.operands, border.manual, strict=True):
        value = state.values[operand]
        inner = without_manual_axes(value.tiling, manual)
        preserved = preserved_tiling(inner, manual, value.shape, fixed_coordinates(inner_region))
        tile = copied(resharded(state, operand, united(manual, preserved), purpose))
        parts.append(state.add(tile, local_shape(value.shape, manual), preserved, inner_region))
    return _joined(state, i, parts, inner_region)


def leave_region(state: PartitionState, i: HloInstruction, region: Region) -> HloInstruction:
    """Partition the call ``i``, which leaves a manual region; return the global arrays.

    A manual region is code on local shapes, as in ``shard_map``. The operands are tiles along the manual axes
    of these arrays; both may stay sharded over other mesh axes. Returns a tuple instruction if the value of
    ``i`` is a tuple, else one array. ``region`` has the manual regions around the operands, outermost first;
    the innermost is left.
    """
    shapes = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
    purpose = Purpose("region", Decision(i, i.shape, None))
    parts: list[HloInstruction] = []
    for operand, manual, shape in zip(i.operands, state.annotations.border(i).manual, shapes, strict=True):
        inner = state.values[operand].tiling
        preserved = preserved_tiling(inner, manual, shape, fixed_coordinates(region))
        tile = copied(resharded(state, operand, preserved, purpose))
        parts.append(state.add(tile, shape, united(manual, preserved), region[:-1]))
    return _joined(state, i, parts, region[:-1])


def _joined(
    state: PartitionState, i: HloInstruction, parts: Sequence[HloInstruction], region: Region
) -> HloInstruction:
    """Return what replaces ``i``, a call that enters or leaves a manual region: its converted ``parts``.

    Returns a new tuple instruction of all parts if the value of ``i`` is a tuple, else the only part.
    ``region`` has the manual regions around the result, outermost first.
    """
    if not i.shape.is_tuple:
        (part,) = parts
        return part
    shape = Shape.tuple_([part.shape for part in parts])
    result = Inserter(i).op(Tuple(), *parts, shape=shape)
    values = [state.values[part] for part in parts]
    tilings = tuple(value.tilings for value in values)
    decisions = tuple(value.decisions for value in values)
    return state.add(result, Shape.tuple_([value.shape for value in values]), tilings, region, decisions)
