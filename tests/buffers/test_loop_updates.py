"""Loops that update arrays: values, and no copies of arrays where some order of the steps needs none."""

from __future__ import annotations

import numpy as np
import pytest

import agreement
from hloom.buffers.copies import ArrayCopy
from hloom.cpu.native import NativeExecutable
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.module import HloModule
from loop_bodies import random_loop


def copies_in_loops(program: NativeExecutable) -> list[ArrayCopy]:
    """Return the copies of arrays but those of arguments that the caller keeps."""
    return [copy for copy in program.program.copies if "caller keeps" not in copy.reason]


@pytest.mark.parametrize("seed", range(24))
def test_random_loops(seed: int) -> None:
    text, in_place = random_loop(seed)
    module = HloModule.from_text(text)
    program = NativeExecutable(module)
    if in_place:
        assert not copies_in_loops(program)
    draw = np.random.default_rng(seed)
    shapes = [p.shape.dimensions for p in module.entry.parameters[1:]]
    arrays = [draw.integers(-9, 9, shape).astype(np.float32) for shape in shapes]
    for trips in (0, 1, 4):
        wanted = Evaluator().run(module.entry, [np.int32(trips), *arrays])
        for found, right in zip(program.run([np.int32(trips), *arrays]), wanted, strict=True):
            agreement.same(found, right)
