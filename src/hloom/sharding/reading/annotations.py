"""Tilings from the sharding annotations of values and manual regions.

Also reads which dimensions and entry parameters are open, that is, which propagation may shard further.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from hloom.analysis.instructions import operation_of
from hloom.ir.device_groups import AxisRef
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.named_sharding import NamedSharding
from hloom.ir.sharding import Sharding
from hloom.operations.custom_call import TO_GLOBAL, TO_LOCAL, CustomCall
from hloom.regex import regex
from hloom.shape.shape import Shape
from hloom.sharding.planning.propagation import Border, Propagation, Statement
from hloom.sharding.planning.value_classes import ValueClasses
from hloom.sharding.reading.preparation import sharding_groups
from hloom.sharding.reading.shardy import parse_axes, parse_meshes, parse_shardings
from hloom.sharding.tiling.tiling import Tiling, coordinate_in_mesh

Tilings: TypeAlias = "Tiling | tuple[Tilings, ...]"
"""The tiling of an array or a token, or those of the elements of a tuple, nested like its shape."""

_UNSPECIFIED: Final = regex(r"unspecified_dims=\[([\d, ]*)\]")
_BORDER_SHARDINGS: Final = {TO_LOCAL: "xla.sdy.in_shardings", TO_GLOBAL: "xla.sdy.out_shardings"}
"""The frontend attribute that states the shardings at a border of a manual region, by call target."""


class Annotations:
    """The sharding annotations of a module, read as tilings over a number of devices.

    Attributes:
        devices: the number of devices.
        meshes: the meshes that the module declares, by name.
    """

    def __init__(self, module: HloModule, devices: int) -> None:
        self.devices = devices
        self.meshes = parse_meshes(module.config.frontend_attributes.get("xla.sdy.meshes", ""))
        self._open = module.config.allow_spmd_sharding_propagation_to_parameters

    def tilings(self, i: HloInstruction) -> Tilings | None:
        """Return the annotated tiling of a value, nested for a tuple; None for a value without annotation.

        The shape of the instruction must be global, as before partitioning.
        """
        shardings = self._shardy(i, "xla.sdy.sharding")
        if shardings and not i.shape.is_tuple:
            return Tiling.of_named(shardings[0], rank_of(i.shape), self.devices)
        if i.sharding is None:
            return None
        elements = iter(i.sharding.elements) if i.sharding.kind == "tuple" else None

        def tiling(leaf: Shape) -> Tiling:
            sharding: Sharding | None = i.sharding if elements is None else next(elements, None)
            return Tiling.of(sharding, rank_of(leaf), self.devices)

        return for_each_leaf(i.shape, tiling)

    def _shardy(self, i: HloInstruction, key: str) -> list[NamedSharding]:
        """Return the shardings in the frontend attribute ``key`` of an instruction, one per value.

        The attribute is in Shardy's notation. Returns an empty list if the instruction lacks it.
        """
        return parse_shardings((i.frontend_attributes or {}).get(key, ""), self.meshes)

    def is_open(self, parameter: int, shape: Shape) -> bool:
        """Return true if the module allows propagation to shard an entry parameter that has no annotation.

        The module has one flag per parameter, or one for all. ``parameter`` is the parameter number,
        ``shape`` its shape; returns false for a tuple or token.
        """
        allowed = self._open if len(self._open) > 1 else self._open * (parameter + 1)
        return shape.is_array and parameter < len(allowed) and allowed[parameter]

    def open_dimensions(self, i: HloInstruction) -> frozenset[int]:
        """Return the dimensions of an annotated array that propagation may shard further.

        A named sharding marks them by ``?``, a ``Sharding`` custom call by ``unspecified_dims``.
        """
        named = i.sharding.named if i.sharding is not None else None
        for sharding in self._shardy(i, "xla.sdy.sharding")[:1]:
            named = sharding
        if named is not None:
            return frozenset(d for d, sharding in enumerate(named.dimensions) if not sharding.is_closed)
        listed = _UNSPECIFIED.search(str(i.backend_config)) if isinstance(i.operation, CustomCall) else None
        return frozenset(map(int, re.findall(r"\d+", listed[1]))) if listed is not None else frozenset()

    def statements(self, i: HloInstruction) -> Iterator[Statement]:
        """Yield a `Statement` (tiling and open dimensions) for each array that ``i`` annotates.

        For a tuple, elements annotated as replicated are left out. The results of a manual region count as
        annotated with their tiling along the region's manual axes; propagation may shard their other
        dimensions.
        """
        if isinstance(i.operation, CustomCall) and i.operation.custom_call_target == TO_GLOBAL:
            for (index, leaf), tiling in zip(i.shape.leaves(), self.border(i).manual, strict=True):
                if leaf.is_array and not tiling.is_replicated:
                    replicated = frozenset(d for d in range(leaf.rank) if not tiling.is_sharded(d))
                    yield Statement((i, index), tiling, replicated)
            return
        tilings = self.tilings(i)
        if tilings is None:
            return
        for (index, leaf), tiling in zip(i.shape.leaves(), leaves_of(tilings), strict=True):
            if leaf.is_array and (not index or not tiling.is_replicated):
                yield Statement((i, index), tiling, frozenset() if index else self.open_dimensions(i))

    def border(self, call: HloInstruction) -> Border:
        """Return the tilings and manual axes that a call at the border of a manual region states.

        A manual region is code on local shapes, as in ``shard_map``. ``call`` is a custom call to `TO_LOCAL`,
        which enters the region, or to `TO_GLOBAL`, which leaves it.
        """
        target = operation_of(call, CustomCall).custom_call_target
        shardings = self._shardy(call, _BORDER_SHARDINGS[target])
        axes = parse_axes((call.frontend_attributes or {}).get("xla.sdy.manual_axes", ""))
        manual = tuple(
            Tiling.of_named(sharding, rank_of(operand.shape), self.devices, axes)
            for sharding, operand in zip(shardings, call.operands, strict=True)
        )
        coordinates = tuple(
            coordinate_in_mesh(sharding.mesh, [AxisRef(number)], self.devices)
            for sharding in shardings[:1]
            for number, (axis, _) in enumerate(sharding.mesh.axes)
            if axis in axes
        )
        return Border(target == TO_LOCAL, manual, coordinates)

    def borders(self, instructions: Iterable[HloInstruction]) -> dict[HloInstruction, Border]:
        """Return a `Border` for each call that enters or leaves a manual region, such as a ``shard_map``.

        The keys are the calls.
        """
        return {
            i: self.border(i)
            for i in instructions
            if isinstance(i.operation, CustomCall) and i.operation.custom_call_target in _BORDER_SHARDINGS
        }


def propagated(module: HloModule, annotations: Annotations) -> tuple[Propagation, set[HloInstruction]]:
    """Propagate the annotations of a module; return the resulting tilings, and members of sharding groups.

    The second result has the members of all groups. Entry parameters without annotation are replicated,
    except those that propagation may shard: parameters that the module leaves open, and parameters that must
    have the tiling of a loop's state, a conditional or a sharding group.
    """
    groups = sharding_groups(module.computations)
    value_classes = ValueClasses(module.entry, groups)
    replicated = [
        Statement((p, ()), Tiling.replicated(p.shape.rank, annotations.devices))
        for number, p in enumerate(module.entry.parameters)
        if p.shape.is_array and not annotations.is_open(number, p.shape) and not value_classes.is_merged(p)
    ]
    annotated = [statement for i in value_classes.instructions for statement in annotations.statements(i)]
    borders = annotations.borders(value_classes.instructions)
    propagation = Propagation(value_classes, [*annotated, *replicated], borders, annotations.devices)
    return propagation, {i for group in groups for i in group}


def for_each_leaf(shape: Shape, function: Callable[[Shape], Tiling]) -> Tilings:
    """Apply ``function`` to each array or token in a shape; return the results nested like the shape."""
    if shape.is_tuple:
        return tuple(for_each_leaf(part, function) for part in shape.tuple_shapes)
    return function(shape)


def leaves_of(tilings: Tilings) -> list[Tiling]:
    """Return the tilings in a nested tuple as a flat list, in depth-first order."""
    if isinstance(tilings, Tiling):
        return [tilings]
    return [leaf for part in tilings for leaf in leaves_of(part)]


def rank_of(shape: Shape) -> int:
    """Return the rank of an array shape; 0 for a tuple or token."""
    return shape.rank if shape.is_array else 0
