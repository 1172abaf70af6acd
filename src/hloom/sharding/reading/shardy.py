"""Shardings in Shardy's notation, as frontend attributes of HLO carry them.

::

    xla.sdy.meshes      {mesh = #sdy.mesh<["a"=2, "b"=2]>}
    xla.sdy.sharding    #sdy.sharding_per_value<[<@mesh, [{"a", "b"}, {?}]>]>

A dimension lists the axes that cut it, major first; ``"a":(2)4`` is the part of size 4 of axis ``a`` behind
its first 2. ``?`` lets a partitioner cut further; ``p1`` is a priority, which is ignored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from hloom.errors import HloError
from hloom.sharding.tiling.coordinates import Column
from hloom.sharding.tiling.tiling import Tiling, not_a_sum

_MESH: Final = re.compile(
    r'(\w+|"[^"]*")\s*=\s*#sdy\.mesh<\[([^\]]*)\](?:,\s*device_ids\s*=\s*\[([^\]]*)\])?>'
)
_AXIS: Final = re.compile(r'"([^"]+)"\s*=\s*(\d+)')
_VALUE: Final = re.compile(r"<@(\w+|\"[^\"]*\"),\s*\[((?:\{[^{}]*\}p?\d*(?:,\s*)?)*)\]([^<>]*)>")
_DIMENSION: Final = re.compile(r"\{([^{}]*)\}")
_UNREDUCED: Final = re.compile(r"unreduced=(\w*)\{([^{}]*)\}")
_REFERENCE: Final = re.compile(r'"([^"]+)"(?::\((\d+)\)(\d+))?')

AxisPart: TypeAlias = "tuple[str, int, int]"
"""A part of an axis: its name, the size of what is before the part, the size of the part."""


@dataclass(frozen=True)
class Mesh:
    """Devices in an array with named axes.

    Attributes:
        axes: the size of each axis, major first.
        devices: the devices in row-major order.
    """

    axes: Mapping[str, int]
    devices: tuple[int, ...]

    @cached_property
    def is_in_order(self) -> bool:
        """True if the devices are numbered from 0 in row-major order."""
        return self.devices == tuple(range(len(self.devices)))

    @cached_property
    def coordinates(self) -> dict[int, dict[str, int]]:
        """The index along each axis, by device."""
        if not self.axes:
            return {}
        places = np.ndindex(*self.axes.values())
        return {d: dict(zip(self.axes, p, strict=True)) for d, p in zip(self.devices, places, strict=True)}

    def column(self, parts: Sequence[AxisPart], devices: int) -> Column:
        """Return the places of devices along parts of axes, the first of which is the major one."""
        if self.is_in_order and len(self.devices) == devices:
            return Column.along(
                [(self._stride(name, before, size), size) for name, before, size in parts], devices
            )
        return Column.of([self._index(device, parts) for device in range(devices)])

    def _stride(self, name: str, before: int, size: int) -> int:
        """Return the distance of devices that are neighbours along a part of an axis."""
        names = list(self.axes)
        behind = math.prod(self.axes[other] for other in names[names.index(name) + 1 :])
        return behind * (self.axes[name] // (before * size))

    def _index(self, device: int, parts: Sequence[AxisPart]) -> int:
        coordinates = self.coordinates.get(device, {})
        index = 0
        for name, before, size in parts:
            behind = self.axes[name] // (before * size)
            index = index * size + coordinates.get(name, 0) // behind % size
        return index


def parse_meshes(text: str) -> dict[str, Mesh]:
    """Return the meshes of a module's attribute, by name."""
    meshes: dict[str, Mesh] = {}
    for name, axes, devices in _MESH.findall(text):
        sizes = {axis: int(size) for axis, size in _AXIS.findall(axes)}
        count = math.prod(sizes.values())
        numbers = tuple(int(n) for n in devices.split(",")) if devices else tuple(range(count))
        meshes[name.strip('"')] = Mesh(sizes, numbers[:count] if sizes else ())
    return meshes


@dataclass(frozen=True, slots=True)
class MeshSharding:
    """The sharding of an array in terms of mesh axes.

    Attributes:
        mesh: the mesh.
        dimensions: for each dimension its axes, as name, size of what is before the part, size of the part.
        unreduced: axes along which devices hold summands.
        open: dimensions that may be cut further.
    """

    mesh: Mesh
    dimensions: tuple[tuple[AxisPart, ...], ...]
    unreduced: tuple[AxisPart, ...] = ()
    open: frozenset[int] = frozenset()

    def tiling(self, rank: int, devices: int, only: Collection[str] | None = None) -> Tiling:
        """Return the tiling, over some of the axes if ``only`` is given."""
        kept = [[part for part in axes if only is None or part[0] in only] for axes in self.dimensions[:rank]]
        kept += [[] for _ in range(rank - len(kept))]
        tiles = tuple(math.prod(size for _, _, size in axes) for axes in kept)
        summed = [part for part in self.unreduced if only is None or part[0] in only]
        return Tiling(
            tiles,
            tuple(self.mesh.column(axes, devices) for axes in kept),
            devices,
            self.mesh.column(summed, devices) if summed else None,
        )


def parse_shardings(text: str, meshes: Mapping[str, Mesh]) -> list[MeshSharding]:
    """Return the shardings of an attribute, one for each value.

    Raises HloError by the rule ``sharding.mesh`` for an unknown mesh, by ``sharding.reduction-sum`` for
    partial values that are combined otherwise than by addition.
    """
    found: list[MeshSharding] = []
    for name, body, rest in _VALUE.findall(text):
        mesh = meshes.get(name.strip('"'))
        if mesh is None:
            message = f"the sharding names the mesh {name}, the module has {', '.join(meshes) or 'none'}"
            raise HloError(message, rule="sharding.mesh")
        texts: list[str] = _DIMENSION.findall(body)
        dimensions = tuple(_parts(axes, mesh) for axes in texts)
        unreduced = _UNREDUCED.search(rest)
        if unreduced and unreduced[1] not in ("", "sum"):
            raise not_a_sum(unreduced[1])
        summed = _parts(unreduced[2], mesh) if unreduced else ()
        open_dimensions = frozenset(d for d, axes in enumerate(texts) if "?" in axes)
        found.append(MeshSharding(mesh, dimensions, summed, open_dimensions))
    return found


def _parts(text: str, mesh: Mesh) -> tuple[AxisPart, ...]:
    references = _REFERENCE.findall(text)
    return tuple((axis, int(before or 1), int(size or mesh.axes[axis])) for axis, before, size in references)


def parse_axes(text: str) -> frozenset[str]:
    """Return the axes of an attribute ``#sdy<manual_axes{"a", "b"}>``."""
    return frozenset(re.findall(r'"([^"]+)"', text))
