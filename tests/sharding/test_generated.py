"""Generated modules with random shardings give the values of one device; see `tests.sharding.generated`."""

from __future__ import annotations

import pytest

from tests.sharding.generated import complaints, draw


@pytest.mark.parametrize("number", range(24))
def test_generated_modules_are_equal_on_tiles(number: int) -> None:
    assert complaints(*draw(number, seed=7)) == []
