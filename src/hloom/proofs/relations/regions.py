"""Regions of manual partitioning on terms: their values differ between devices, each of which has its tile.

At the entry of a region, a value becomes the tile that its sharding gives to a device; at the exit, an
element is that of the device that has its tile, by the sharding of the result. Only dimensions whose size
changes are divided, and only evenly.
"""

from __future__ import annotations

import math

from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.proofs.relations.mesh import DeviceAxes, NoRelation
from hloom.proofs.relations.terms import Term, Terms
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.manual_regions import TO_FULL, TO_SHARD
from hloom.sharding.tiling.coordinates import Coordinate
from hloom.sharding.tiling.tiling import Tiling


def is_border(i: HloInstruction) -> bool:
    """Return whether an instruction enters or leaves a region."""
    return getattr(i.operation, "custom_call_target", "") in (TO_FULL, TO_SHARD)


def border_tiling(i: HloInstruction, devices: int) -> Tiling:
    """Return the tiling of the global side of a border. Raises NoRelation if it has no sharding."""
    enters = getattr(i.operation, "custom_call_target", "") == TO_SHARD
    outside = i.operands[0] if enters else i
    if outside.sharding is None or outside.sharding.kind not in ("tiled", "replicated"):
        raise NoRelation(f"%{outside.name} has no sharding at the border of a manual region")
    return Tiling.of(outside.sharding, outside.shape.rank, devices)


def crossed(terms: Terms, axes: DeviceAxes, i: HloInstruction, term: Term) -> Term:
    """Return the value after a border."""
    tiling = border_tiling(i, math.prod(axes.sizes))
    before, after = i.operands[0].shape, i.shape
    enters = getattr(i.operation, "custom_call_target", "") == TO_SHARD
    moved: dict[Variable, Index] = {}
    for d, coordinate in enumerate(tiling.coordinates):
        whole, tile = (s.dimensions[d] for s in ((before, after) if enters else (after, before)))
        if whole == tile:
            continue
        if whole != tile * tiling.tiles[d]:
            raise NoRelation(f"%{i.name} divides a dimension unlike its sharding")
        if enters:
            moved[_variable(terms, before, d)] = axes.coordinate(coordinate) * tile + _axis(terms, after, d)
            continue
        member = terms.quotients.divide(_axis(terms, after, d), tile)
        moved |= _digits(terms, axes, coordinate, member)
        if tile > 1:
            moved[_variable(terms, before, d)] = _axis(terms, after, d) - member * tile
    return terms.at(term, moved)


def _axis(terms: Terms, shape: Shape, d: int) -> Index:
    return terms.axes(shape.dimensions)[d]


def _variable(terms: Terms, shape: Shape, d: int) -> Variable:
    """Return the variable of a dimension of more than one element."""
    return _axis(terms, shape, d).terms[0][0]


def _digits(terms: Terms, axes: DeviceAxes, coordinate: Coordinate, member: Index) -> dict[Variable, Index]:
    """Return the digits of the devices whose tile has a number."""
    if coordinate.listed:
        raise NoRelation("the tiles of an array are in no regular order")
    divide = terms.quotients.divide
    digits: dict[Variable, Index] = {}
    below = math.prod(size for _, size in coordinate.digits)
    for stride, size in coordinate.digits:
        below //= size
        above = divide(member, below)
        digit = above - divide(above, size) * size
        for variable, own in zip(axes.variables, axes.strides, strict=True):
            if stride <= own < stride * size:
                high = divide(digit, own // stride)
                digits[variable] = high - divide(high, variable.extent) * variable.extent
    return digits
