"""Sharding annotations of a program: values, manual regions, open parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.sharding import Sharding
from hloom.operations.custom_call import TO_GLOBAL, TO_LOCAL, CustomCall
from hloom.shape.shape import Shape
from hloom.sharding.planning.flow import Flow
from hloom.sharding.planning.propagation import Border, Propagation, Statement
from hloom.sharding.reading.preparation import sharding_groups
from hloom.sharding.reading.shardy import MeshSharding, ShardyMesh, parse_axes, parse_meshes, parse_shardings
from hloom.sharding.tiling.coordinates import Coordinate
from hloom.sharding.tiling.tiling import Tiling

Tilings: TypeAlias = "Tiling | tuple[Tilings, ...]"
"""The tiling of an array or a token, or the tilings of the elements of a tuple."""

_UNSPECIFIED: Final = re.compile(r"unspecified_dims=\[([\d, ]*)\]")


class Annotations:
    """The annotations of a program for a number of devices.

    Attributes:
        devices: the number of devices.
        meshes: the meshes of the module, by name.
    """

    def __init__(self, module: HloModule, devices: int) -> None:
        self.devices = devices
        self.meshes: Mapping[str, ShardyMesh] = parse_meshes(
            module.config.frontend_attributes.get("xla.sdy.meshes", "")
        )
        self._open = module.config.allow_spmd_sharding_propagation_to_parameters

    def tilings(self, i: HloInstruction, shape: Shape) -> Tilings | None:
        """Return the annotated tilings of a value of a global shape; None without an annotation."""
        text = (i.frontend_attributes or {}).get("xla.sdy.sharding")
        if text and not shape.is_tuple:
            shardings = parse_shardings(text, self.meshes)
            if shardings:
                return shardings[0].tiling(rank_of(shape), self.devices)
        if i.sharding is None:
            return None
        elements = iter(i.sharding.elements) if i.sharding.kind == "tuple" else None

        def tiling(leaf: Shape) -> Tiling:
            sharding: Sharding | None = i.sharding if elements is None else next(elements, None)
            return Tiling.of(sharding, rank_of(leaf), self.devices)

        return for_each_leaf(shape, tiling)

    def is_open(self, parameter: int, shape: Shape) -> bool:
        """Return true if propagation may shard a parameter of the entry.

        The module permits it for each parameter, or for all.
        """
        allowed = self._open if len(self._open) > 1 else self._open * (parameter + 1)
        return shape.is_array and parameter < len(allowed) and allowed[parameter]

    def manual(self, i: HloInstruction, key: str) -> tuple[frozenset[str], list[MeshSharding]]:
        """Return the manual axes of a region, and the shardings of its operands or results."""
        attributes = i.frontend_attributes or {}
        axes = parse_axes(attributes.get("xla.sdy.manual_axes", ""))
        return axes, parse_shardings(attributes.get(key, ""), self.meshes)

    def region_coordinates(
        self, shardings: Sequence[MeshSharding], axes: frozenset[str]
    ) -> tuple[Coordinate, ...]:
        """Return the device coordinates along the axes of a manual region."""
        if not shardings:
            return ()
        mesh = shardings[0].mesh
        return tuple(
            mesh.coordinate([(axis, 1, mesh.axes[axis])], self.devices) for axis in axes if axis in mesh.axes
        )

    def open_dimensions(self, i: HloInstruction) -> frozenset[int]:
        """Return the open dimensions of an annotation, which the partitioner may shard further.

        Named shardings mark them by ``?``, calls of ``Sharding`` by ``unspecified_dims``.
        """
        text = (i.frontend_attributes or {}).get("xla.sdy.sharding")
        if text:
            shardings = parse_shardings(text, self.meshes)
            return shardings[0].open if shardings else frozenset()
        if i.sharding is not None and i.sharding.named is not None:
            return frozenset(d for d, axes in enumerate(i.sharding.named.dimensions) if not axes.is_closed)
        listed = _UNSPECIFIED.search(str(i.backend_config)) if isinstance(i.operation, CustomCall) else None
        return frozenset(map(int, re.findall(r"\d+", listed[1]))) if listed is not None else frozenset()

    def leaves(self, i: HloInstruction) -> Iterator[Statement]:
        """Yield the annotated tilings of an instruction: of an array, or of the sharded elements of a tuple.

        The results of a manual region are annotated along its manual axes; other dimensions are open.
        """
        if isinstance(i.operation, CustomCall) and i.operation.custom_call_target == TO_GLOBAL:
            yield from self._region_results(i)
            return
        tilings = self.tilings(i, i.shape)
        if tilings is None:
            return
        pairs = zip(i.shape.leaves(), leaves_of(tilings), strict=True)
        for (index, leaf), tiling in pairs:
            if leaf.is_array and (not index or not tiling.is_replicated):
                yield Statement((i, index), tiling, frozenset() if index else self.open_dimensions(i))

    def _region_results(self, i: HloInstruction) -> Iterator[Statement]:
        axes, shardings = self.manual(i, "xla.sdy.out_shardings")
        for (index, leaf), sharding in zip(i.shape.leaves(), shardings, strict=True):
            tiling = sharding.tiling(rank_of(leaf), self.devices, axes)
            if leaf.is_array and not tiling.is_replicated:
                replicated = frozenset(d for d in range(leaf.rank) if not tiling.is_sharded(d))
                yield Statement((i, index), tiling, replicated)

    def borders(self, instructions: Iterable[HloInstruction]) -> dict[HloInstruction, Border]:
        """Return the borders of manual regions, by call."""
        keys = {TO_LOCAL: "xla.sdy.in_shardings", TO_GLOBAL: "xla.sdy.out_shardings"}
        borders: dict[HloInstruction, Border] = {}
        for i in instructions:
            if isinstance(i.operation, CustomCall) and (key := keys.get(i.operation.custom_call_target)):
                axes, shardings = self.manual(i, key)
                ranks = (rank_of(operand.shape) for operand in i.operands)
                pairs = zip(shardings, ranks, strict=True)
                manual = tuple(sharding.tiling(rank, self.devices, axes) for sharding, rank in pairs)
                borders[i] = Border(manual, self.region_coordinates(shardings, axes))
        return borders

    def region_operands(self, instructions: Iterable[HloInstruction]) -> dict[HloInstruction, Tiling]:
        """Return the tilings along manual axes of the arrays that enter manual regions."""
        tilings: dict[HloInstruction, Tiling] = {}
        for i in instructions:
            if isinstance(i.operation, CustomCall) and i.operation.custom_call_target == TO_LOCAL:
                axes, shardings = self.manual(i, "xla.sdy.in_shardings")
                for operand, sharding in zip(i.operands, shardings, strict=True):
                    if operand.shape.is_array:
                        tilings.setdefault(operand, sharding.tiling(operand.shape.rank, self.devices, axes))
        return tilings


def propagated(module: HloModule, annotations: Annotations) -> tuple[Propagation, list[HloInstruction]]:
    """Propagate the annotations of a program; return also the members of its sharding groups.

    Parameters are replicated by default, except in a value class with others: to slice the initial value of a
    loop sends nothing.
    """
    groups = sharding_groups(module.computations)
    flow = Flow(module.entry, groups)
    replicated = [
        Statement((p, ()), Tiling.replicated(p.shape.rank, annotations.devices))
        for number, p in enumerate(module.entry.parameters)
        if p.shape.is_array and not annotations.is_open(number, p.shape) and not flow.is_merged(p)
    ]
    annotated = [statement for i in flow.instructions for statement in annotations.leaves(i)]
    preferred = annotations.region_operands(flow.instructions)
    borders = annotations.borders(flow.instructions)
    propagation = Propagation(flow, [*annotated, *replicated], preferred, borders, annotations.devices)
    return propagation, [i for group in groups for i in group]


def for_each_leaf(shape: Shape, function: Callable[[Shape], Tiling]) -> Tilings:
    """Return the tilings that a function gives for the leaves of a shape."""
    if shape.is_tuple:
        return tuple(for_each_leaf(part, function) for part in shape.tuple_shapes)
    return function(shape)


def leaves_of(tilings: Tilings) -> list[Tiling]:
    """Return the tilings of all leaves."""
    if isinstance(tilings, Tiling):
        return [tilings]
    return [leaf for part in tilings for leaf in leaves_of(part)]


def rank_of(shape: Shape) -> int:
    """Return the rank of an array; 0 for other shapes."""
    return shape.rank if shape.is_array else 0
