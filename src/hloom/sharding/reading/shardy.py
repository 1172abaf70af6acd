"""Parsers of Shardy's notation, in which frontend attributes of HLO state meshes and shardings.

::

    xla.sdy.meshes      {mesh = #sdy.mesh<["a"=2, "b"=2]>}
    xla.sdy.sharding    #sdy.sharding_per_value<[<@mesh, [{"a", "b"}, {?}]>]>

A dimension lists its axes, major first; ``"a":(2)4`` is the sub-axis of size 4 of axis ``a`` with pre-size 2.
``?`` marks an open dimension, which propagation may shard further; a priority ``p1`` is ignored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from hloom.errors import HloError
from hloom.ir.device_groups import AxisRef, Mesh
from hloom.ir.named_sharding import DimensionSharding, NamedSharding
from hloom.regex import regex

_MESH: Final = regex(r'(\w+|"[^"]*")\s*=\s*#sdy\.mesh<\[([^\]]*)\](?:,\s*device_ids\s*=\s*\[([^\]]*)\])?>')
_AXIS: Final = regex(r'"([^"]+)"\s*=\s*(\d+)')
_VALUE: Final = regex(r"<@(\w+|\"[^\"]*\"),\s*\[((?:\{[^{}]*\}p?\d*(?:,\s*)?)*)\]([^<>]*)>")
_DIMENSION: Final = regex(r"\{([^{}]*)\}")
_UNREDUCED: Final = regex(r"unreduced=(\w*)\{([^{}]*)\}")
_REFERENCE: Final = regex(r'"([^"]+)"(?::\((\d+)\)(\d+))?')


def parse_meshes(text: str) -> dict[str, Mesh]:
    """Parse the module attribute ``xla.sdy.meshes``; return the declared meshes by name."""
    meshes: dict[str, Mesh] = {}
    for name, axes, devices in _MESH.findall(text):
        sizes = tuple((axis, int(size)) for axis, size in _AXIS.findall(axes))
        count = math.prod(size for _, size in sizes)
        numbers = tuple(int(n) for n in devices.split(","))[:count] if devices else None
        meshes[name.strip('"')] = Mesh.checked(sizes, numbers)
    return meshes


def parse_shardings(text: str, meshes: Mapping[str, Mesh]) -> list[NamedSharding]:
    """Parse ``#sdy.sharding_per_value<...>``; return a list with one sharding for each value.

    ``meshes`` are the declared meshes by name. Raises HloError (rule ``sharding.mesh``) if a mesh is not
    declared.
    """
    shardings: list[NamedSharding] = []
    for name, body, suffix in _VALUE.findall(text):
        mesh = meshes.get(name.strip('"'))
        if mesh is None:
            message = f"the sharding names the mesh {name}, the module has {', '.join(meshes) or 'none'}"
            raise HloError(message, rule="sharding.mesh")
        dimensions = tuple(
            DimensionSharding(_axes(axes, mesh), is_closed="?" not in axes)
            for axes in _DIMENSION.findall(body)
        )
        unreduced = _UNREDUCED.search(suffix)
        reduced_axes, reduction = (_axes(unreduced[2], mesh), unreduced[1]) if unreduced else ((), "")
        shardings.append(
            NamedSharding(mesh, dimensions, unreduced_axes=reduced_axes, reduction=reduction.upper() or "SUM")
        )
    return shardings


def _axes(text: str, mesh: Mesh) -> tuple[AxisRef, ...]:
    """Parse a list of axes and sub-axes such as ``"a", "b":(2)4``; return references to axes of ``mesh``."""
    number_of = {name: number for number, (name, _) in enumerate(mesh.axes)}
    return tuple(
        AxisRef(number_of[axis], (int(before), int(size)) if before else None)
        for axis, before, size in _REFERENCE.findall(text)
    )


def parse_axes(text: str) -> frozenset[str]:
    """Parse ``#sdy<manual_axes{"a", "b"}>``; return the names of the axes."""
    return frozenset(re.findall(r'"([^"]+)"', text))
