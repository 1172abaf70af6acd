"""Regions of manual partitioning on terms: their values differ between devices, each of which has its tile.

At the entry of a region, a value becomes the tile that its sharding gives to a device; at the exit, an
element is that of the device that has its tile, by the sharding of the result. Only dimensions whose size
changes are divided, and only evenly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from hloom.ir.affine import Index, Variable
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.custom_call import TO_GLOBAL, TO_LOCAL
from hloom.proofs.relations.mesh import DeviceAxes, NoRelation
from hloom.proofs.relations.terms import Term, Terms
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.manual_regions import TO_FULL, TO_SHARD
from hloom.sharding.reading.annotations import Annotations
from hloom.sharding.tiling.coordinates import Coordinate
from hloom.sharding.tiling.tiling import Tiling

Borders: TypeAlias = Mapping[HloInstruction, Sequence[Tiling]]
"""The tilings of the global sides of the arrays that cross each border."""


def is_border(i: HloInstruction) -> bool:
    """Return whether an instruction enters or leaves a region."""
    return _target(i) in (TO_FULL, TO_SHARD, TO_GLOBAL, TO_LOCAL)


def _target(i: HloInstruction) -> str:
    return getattr(i.operation, "custom_call_target", "")


def _enters(i: HloInstruction) -> bool:
    return _target(i) in (TO_SHARD, TO_LOCAL)


def borders_of(module: HloModule, devices: int) -> Borders:
    """Return the borders of the regions of a program. Raises NoRelation for one without sharding."""
    instructions = list(module.instructions())
    by_shardy = Annotations(module, devices).borders(instructions)
    others = {i: [_tiling(i, devices)] for i in instructions if is_border(i) and i not in by_shardy}
    return {i: border.manual for i, border in by_shardy.items()} | others


def in_regions(module: HloModule) -> set[HloInstruction]:
    """Return the instructions in manual computations of Shardy, and what computes on no array."""
    inside: set[HloInstruction] = set()

    def walk(computation: HloComputation, is_inside: bool) -> None:
        for i in computation.post_order():
            continues = _target(i) != TO_GLOBAL and any(o in inside for o in i.operands)
            if is_inside or continues or _target(i) == TO_LOCAL or not i.operands:
                inside.add(i)
            for called in i.called_computations:
                walk(called, i in inside)

    if any(_target(i) == TO_LOCAL for i in module.instructions()):
        walk(module.entry, False)
    return inside


def _tiling(i: HloInstruction, devices: int) -> Tiling:
    """Return the tiling of the global side of a border. Raises NoRelation if it has no sharding."""
    outside = i.operands[0] if _enters(i) else i
    if outside.sharding is None or outside.sharding.kind not in ("tiled", "replicated"):
        raise NoRelation(f"%{outside.name} has no sharding at the border of a manual region")
    return Tiling.of(outside.sharding, outside.shape.rank, devices)


def crossed(
    terms: Terms, axes: DeviceAxes, i: HloInstruction, operands: Sequence[Term], tilings: Sequence[Tiling]
) -> Any:
    """Return the value after a border, a tuple if the border has several results."""
    after = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
    parts = zip(i.operands, after, tilings, operands, strict=True)
    results = [_crossed(terms, axes, i, (o.shape, shape), tiling, term) for o, shape, tiling, term in parts]
    return tuple(results) if i.shape.is_tuple else results[0]


def _crossed(
    terms: Terms, axes: DeviceAxes, i: HloInstruction, shapes: tuple[Shape, Shape], tiling: Tiling, term: Term
) -> Term:
    before, after = shapes
    enters = _enters(i)
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
