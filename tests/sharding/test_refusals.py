"""Shardings that are refused."""

from __future__ import annotations

import pytest

from hloom.errors import HloError
from hloom.sharding.reading.shardy import parse_shardings
from hloom.sharding.tiling.tiling import Tiling


def test_a_mesh_that_the_module_does_not_have() -> None:
    with pytest.raises(HloError) as caught:
        parse_shardings('#sdy.sharding_per_value<[<@mesh, [{"a"}]>]>', {})
    assert caught.value.rule == "sharding.mesh"


def test_tiles_on_unequal_numbers_of_devices() -> None:
    with pytest.raises(HloError) as caught:
        Tiling.from_tile_indices((2,), ((0,), (0,), (1,))).groups([0], [])
    assert caught.value.rule == "sharding.uneven-replicas"
