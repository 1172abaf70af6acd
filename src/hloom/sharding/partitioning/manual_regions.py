"""Manual regions: their borders, and which cuts values keep there beside those of the manual axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast

from hloom.errors import HloError
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.structure import Tuple
from hloom.passes.writing import Writer
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.communication import Region, fixed
from hloom.sharding.partitioning.values import Values, local_shape
from hloom.sharding.planning.decisions import Decision, Purpose
from hloom.sharding.reading.annotations import Annotations, Tilings, rank_of
from hloom.sharding.tiling.coordinates import Column, are_independent
from hloom.sharding.tiling.tiling import Tiling, manual_columns

TO_SHARD: Final = "SPMDFullToShardShape"
TO_FULL: Final = "SPMDShardToFullShape"
"""Calls that enter and leave a region of tiles along all axes, as XLA writes it without Shardy."""


def kept_cuts(have: Tiling, manual: Tiling, shape: Shape, fixed: Sequence[Column]) -> Tiling:
    """Return the cuts of a region's value along axes that are not manual, which it keeps at the border.

    A cut is kept if its tiles divide the array inside of the region evenly, and the devices at each place of
    the manual axes have all of its tiles.

    Args:
        have: the tiling of the value inside of the region.
        manual: its tiling along the manual axes, outside.
        shape: its shape outside of the region.
        fixed: the places of the devices along the manual axes.
    """
    kept = Tiling.replicated(len(manual.tiles), have.devices)
    if have.summands is not None or manual.summands is not None:
        return kept
    for d, tiles in enumerate(have.tiles):
        column = have.column(d)
        if tiles == 1 or shape.dimensions[d] % (tiles * manual.tiles[d]):
            continue
        others = [kept.column(e) for e in range(len(kept.tiles)) if e != d]
        if are_independent([*fixed, *others, column]):
            columns = (*kept.columns[:d], column, *kept.columns[d + 1 :])
            kept = Tiling((*kept.tiles[:d], tiles, *kept.tiles[d + 1 :]), columns, kept.devices)
    return kept


def inside(have: Tiling, manual: Tiling) -> Tiling:
    """Return the tiling of a value inside of a region, of which manual axes cut dimensions.

    Of a dimension that a manual axis and others cut, the others' cut stays if it is the minor one; if it is
    the major one, tiles have to be exchanged.

    Args:
        have: the tiling of the value outside of the region.
        manual: its tiling along the manual axes.
    """
    tiles, columns = list(have.tiles), list(have.columns)
    for d, count in enumerate(manual.tiles):
        more = have.tiles[d] // count
        if count == 1:
            continue
        found = have.tiles[d] % count == 0 and more > 1
        minor = [index % more for index in have.column(d).indices] if found else []
        major = [index // count for index in have.column(d).indices] if found else []
        if found and [index // more for index in have.column(d).indices] == list(manual.column(d).indices):
            tiles[d], columns[d] = more, Column.of(minor)
        elif found and [n % count for n in have.column(d).indices] == list(manual.column(d).indices):
            tiles[d], columns[d] = more, Column.of(major)
        else:
            tiles[d], columns[d] = 1, Column(have.devices)
    return replace(have, tiles=tuple(tiles), columns=tuple(columns))


def inner_cuts(tiling: Tiling, inside: Shape, outside: Shape) -> Tiling:
    """Return how the value of a region is cut if its tiles are those of a tiling outside of the region.

    Of the tiles of a dimension, the region's axes make as many as the dimension is smaller inside; they are
    the major ones.
    """
    kept = [
        tiles * m // n if n and tiles * m % n == 0 else 1
        for tiles, m, n in zip(tiling.tiles, inside.dimensions, outside.dimensions, strict=True)
    ]
    columns = tuple(
        column if count == tiles else Column.of([index % count for index in column.indices])
        for column, tiles, count in zip(tiling.columns, tiling.tiles, kept, strict=True)
    )
    return Tiling(tuple(kept), columns, tiling.devices)


def united(manual: Tiling, kept: Tiling) -> Tiling:
    """Return the tiling with the cuts of both; the manual cut of a dimension is the major one."""
    pairs = list(zip(manual.tiles, kept.tiles, strict=True))
    columns: list[Column] = []
    for d, (many, few) in enumerate(pairs):
        major, minor = manual.column(d), kept.column(d)
        if many == 1 or few == 1:
            columns.append(major if many > 1 else minor)
        elif major.listed or minor.listed:
            both = zip(major.indices, minor.indices, strict=True)
            columns.append(Column.of([m * few + k for m, k in both]))
        else:
            columns.append(Column.along([*major.digits, *minor.digits], major.devices))
    return replace(manual, tiles=tuple(m * k for m, k in pairs), columns=tuple(columns))


class Regions(Values):
    """The borders of manual regions.

    Attributes:
        annotations: those of the program.
    """

    def __init__(self, module: HloModule, devices: int) -> None:
        super().__init__(module, devices)
        self.annotations = Annotations(module, devices)

    def stated(self, i: HloInstruction) -> Tilings | None:
        """Return the tilings that an instruction must have; None if any will do."""
        return self.annotations.stated(i, self.whole.get(i, i.shape))

    def to_shard(self, i: HloInstruction, region: Region) -> None:
        """Enter a region of tiles: the operand is cut as its own annotation says."""
        (operand,) = i.operands
        tile = self.resharder.renamed(operand)
        if not tile.shape.compatible(i.shape):
            message = (
                f"%{i.name} gives {i.shape}, but a tile of its operand is {tile.shape}; regions with axes "
                f"that are not manual are not implemented"
            )
            raise HloError(message, rule="sharding.manual-axes", instruction=i.name)
        inner = (*region, (Column.along([(1, self.devices)], self.devices),))
        self.made(tile, tile.shape, self.uncut(tile.shape), inner)
        Writer(i).replace(tile)

    def to_full(self, i: HloInstruction, region: Region) -> None:
        """Leave a region of tiles: they become those of the whole array as the call's annotation says.

        If the annotation has manual subgroups, the value stays in the region of those.
        """
        (operand,) = i.operands
        tiling, before = cast("Tiling", self.stated(i) or self.uncut(i.shape)), self.whole[operand]
        purpose = Purpose("region", Decision(i, i.shape, None))
        tile = self.resharder.renamed(self.fitted(operand, inner_cuts(tiling, before, i.shape), purpose))
        wanted = local_shape(i.shape, tiling)
        if not tile.shape.compatible(wanted):
            message = f"%{i.name} takes {tile.shape}, but a tile of its result is {wanted}"
            raise HloError(message, rule="sharding.manual-axes", instruction=i.name)
        inner = manual_columns(i.sharding) if i.sharding is not None else ()
        self.made(tile, i.shape, tiling, (*region[:-1], inner) if inner else region[:-1])
        Writer(i).replace(tile)

    def to_local(self, i: HloInstruction, region: Region) -> None:
        """Enter a manual region: its values are the tiles along the manual axes; other cuts stay."""
        axes, shardings = self.annotations.manual(i, "xla.sdy.in_shardings")
        places = self.annotations.places(shardings, axes)
        purpose = Purpose("region", Decision(i, self.whole[i], None))
        parts: list[HloInstruction] = []
        for operand, sharding in zip(i.operands, shardings, strict=True):
            shape = self.whole[operand]
            manual = sharding.tiling(rank_of(shape), self.devices, axes)
            have = inside(cast("Tiling", self.tilings[operand]), manual)
            kept = kept_cuts(have, manual, shape, fixed((*region, places)))
            tile = self.resharder.renamed(self.fitted(operand, united(manual, kept), purpose))
            parts.append(self.made(tile, local_shape(shape, manual), kept, (*region, places)))
        self._hand_over(i, parts, (*region, places))

    def to_global(self, i: HloInstruction, region: Region) -> None:
        """Leave a manual region: its values become the tiles of whole arrays; other cuts stay."""
        axes, shardings = self.annotations.manual(i, "xla.sdy.out_shardings")
        shapes = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
        purpose = Purpose("region", Decision(i, self.whole[i], None))
        parts: list[HloInstruction] = []
        for operand, sharding, shape in zip(i.operands, shardings, shapes, strict=True):
            manual = sharding.tiling(rank_of(shape), self.devices, axes)
            kept = kept_cuts(cast("Tiling", self.tilings[operand]), manual, shape, fixed(region))
            tile = self.resharder.renamed(self.fitted(operand, kept, purpose))
            parts.append(self.made(tile, shape, united(manual, kept), region[:-1]))
        self._hand_over(i, parts, region[:-1])

    def _hand_over(self, i: HloInstruction, parts: Sequence[HloInstruction], region: Region) -> None:
        """Replace an instruction by a value, or by the tuple of values if it is a tuple."""
        if self.whole[i].is_tuple:
            made = Writer(i).op(Tuple(), *parts, shape=Shape.tuple_([part.shape for part in parts]))
            tilings = tuple(self.tilings[part] for part in parts)
            decided = tuple(self.decided[part] for part in parts)
            self.made(made, Shape.tuple_([self.whole[part] for part in parts]), tilings, region, decided)
        else:
            (made,) = parts
        Writer(i).replace(made)
