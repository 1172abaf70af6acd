"""Meshes of programs: how many devices a program is written for, and the names of groups of them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.sharding.reading.shardy import parse_meshes
from hloom.sharding.tiling.coordinates import Column
from hloom.sharding.tiling.tiling import Tiling

_AXIS: Final = re.compile(r"\s*([\w.-]+)\s*=\s*([1-9]\d*)\s*")


def parse_mesh(text: str) -> dict[str, int]:
    """Return the axes of ``x=4,y=2``; raises HloError by the rule ``mesh.notation``."""
    axes: dict[str, int] = {}
    for part in text.split(","):
        found = _AXIS.fullmatch(part)
        if found is None or found[1] in axes:
            raise HloError(f"expected axes such as x=4,y=2, got {text!r}", rule="mesh.notation")
        axes[found[1]] = int(found[2])
    return axes


def mesh_of(module: HloModule) -> dict[str, int]:
    """Return the axes of the largest mesh that a program states; none if it states none."""
    meshes = [
        dict(mesh.axes)
        for mesh in parse_meshes(module.config.frontend_attributes.get("xla.sdy.meshes", "")).values()
    ]
    for i in module.instructions():
        named = i.sharding.named if i.sharding is not None else None
        if named is not None and named.mesh.device_ids is None:
            meshes.append(dict(named.mesh.axes))
    return max(meshes, key=lambda axes: math.prod(axes.values()), default=dict[str, int]())


def resized(module: HloModule, axes: Mapping[str, int]) -> HloModule:
    """Return a copy of a program whose meshes have other sizes of the named axes.

    A program without meshes of such names states its shardings by numbers of devices, and stays as it is.
    """
    from hloom.ir.cloning import clone_module

    copy = clone_module(module)
    key = "xla.sdy.meshes"
    text = copy.config.frontend_attributes.get(key, "")
    for name, size in axes.items():
        text = re.sub(rf'"{re.escape(name)}"\s*=\s*\d+', f'"{name}"={size}', text)
    if text:
        copy.config.frontend_attributes = {**copy.config.frontend_attributes, key: text}
    return copy


def device_count(module: HloModule, axes: Mapping[str, int]) -> int:
    """Return the number of devices: of the given axes, of the program's mesh, or as its header states."""
    if axes:
        return math.prod(axes.values())
    own = mesh_of(module)
    return math.prod(own.values()) if own else module.config.num_partitions


def axes_along(group: Sequence[int], axes: Mapping[str, int]) -> str:
    """Return the axes in which the devices of a group differ, joined by ``+``; "" without a mesh."""
    if not axes:
        return ""
    sizes = tuple(axes.values())
    within = np.asarray(group)[np.asarray(group) < math.prod(sizes)]
    places = np.unravel_index(within, sizes)
    return "+".join(name for name, place in zip(axes, places, strict=True) if np.unique(place).size > 1)


def cut_text(column: Column, axes: Mapping[str, int]) -> str:
    """Return the axes of a cut, joined by ``+``, major first; ``a:(2)4`` is a part of an axis, as in Shardy.

    Without such axes it is the number of tiles.
    """
    found: list[str] = []
    covered = 1
    stride = math.prod(axes.values())
    bounds: list[tuple[str, int, int]] = []
    for name, size in axes.items():
        bounds.append((name, stride // size, stride))
        stride //= size
    for low, size in column.digits:
        for name, start, end in bounds:
            first, last = max(low, start), min(low * size, end)
            if first < last and last % first == 0:
                whole = (first, last) == (start, end)
                found.append(name if whole else f"{name}:({end // last}){last // first}")
                covered *= last // first
    if not found or column.listed or covered != column.count:
        return f"{column.count} tiles"
    return "+".join(found)


def tiling_text(tiling: Tiling, axes: Mapping[str, int]) -> str:
    """Return the cut of each dimension, such as ``[data, -]``; in HLO's notation without axes."""
    columns = [*tiling.columns, *((tiling.summands,) if tiling.summands is not None else ())]
    if not axes or any(column.listed for column in columns):
        return tiling.to_sharding().text(metadata=False)
    cuts = [cut_text(c, axes) if c.count > 1 else "-" for c in tiling.columns]
    summed = f", summands over {cut_text(tiling.summands, axes)}" if tiling.summands is not None else ""
    return f"[{', '.join(cuts)}]{summed}"
