"""Shardings in Shardy's notation, as frontend attributes of HLO carry them.

::

    xla.sdy.meshes      {mesh = #sdy.mesh<["a"=2, "b"=2]>}
    xla.sdy.sharding    #sdy.sharding_per_value<[<@mesh, [{"a", "b"}, {?}]>]>

A dimension lists its axes, major first; ``"a":(2)4`` is the sub-axis of size 4 of axis ``a`` with pre-size 2.
``?`` marks an open dimension, which propagation may shard further; a priority ``p1`` is ignored.
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
from hloom.sharding.tiling.coordinates import Coordinate
from hloom.sharding.tiling.tiling import Tiling, not_a_sum

_MESH: Final = re.compile(
    r'(\w+|"[^"]*")\s*=\s*#sdy\.mesh<\[([^\]]*)\](?:,\s*device_ids\s*=\s*\[([^\]]*)\])?>'
)
_AXIS: Final = re.compile(r'"([^"]+)"\s*=\s*(\d+)')
_VALUE: Final = re.compile(r"<@(\w+|\"[^\"]*\"),\s*\[((?:\{[^{}]*\}p?\d*(?:,\s*)?)*)\]([^<>]*)>")
_DIMENSION: Final = re.compile(r"\{([^{}]*)\}")
_UNREDUCED: Final = re.compile(r"unreduced=(\w*)\{([^{}]*)\}")
_REFERENCE: Final = re.compile(r'"([^"]+)"(?::\((\d+)\)(\d+))?')

SubAxis: TypeAlias = "tuple[str, int, int]"
"""A sub-axis: the name of its axis, its pre-size, its size."""


@dataclass(frozen=True)
class ShardyMesh:
    """Devices in an array with named axes.

    Attributes:
        axes: the size of each axis, major first.
        devices: the devices in row-major order.
    """

    axes: Mapping[str, int]
    devices: tuple[int, ...]

    @cached_property
    def is_in_order(self) -> bool:
        """True if the device ids are 0, 1, ... in row-major order."""
        return self.devices == tuple(range(len(self.devices)))

    @cached_property
    def positions(self) -> dict[int, dict[str, int]]:
        """The index along each axis, by device and axis."""
        if not self.axes:
            return {}
        indices = np.ndindex(*self.axes.values())
        return {d: dict(zip(self.axes, n, strict=True)) for d, n in zip(self.devices, indices, strict=True)}

    def coordinate(self, parts: Sequence[SubAxis], devices: int) -> Coordinate:
        """Return the device coordinate along sub-axes, major first."""
        if self.is_in_order and len(self.devices) == devices:
            return Coordinate.along(
                [(self._stride(name, before, size), size) for name, before, size in parts], devices
            )
        return Coordinate.of([self._index(device, parts) for device in range(devices)])

    def _stride(self, name: str, before: int, size: int) -> int:
        """Return the distance of neighboring devices along a sub-axis."""
        names = list(self.axes)
        minor = math.prod(self.axes[other] for other in names[names.index(name) + 1 :])
        return minor * (self.axes[name] // (before * size))

    def _index(self, device: int, parts: Sequence[SubAxis]) -> int:
        positions = self.positions.get(device, {})
        index = 0
        for name, before, size in parts:
            minor = self.axes[name] // (before * size)
            index = index * size + positions.get(name, 0) // minor % size
        return index


def parse_meshes(text: str) -> dict[str, ShardyMesh]:
    """Return the meshes of a module's attribute, by name."""
    meshes: dict[str, ShardyMesh] = {}
    for name, axes, devices in _MESH.findall(text):
        sizes = {axis: int(size) for axis, size in _AXIS.findall(axes)}
        count = math.prod(sizes.values())
        numbers = tuple(int(n) for n in devices.split(",")) if devices else tuple(range(count))
        meshes[name.strip('"')] = ShardyMesh(sizes, numbers[:count] if sizes else ())
    return meshes


@dataclass(frozen=True, slots=True)
class MeshSharding:
    """The sharding of an array over a mesh.

    Attributes:
        mesh: the mesh.
        dimensions: the sub-axes of each dimension, major first.
        unreduced: sub-axes over which devices hold partial sums.
        open: dimensions that may be sharded further.
    """

    mesh: ShardyMesh
    dimensions: tuple[tuple[SubAxis, ...], ...]
    unreduced: tuple[SubAxis, ...] = ()
    open: frozenset[int] = frozenset()

    def tiling(self, rank: int, devices: int, only: Collection[str] | None = None) -> Tiling:
        """Convert to a tiling, restricted to some axes if ``only`` is given."""
        axes_of = [
            [part for part in axes if only is None or part[0] in only] for axes in self.dimensions[:rank]
        ]
        axes_of += [[] for _ in range(rank - len(axes_of))]
        unreduced = [part for part in self.unreduced if only is None or part[0] in only]
        return Tiling(
            tuple(math.prod(size for _, _, size in axes) for axes in axes_of),
            tuple(self.mesh.coordinate(axes, devices) for axes in axes_of),
            devices,
            self.mesh.coordinate(unreduced, devices) if unreduced else None,
        )


def parse_shardings(text: str, meshes: Mapping[str, ShardyMesh]) -> list[MeshSharding]:
    """Return the shardings of an attribute, one for each value.

    Raises HloError by the rule ``sharding.mesh`` for an unknown mesh, by ``sharding.reduction-sum`` for an
    unreduced value with another reduction than addition.
    """
    shardings: list[MeshSharding] = []
    for name, body, suffix in _VALUE.findall(text):
        mesh = meshes.get(name.strip('"'))
        if mesh is None:
            message = f"the sharding names the mesh {name}, the module has {', '.join(meshes) or 'none'}"
            raise HloError(message, rule="sharding.mesh")
        texts: list[str] = _DIMENSION.findall(body)
        dimensions = tuple(_parts(axes, mesh) for axes in texts)
        unreduced = _UNREDUCED.search(suffix)
        if unreduced and unreduced[1] not in ("", "sum"):
            raise not_a_sum(unreduced[1])
        unreduced_axes = _parts(unreduced[2], mesh) if unreduced else ()
        open_dimensions = frozenset(d for d, axes in enumerate(texts) if "?" in axes)
        shardings.append(MeshSharding(mesh, dimensions, unreduced_axes, open_dimensions))
    return shardings


def _parts(text: str, mesh: ShardyMesh) -> tuple[SubAxis, ...]:
    references = _REFERENCE.findall(text)
    return tuple((axis, int(before or 1), int(size or mesh.axes[axis])) for axis, before, size in references)


def parse_axes(text: str) -> frozenset[str]:
    """Return the axes of an attribute ``#sdy<manual_axes{"a", "b"}>``."""
    return frozenset(re.findall(r'"([^"]+)"', text))
