"""Meshes of programs, and texts of tilings and device groups in terms of mesh axes.

Axes are mappings from names to sizes, major axis first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from hloom.errors import HloError, plural
from hloom.ir.module import HloModule
from hloom.regex import regex
from hloom.sharding.reading.shardy import parse_meshes
from hloom.sharding.tiling.coordinates import Coordinate
from hloom.sharding.tiling.tiling import Tiling

_AXIS: Final = regex(r"\s*([\w.-]+)\s*=\s*([1-9]\d*)\s*")


def parse_mesh(text: str) -> dict[str, int]:
    """Parse a mesh such as ``x=4,y=2``; return the sizes of its axes by name.

    Raises HloError (rule ``mesh.notation``) for any other text.
    """
    axes: dict[str, int] = {}
    for part in text.split(","):
        axis = _AXIS.fullmatch(part)
        if axis is None or axis[1] in axes:
            raise HloError(f"expected axes such as x=4,y=2, got {text!r}", rule="mesh.notation")
        axes[axis[1]] = int(axis[2])
    return axes


def mesh_of(module: HloModule) -> dict[str, int]:
    """Return the axis sizes, by name, of a module's mesh with the most devices; empty if it has no mesh."""
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
    """Return a copy of a module whose mesh axes have the sizes in ``axes``, by name.

    Axes that ``axes`` lacks keep their sizes. Shardings by device ids, without a mesh, are unchanged.
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
    """Return the number of devices of a program: the product of the axis sizes in ``axes``.

    If ``axes`` is empty, returns the number of devices of the module's largest mesh or, if the module has no
    mesh, the ``num_partitions`` in its header.
    """
    if axes:
        return math.prod(axes.values())
    mesh = mesh_of(module)
    return math.prod(mesh.values()) if mesh else module.config.num_partitions


def axes_along(group: Sequence[int], axes: Mapping[str, int]) -> str:
    """Return the names of the mesh axes along which the devices of a group differ, joined by ``+``.

    ``group`` holds device ids, ``axes`` the sizes of the mesh axes, major first. Returns "" if ``axes`` is
    empty.
    """
    if not axes:
        return ""
    sizes = tuple(axes.values())
    within = np.asarray(group)[np.asarray(group) < math.prod(sizes)]
    indices = np.unravel_index(within, sizes)
    return "+".join(name for name, index in zip(axes, indices, strict=True) if np.unique(index).size > 1)


def coordinate_text(coordinate: Coordinate, axes: Mapping[str, int]) -> str:
    """Return the names of the mesh axes that shard a dimension, major first, joined by ``+``: ``data+model``.

    ``coordinate`` is the tile index of each device along the dimension, ``axes`` the sizes of the mesh axes.
    Sub-axes are written as in Shardy, ``a:(2)4``. If the dimension is not sharded over mesh axes, returns the
    number of tiles, such as ``4 tiles``.
    """
    names: list[str] = []
    covered = 1
    stride = math.prod(axes.values())
    bounds: list[tuple[str, int, int]] = []
    for name, size in axes.items():
        bounds.append((name, stride // size, stride))
        stride //= size
    for low, size in coordinate.digits:
        for name, start, end in bounds:
            first, last = max(low, start), min(low * size, end)
            if first < last and last % first == 0:
                is_axis = (first, last) == (start, end)
                names.append(name if is_axis else f"{name}:({end // last}){last // first}")
                covered *= last // first
    if not names or coordinate.listed or covered != coordinate.count:
        return f"{plural(coordinate.count, 'tile')}"
    return "+".join(names)


def tiling_text(tiling: Tiling, axes: Mapping[str, int]) -> str:
    """Return a text with the mesh axes that shard each dimension, such as ``[data, -]``.

    A replicated dimension is ``-``; the axes of partial sums follow. ``axes`` are the sizes of the mesh axes.
    If they are empty, or the tiling is not over axes of any mesh, returns the sharding in HLO's notation.
    """
    coordinates = [*tiling.coordinates, *((tiling.unreduced,) if tiling.unreduced is not None else ())]
    if not axes or any(coordinate.listed for coordinate in coordinates):
        return tiling.to_sharding().text(metadata=False)
    dimensions = [coordinate_text(c, axes) if c.count > 1 else "-" for c in tiling.coordinates]
    sums = (
        f", partial sums over {coordinate_text(tiling.unreduced, axes)}"
        if tiling.unreduced is not None
        else ""
    )
    return f"[{', '.join(dimensions)}]{sums}"
