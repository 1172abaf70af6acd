"""Random shardings of a program over a device mesh."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hloom.fuzzing.generators.case import Case, as_case
from hloom.fuzzing.generators.draw import Draw
from hloom.ir.cloning import clone_module
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.sharding import Sharding
from hloom.shape.shape import Shape
from hloom.sharding.tiling.coordinates import coordinate_along
from hloom.sharding.tiling.tiling import Tiling

MESHES = ((4,), (2, 2), (1, 4), (2,))
KEPT = 0.3
"""The share of mesh axes that cut no dimension of an array, among those that may."""


def retargeted(module: HloModule, mesh: Sequence[int], seed: int, added: float = 0.0) -> HloModule:
    """Return a copy of a program whose shardings are random tilings over a device mesh.

    Args:
        module: the program.
        mesh: the sizes of the mesh axes.
        seed: the seed of the random choices.
        added: the probability that an instruction without a sharding gets one.
    """
    copy = clone_module(module)
    random = np.random.default_rng(seed)
    copy.config.num_partitions = math.prod(mesh)
    for i in copy.instructions():
        if i.sharding is not None or (_may_state(i) and random.random() < added):
            i.sharding = _random(i.shape, mesh, random)
    return copy


def sharded(case: Case, seed: int) -> Case:
    """Return a case with random shardings, on four partitions that have all arguments and results whole."""
    draw = Draw(seed, "sharding", case.name)
    mesh = draw.one(MESHES)
    module = retargeted(case.module, mesh, draw.integer(0, 1 << 30), draw.one([0.1, 0.3, 0.6]))
    entry = module.entry
    for i in (*entry.parameters, entry.root):
        i.sharding = None
    for result in entry.root.operands:
        if result.shape.is_array:
            result.sharding = Sharding.replicated()
    return replace(as_case(module, case.arguments, case), partitions=math.prod(mesh), folded=False)


def _may_state(i: HloInstruction) -> bool:
    return i.shape.is_array and bool(i.shape.dimensions)


def _random(shape: Shape, mesh: Sequence[int], random: np.random.Generator) -> Sharding:
    if shape.is_tuple:
        leaves = [leaf for _, leaf in shape.leaves()]
        return replace(
            Sharding.replicated(), kind="tuple", elements=tuple(_random(s, mesh, random) for s in leaves)
        )
    rank = shape.rank if shape.is_array else 0
    cuts: list[list[int]] = [[] for _ in range(rank)]
    for axis in random.permutation(len(mesh)).tolist():
        if rank and random.random() > KEPT:
            cuts[int(random.integers(rank))].append(axis)
    tiles = tuple(math.prod(mesh[axis] for axis in axes) for axes in cuts)
    coordinates = tuple(coordinate_along(axes, mesh) for axes in cuts)
    return Tiling(tiles, coordinates, math.prod(mesh)).to_sharding()
