"""Regions of tiles along some axes: values keep their cuts along the others."""

from __future__ import annotations

import numpy as np
import pytest
from tests.sharding.runs import run_partitioned

import agreement
from hloom.ir.module import HloModule
from hloom.sharding.traffic import bytes_sent

X = np.arange(64, dtype=np.float32).reshape(8, 8)


def region(before: str, inside: str, behind: str) -> HloModule:
    """Return a program that squares an array in a region along the axis y."""

    def cut(axes: str) -> str:
        return axes.replace('"', '\\"')

    return HloModule.from_text(f"""
      HloModule m, frontend_attributes={{xla.sdy.meshes={{mesh = #sdy.mesh<["x"=2, "y"=2]>}}}}
      ENTRY e {{
        x = f32[8,8] parameter(0), frontend_attributes={{
          xla.sdy.sharding="#sdy.sharding<@mesh, {cut(before)}>"}}
        t = {inside} custom-call(x), custom_call_target="xla.sdy.GlobalToLocalShape",
          custom_call_has_side_effect=true, frontend_attributes={{
            xla.sdy.in_shardings="#sdy.sharding_per_value<[<@mesh, {cut(behind)}>]>",
            xla.sdy.manual_axes="#sdy<manual_axes{{\\"y\\"}}>"}}
        s = {inside} multiply(t, t)
        ROOT r = f32[8,8] custom-call(s), custom_call_target="xla.sdy.LocalToGlobalShape",
          custom_call_has_side_effect=true, frontend_attributes={{
            xla.sdy.out_shardings="#sdy.sharding_per_value<[<@mesh, {cut(behind)}>]>",
            xla.sdy.manual_axes="#sdy<manual_axes{{\\"y\\"}}>"}}
      }}""")


@pytest.mark.parametrize(
    ("before", "inside", "behind", "tiles"),
    [
        ('[{"x"}, {}]', "f32[8,8]", "[{?}, {?}]", (2, 1)),
        ('[{"x"}, {}]', "f32[8,4]", '[{?}, {"y"}]', (2, 2)),
        ('[{"x"}, {"y"}]', "f32[8,4]", '[{?}, {"y"}]', (2, 2)),
        ('[{}, {"x"}]', "f32[8,8]", "[{?}, {?}]", (1, 2)),
    ],
)
def test_cuts_along_other_axes_stay(before: str, inside: str, behind: str, tiles: tuple[int, int]) -> None:
    partitioned, (found,) = run_partitioned(region(before, inside, behind), 4, [X])
    agreement.equal(found, X * X)
    assert partitioned.results[0].tiles == tiles
    assert bytes_sent(partitioned.module) == 0


def test_a_dimension_that_a_manual_axis_cuts_is_whole_along_others() -> None:
    partitioned, (found,) = run_partitioned(region('[{"x"}, {}]', "f32[4,8]", '[{"y"}, {?}]'), 4, [X])
    agreement.equal(found, X * X)
    assert partitioned.results[0].tiles == (2, 1)
