"""Drawings: `drawings/` has one of each form as SVG, to be looked at; ``--bless`` writes them."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

import hloom
from hloom import HloModule, Shape
from hloom.tools.pictures.graph_marks import scene_picture
from hloom.tools.pictures.graph_scene import scene_of
from hloom.tools.pictures.layout_picture import layout_picture

FOLDER = Path(__file__).parent / "drawings"
WORKLOADS = Path(__file__).parents[2] / "examples" / "workloads"
LAYOUTS = {
    "scalar": "f32[]",
    "vector": "f32[5]{0:T(2,3)}",
    "tiles_of_tiles": "bf16[3,5]{1,0:T(2,4)(2,1)}",
    "half_octets": "u4[3,4]{0,1:E(4)}",
    "slices": "f32[2,3,3,2]{3,2,1,0:T(*,2,2)}",
    "gaps": "f32[2,50]",
}
BRANCHES = """HloModule branches

small {
  x = f32[4] parameter(0)
  n = f32[4] negate(x)
  ROOT e = f32[4] exponential(n)
}

large {
  x = f32[4] parameter(0)
  z = f32[] constant(2)
  b = f32[4] broadcast(z), dimensions={}
  ROOT p = f32[4] power(x, b)
}

ENTRY main {
  which = pred[] parameter(0)
  x = f32[4] parameter(1)
  y = f32[4] parameter(2)
  sum = f32[4] add(x, y)
  difference = f32[4] subtract(y, x)
  far = f32[4] abs(x), control-predecessors={difference}
  product = f32[4] multiply(sum, difference)
  sine = f32[4] sine(product)
  chosen = f32[4] conditional(which, sine, far), true_computation=small, false_computation=large
  ROOT r = (f32[4], f32[4], f32[4]) tuple(chosen, y, product)
}
"""


def crossing() -> str:
    """Return a program whose edges cross: sums of drawn pairs of earlier values, some of which are unused."""
    rng = random.Random(1)
    lines = [f"x{n} = f32[4] parameter({n})" for n in range(4)]
    lines += [
        f"x{n} = f32[4] add(x{rng.randrange(n)}, x{rng.randrange(max(0, n - 6), n)})" for n in range(4, 20)
    ]
    return "HloModule crossing\n\nENTRY main {\n" + "\n".join(lines) + "\n}\n"


def drawn(name: str) -> str:
    """Return a drawing, a mark on each line."""
    if name in LAYOUTS:
        text = layout_picture(Shape.parse(LAYOUTS[name])).to_svg()
    elif name == "crossing":
        text = scene_picture(scene_of(HloModule.from_text(crossing()))).to_svg()
    elif name == "branches":
        text = scene_picture(scene_of(HloModule.from_text(BRANCHES), full=True)).to_svg()
    else:
        text = scene_picture(scene_of(hloom.load(WORKLOADS / f"{name}.hlo"))).to_svg()
    return re.sub(r">\s*<", ">\n<", text) + "\n"


@pytest.mark.parametrize("name", [*LAYOUTS, "branches", "crossing", "softmax"])
def test_drawings(name: str, pytestconfig: pytest.Config) -> None:
    file = FOLDER / f"{name}.svg"
    text = drawn(name)
    if pytestconfig.getoption("--bless"):
        file.write_text(text)
    assert text == file.read_text()
