"""Decide by relations whether each device computes its tiles of the results of a global program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloom.ir.affine import Index, Indices, Variable
from hloom.ir.module import HloModule
from hloom.operations.arithmetic import Add
from hloom.proofs.relations.equality import Equality
from hloom.proofs.relations.mesh import DeviceAxes, axes_of
from hloom.proofs.relations.programs import RelationEvaluator, Value, renaming
from hloom.proofs.relations.regions import borders_of
from hloom.proofs.relations.terms import Number, Term, Terms
from hloom.records import dataclass
from hloom.shape.shape import Shape
from hloom.sharding.storing.tiles import flat, nested
from hloom.sharding.tiling.tiling import Tiling


def are_tiles(
    whole: HloModule,
    local: HloModule,
    parameters: Sequence[Tiling],
    results: Sequence[Tiling],
    *,
    reals: bool,
) -> bool:
    """Return whether the results of each device are proved to be the tiles of those of a global program.

    Raises NoRelation for programs whose values have no relation to the arguments that is known.
    """
    terms = Terms()
    devices = local.config.replica_count * local.config.num_partitions
    borders = borders_of(whole, devices)
    divided = [tiling for tilings in borders.values() for tiling in tilings]
    axes = axes_of(local, whole, [*parameters, *results, *divided])
    tiles = _Tiles(terms, axes)
    evaluators = [
        RelationEvaluator(terms, axes, borders, reals=reals),
        RelationEvaluator(terms, axes, reals=reals),
    ]
    leaves = [leaf for p in whole.entry.parameters for _, leaf in p.shape.leaves()]
    arguments = [
        tiles.argument(n, shape, tiling, evaluators[0])
        for n, (shape, tiling) in enumerate(zip(leaves, parameters, strict=True))
    ]
    expected = evaluators[0].run(whole.entry, _nested(whole, [a.whole for a in arguments]))
    got = evaluators[1].run(local.entry, _nested(local, [a.tile for a in arguments]))
    shapes = [leaf for _, leaf in whole.entry.root.shape.leaves()]
    return all(
        x is None or tiles.is_tile(x, y, shape, tiling, evaluators[0])
        for x, y, shape, tiling in zip(flat(expected), flat(got), shapes, results, strict=True)
    )


@dataclass(frozen=True)
class _Argument:
    """An argument of the global program, and its tile on a device; None for tokens."""

    whole: Term | None
    tile: Term | None


class _Tiles:
    """The tiles of arrays on a device."""

    def __init__(self, terms: Terms, axes: DeviceAxes) -> None:
        self.terms = terms
        self.axes = axes

    def argument(self, n: int, shape: Shape, tiling: Tiling, evaluator: RelationEvaluator) -> _Argument:
        """Return an argument and its tile; what is beyond the border is unknown, and differs by device."""
        if not shape.is_array:
            return _Argument(None, None)
        indices = self.terms.axes(shape.dimensions)
        summands: list[Index] = []
        if tiling.unreduced is not None:
            summands = [Index.of(Variable(tiling.unreduced.count, "u"))]
        whole: Term = self.terms.close(("argument", n), list(map(Number, (*summands, *indices))))
        source, inside = self._source(shape, tiling)
        tile = self.terms.at(whole, renaming(indices, source))
        if tiling.unreduced is not None:
            variable = summands[0].terms[0][0]
            tile = self.terms.at(tile, {variable: self.axes.coordinate(tiling.unreduced)})
            whole = evaluator.totals.combine(Add(), shape.element_type, [variable], whole)
        places = self.terms.axes(tiling.local(shape.dimensions))
        padding = self.terms.close(("padding", n), list(map(Number, (self.axes.device, *places))))
        return _Argument(whole, self.terms.every(inside, tile, padding))

    def is_tile(
        self, whole: Term, tile: Term, shape: Shape, tiling: Tiling, evaluator: RelationEvaluator
    ) -> bool:
        """Return whether a term is the tile of another one on each device, within its borders."""
        if any(c.digits for c in tiling.coordinates) and not whole.free.isdisjoint(self.axes.variables):
            return False  # the global array itself differs between devices
        source, inside = self._source(shape, tiling)
        expected = self.terms.at(whole, renaming(self.terms.axes(shape.dimensions), source))
        if tiling.unreduced is not None:
            groups = {v: Variable(v.extent, "b") for v, _ in self.axes.coordinate(tiling.unreduced).terms}
            tile = self.terms.at(tile, {v: Index.of(b) for v, b in groups.items()})
            variables = list(groups.values())
            tile = evaluator.totals.combine(Add(), shape.element_type, variables, tile, frozenset(variables))
        shorter = {v: Index.of(Variable(extent, "x")) for v, extent in _extents(inside).items()}
        facts = [self.terms.index_at(fact, shorter) for fact in inside]
        return Equality(self.terms).holds(
            self.terms.at(expected, shorter), self.terms.at(tile, shorter), facts
        )

    def _source(self, shape: Shape, tiling: Tiling) -> tuple[Indices, list[Index]]:
        """Return the index of a tile's element in its array, and the conditions that there is one."""
        sizes = tiling.local(shape.dimensions)
        source: list[Index] = []
        inside: list[Index] = []
        for axis, size, coordinate, extent in zip(
            self.terms.axes(sizes), sizes, tiling.coordinates, shape.dimensions, strict=True
        ):
            index = self.axes.coordinate(coordinate) * size + axis
            source.append(index)
            if index.maximum() >= extent:
                inside.append(index * -1 + (extent - 1))
        return tuple(source), inside


def _extents(conditions: Sequence[Index]) -> dict[Variable, int]:
    """Return the extents of variables to which conditions on one variable each restrict them."""
    extents: dict[Variable, int] = {}
    for condition in conditions:
        if len(condition.terms) == 1 and condition.terms[0][1] < 0 <= condition.constant:
            ((variable, coefficient),) = condition.terms
            extents[variable] = min(
                condition.constant // -coefficient + 1, extents.get(variable, variable.extent)
            )
    return extents


def _nested(module: HloModule, leaves: Sequence[Term | None]) -> list[Value]:
    rest: Iterator[Value] = iter(leaves)
    return [nested(p.shape, rest) for p in module.entry.parameters]
