"""Reshardings: the bytes that they send, and their values, for all placements of axes."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from hloom.ir.module import HloModule
from hloom.sharding import report
from tests import agreement
from tests.sharding.runs import run_partitioned

Placement = tuple[tuple[str, ...], ...]
"""For each dimension the axes that cut it, major first."""


def placements(axes: Sequence[str], rank: int) -> list[Placement]:
    """Return all ways to cut an array over all axes."""
    found: dict[Placement, None] = {}
    for order in itertools.permutations(axes):
        for dimensions in itertools.product(range(rank), repeat=len(axes)):
            cuts: list[list[str]] = [[] for _ in range(rank)]
            for axis, d in zip(order, dimensions, strict=True):
                cuts[d].append(axis)
            found[tuple(map(tuple, cuts))] = None
    return list(found)


def annotated(placement: Placement) -> str:
    cuts = ", ".join("{" + ", ".join(f'\\"{axis}\\"' for axis in axes) + "}" for axes in placement)
    return f'frontend_attributes={{xla.sdy.sharding="#sdy.sharding<@mesh, [{cuts}]>"}}'


def resharding(
    mesh: Mapping[str, int], extents: Sequence[int], have: Placement, want: Placement
) -> HloModule:
    """Return a program whose argument is cut in one way, and whose result in another."""
    axes = ", ".join(f'"{axis}"={size}' for axis, size in mesh.items())
    shape = f"f32[{','.join(map(str, extents))}]"
    return HloModule.from_text(f"""HloModule m, frontend_attributes={{
      xla.sdy.meshes={{mesh = #sdy.mesh<[{axes}]>}}}}
    ENTRY e {{ x = {shape} parameter(0), {annotated(have)}
      ROOT y = {shape} negate(x), {annotated(want)} }}""")


@pytest.mark.parametrize("mesh", [{"x": 4, "y": 2}, {"x": 2, "y": 3}, {"x": 64, "y": 8}, {"x": 16, "y": 16}])
def test_no_resharding_gathers_what_it_cuts_again(mesh: dict[str, int]) -> None:
    """Every device sends less than two tiles, whichever way two axes go; a full gather sends all others."""
    extents = [1536, 1536, 1536]
    tile = math.prod(extents) * 4 // math.prod(mesh.values())
    for have, want in itertools.permutations(placements(list(mesh), 3), 2):
        found = report(resharding(mesh, extents, have, want))
        assert found.bytes_per_step < 2 * tile, (have, want)


def test_three_axes_in_any_order() -> None:
    mesh = {"x": 2, "y": 2, "z": 2}
    pairs = list(itertools.permutations(placements(list(mesh), 2), 2))
    random.Random(0).shuffle(pairs)
    for have, want in pairs[:150]:
        found = report(resharding(mesh, [16, 16], have, want))
        assert found.bytes_per_step < 2 * 16 * 16 * 4 // 8, (have, want)


@pytest.mark.parametrize("mesh", [{"x": 4, "y": 2}, {"x": 2, "y": 3}, {"x": 2, "y": 2, "z": 2}])
def test_values_are_those_of_one_device(mesh: dict[str, int]) -> None:
    extents = (12, 24, 48)
    x = np.arange(math.prod(extents), dtype=np.float32).reshape(extents)
    pairs = list(itertools.permutations(placements(list(mesh), 3), 2))
    random.Random(1).shuffle(pairs)
    for have, want in pairs[:40]:
        _, (found,) = run_partitioned(resharding(mesh, extents, have, want), math.prod(mesh.values()), [x])
        agreement.equal(found, -x)


def test_data_movement_from_two_dimensions_to_one() -> None:
    """The program of github.com/jax-ml/jax/issues/21562: XLA gathers everything, 14,336 bytes a device."""
    mesh = {"x": 4, "y": 2}
    first, second = (annotated(p) for p in ((("y",), (), ("x",)), ((), ("x", "y"), ())))
    axes = ", ".join(f'"{axis}"={size}' for axis, size in mesh.items())
    module = HloModule.from_text(f"""HloModule m, frontend_attributes={{
      xla.sdy.meshes={{mesh = #sdy.mesh<[{axes}]>}}}}
    ENTRY e {{ a = f32[16,16,16] parameter(0), {first}
      b = f32[16,16,16] parameter(1), {first}
      c = f32[16,16,16] parameter(2), {second}
      d = f32[16,16,16] add(a, b)
      e = f32[16,16,16] custom-call(d), custom_call_target="Sharding", {second}
      ROOT r = f32[16,16,16] add(c, e), {second} }}""")
    found = report(module)
    tile = 16**3 * 4 // 8
    assert [row.opcode for row in found.collectives] == ["all-to-all", "all-to-all"]
    assert found.bytes_per_step == tile * 3 // 4 + tile // 2 == 2560
    given = [np.arange(16**3, dtype=np.float32).reshape(16, 16, 16) * n for n in (1, 2, 3)]
    _, (result,) = run_partitioned(module, 8, given)
    agreement.equal(result, sum(given))


def test_the_same_program_from_jax_for_devices_that_need_not_be_there() -> None:
    jax = pytest.importorskip("jax")
    auto = jax.sharding.AxisType.Auto
    mesh = jax.sharding.AbstractMesh((4, 2), ("x", "y"), axis_types=(auto, auto))
    first, second = (
        jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
        for spec in (("y", None, "x"), (None, ("x", "y"), None))
    )

    def f(a: Any, b: Any, c: Any) -> Any:
        return c + jax.lax.with_sharding_constraint(a + b, second)

    x = jax.ShapeDtypeStruct((16, 16, 16), np.float32)
    step = jax.jit(f, in_shardings=(first, first, second), out_shardings=second)
    found = report(step.trace(x, x, x).lower(lowering_platforms=("cpu",)))
    assert found.bytes_per_step == 2560
    assert {row.why.kind for row in found.collectives} == {"annotation"}
    assert all("test_plans.py" in row.source for row in found.collectives)
    assert report(step.trace(x, x, x).lower(lowering_platforms=("cpu",)), mesh).bytes_per_step == 2560
