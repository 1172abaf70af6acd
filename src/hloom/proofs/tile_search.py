"""Search for global arguments for which devices compute other tiles than the global program.

Both programs may round: a device may round partial sums that the global program never forms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hloom.debug.agreement import Comparison, compare
from hloom.debug.inputs import Distribution, drawn_arguments, edge_values
from hloom.debug.tolerance import Tolerance
from hloom.errors import NoBound
from hloom.ir.module import HloModule
from hloom.operations.control_flow import While
from hloom.proofs.prints import Prints
from hloom.proofs.programs import device_count
from hloom.proofs.refutation import ArgumentSearch, Refutation
from hloom.sharding.storing.tiles import flat, nested, tile_of
from hloom.sharding.tiling.tiling import Tiling


class TileSearch(ArgumentSearch):
    """The search for global arguments for which devices do not compute their tiles.

    Args:
        whole: the program on global arrays, of one device.
        local: the program of a device.
        parameters, results: the tilings of the leaves of parameters and result.
        tolerance: the allowed difference; None: what the rounding errors of both programs allow.
    """

    def __init__(
        self,
        whole: HloModule,
        local: HloModule,
        parameters: Sequence[Tiling],
        results: Sequence[Tiling],
        *,
        tolerance: Tolerance | None = None,
    ) -> None:
        super().__init__(whole, local, tolerance=tolerance)
        self._tilings = parameters, results
        self._devices = range(device_count(local))

    def difference(self, seed: int, distribution: Distribution) -> Refutation | None:
        """Return the differences of the tiles for the arguments of a seed; None if there are none."""
        drawn: list[Any] = list(drawn_arguments(self.before, seed, distribution, self.constants))
        if distribution.has_edges:
            _set_edge_scalars(self.before, drawn, seed)
        tiles = [
            tiles_of(self.after, drawn, self._tilings[0], d, self._padding(seed, d)) for d in self._devices
        ]
        results = self.results([drawn], tiles)
        if results is None:
            return None
        (expected,), got = results
        if not any(c.wrong for c in self._compared(got, [0.0] * len(got), expected, 0.0)):
            return None
        try:
            (bounds,) = self.bounds([drawn], [expected])
            comparisons = self._compared(got, [0.0] * len(got), expected, bounds)
            if self.tolerance is None and any(c.wrong for c in comparisons):
                own = self.bounds(tiles, got, of_second=True)
                comparisons = self._compared(got, own, expected, bounds)
        except NoBound:
            return None
        if not any(c.wrong for c in comparisons):
            return None
        return Refutation(f"{distribution.value} {seed}", drawn, comparisons)

    def _padding(self, seed: int, device: int) -> list[Any]:
        """Return arguments of a device whose elements fill its tiles beyond the border of the arrays."""
        return list(drawn_arguments(self.after, seed + 1000 * (device + 1), Distribution.NORMAL))

    def _compared(
        self, got: Sequence[Any], own_bounds: Sequence[Any], expected: Any, bounds: Any
    ) -> list[Comparison]:
        return [
            c
            for d in self._devices
            for c in _compared(got[d], own_bounds[d], expected, bounds, self._tilings[1], d)
        ]


def inside(dimensions: Sequence[int], tiling: Tiling, device: int) -> Any:
    """Return a mask of a device's tile, or of its summand: False for padding beyond the array's bounds."""
    return tile_of(np.broadcast_to(np.True_, tuple(dimensions)), tiling.reduced(), device)


def tiles_of(
    local: HloModule, arguments: Sequence[Any], tilings: Sequence[Tiling], device: int, padding: Any
) -> list[Any]:
    """Return a device's tiles of the global arguments, with padding taken from `padding`.

    Args:
        local: the program of a device.
        arguments: the global arguments, numbers or fingerprints.
        tilings: the tilings of the arguments' leaves.
        device: the number of the device.
        padding: arguments of the local program; their elements fill tiles beyond the arrays' bounds.
    """

    def tile(x: Any, tiling: Tiling, outside: Any) -> Any:
        if x is None:
            return None
        mask = inside(x.shape, tiling, device)
        if isinstance(x, Prints):
            return Prints(np.where(mask, tile_of(x.residues, tiling, device), outside.residues))
        return np.where(mask, tile_of(x, tiling, device), outside)

    triples = zip(flat(tuple(arguments)), tilings, flat(tuple(padding)), strict=True)
    leaves = iter([tile(*triple) for triple in triples])
    return [nested(p.shape, leaves) for p in local.entry.parameters]


def _set_edge_scalars(module: HloModule, drawn: list[Any], seed: int) -> None:
    """Replace integers by edge values, such as the start of a slice.

    Integers stay small in programs with loops: they may be numbers of iterations.
    """
    if any(isinstance(i.operation, While) for i in module.instructions()):
        return
    generator = np.random.default_rng(seed)
    for n, parameter in enumerate(module.entry.parameters):
        shape = parameter.shape
        if shape.is_array and shape.rank == 0 and shape.element_type.is_integer:
            value = generator.choice(np.array(edge_values(shape.element_type), object))
            drawn[n] = np.asarray(value, shape.element_type.numpy_dtype)


def _compared(
    got: Any, own_bounds: Any, expected: Any, bounds: Any, tilings: Sequence[Tiling], device: int
) -> Iterator[Comparison]:
    """Yield the comparison of each result of a device; the bounds of both programs are added."""
    leaves = list(flat(expected))
    columns = flat(got), _all(own_bounds, leaves), leaves, _all(bounds, leaves), tilings
    for n, (x, own_bound, y, bound, tiling) in enumerate(zip(*columns, strict=True)):
        if y is None:
            continue
        tile = tile_of(y, tiling, device)
        tile_bound = tile_of(np.broadcast_to(bound, np.shape(y)), tiling, device) + own_bound
        own = np.where(inside(np.shape(y), tiling, device), x, tile)
        yield from compare(own, tile, tile_bound, f"result {n} of device {device}")


def _all(bounds: Any, leaves: Sequence[Any]) -> list[Any]:
    """Return the bounds of all leaves; a single bound holds for each."""
    listed = list(flat(bounds))
    return listed if len(listed) == len(leaves) else listed * len(leaves)
