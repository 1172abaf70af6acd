"""Generated modules with random shardings give the values of one device, within rounding errors.

A share of the instructions of a module, its parameters and results among them, gets random tilings over a
random mesh. Tiles run on virtual devices. `hloom fuzz --against cpu --sharded` does it in native code.
"""

from __future__ import annotations

import numpy as np
import pytest

from hloom.fuzzing.campaign import differences, elements
from hloom.fuzzing.generators.families import draw_case
from hloom.fuzzing.generators.shardings import retargeted
from tests.sharding.runs import run_partitioned

MESHES = ((2,), (3,), (4,), (1, 2), (2, 2), (4, 2), (3, 2), (2, 2, 2))


@pytest.mark.parametrize("number", range(24))
def test_generated_modules_are_equal_on_tiles(number: int) -> None:
    random = np.random.default_rng((7, number))
    mesh = MESHES[int(random.integers(len(MESHES)))]
    case = draw_case("modules", number, seed=7)
    module = retargeted(case.module, mesh, number, float(random.choice([0.1, 0.3, 0.6])))
    _, found = run_partitioned(module, module.config.num_partitions, [np.asarray(a) for a in case.arguments])
    assert ["\n".join(elements(d, d.where, "tiles")) for d in differences(case, [found])] == []
