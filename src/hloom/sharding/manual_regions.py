"""Manual regions: which cuts values keep at their borders beside those of the manual axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hloom.shape.shape import Shape
from hloom.sharding.columns import Column, are_independent
from hloom.sharding.tiling import Tiling


def kept_cuts(have: Tiling, manual: Tiling, shape: Shape, fixed: Sequence[Column]) -> Tiling:
    """Return the cuts of a value along axes that are not manual, which it keeps inside of a region.

    A cut is kept if its dimension is not cut by a manual axis, its tiles divide the array evenly, and the
    devices at each place of the manual axes have all of its tiles.

    Args:
        have: the tiling of the value.
        manual: its tiling along the manual axes.
        shape: its shape outside of the region.
        fixed: the places of the devices along the manual axes.
    """
    kept = Tiling.replicated(len(manual.tiles), have.devices)
    if have.summands is not None or manual.summands is not None:
        return kept
    for d, tiles in enumerate(have.tiles):
        column = have.column(d)
        if tiles == 1 or manual.cuts(d) or shape.dimensions[d] % tiles:
            continue
        others = [kept.column(e) for e in range(len(kept.tiles)) if e != d]
        if are_independent([*fixed, *others, column]):
            columns = (*kept.columns[:d], column, *kept.columns[d + 1 :])
            kept = Tiling((*kept.tiles[:d], tiles, *kept.tiles[d + 1 :]), columns, kept.devices)
    return kept


def united(manual: Tiling, kept: Tiling) -> Tiling:
    """Return the tiling with the cuts of both, which are of different dimensions."""
    pairs = list(zip(manual.tiles, kept.tiles, strict=True))
    columns = [manual.column(d) if m > 1 else kept.column(d) for d, (m, _) in enumerate(pairs)]
    return replace(manual, tiles=tuple(m * k for m, k in pairs), columns=tuple(columns))
