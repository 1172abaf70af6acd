"""The pass that CONTRIBUTING.md adds: it rewrites, keeps every value, and works in a pipeline."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from hloom.passes.pipeline import Pass, Pipeline
from hloom.passes.simplify.dead_code import DeadCodeElimination
from tests.arrays import f32
from tests.pass_checks import after, opcodes

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
TWICE = """x = f32[4] parameter(0)
  a = f32[4] negate(x)
  b = f32[4] negate(a)
  ROOT r = f32[4] add(b, x)"""


def contributed() -> Pass:
    """The pass on the page."""
    (block,) = [
        b for b in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "DoubleNegation" in b
    ]
    names: dict[str, Any] = {"__name__": "contributed"}
    exec(compile(block, "CONTRIBUTING.md", "exec", dont_inherit=True), names)
    return names["DoubleNegation"]()


def test_two_negations_vanish() -> None:
    arguments = [f32([1, -0.0, np.inf, np.nan])]
    module = after(TWICE, contributed(), DeadCodeElimination(), arguments=arguments)
    assert opcodes(module) == {"parameter": 1, "add": 1}


def test_it_joins_a_pipeline() -> None:
    pipeline = Pipeline([contributed(), DeadCodeElimination()], until_stable=True, title="contributed")
    assert "negate" not in opcodes(after(TWICE, pipeline))


def test_one_negation_stays() -> None:
    module = after("x = f32[4] parameter(0)\nROOT r = f32[4] negate(x)", contributed())
    assert opcodes(module)["negate"] == 1
