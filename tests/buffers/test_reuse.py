"""Results take the memory of arguments that are read no more, and of no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hloom.cpu.native import compile_or_load
from hloom.ir.module import HloModule

HEAD = "HloModule m, input_output_alias={ALIASES}\n"
PAIR = HEAD.replace("ALIASES", "{0}: (0, {}, may-alias), {1}: (1, {}, may-alias)")
FIRST = HEAD.replace("ALIASES", "{}: (0, {}, may-alias)")
PARAMETERS = "  x = f32[640] parameter(0)\n  y = f32[640] parameter(1)\n"
MATRICES = "  x = f32[16,16] parameter(0)\n  y = f32[16,16] parameter(1)\n"
LOOP = """
body {
  s = (s32[], f32[640], f32[640]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[640] get-tuple-element(s), index=1
  b = f32[640] get-tuple-element(s), index=2
  one = s32[] constant(1)
  n = s32[] add(i, one)
  t = f32[640] reverse(b), dimensions={0}
  c = f32[640] subtract(a, t)
  ROOT r = (s32[], f32[640], f32[640]) tuple(n, FIRST, SECOND)
}
condition {
  s = (s32[], f32[640], f32[640]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  most = s32[] constant(99)
  ROOT less = pred[] compare(i, most), direction=LT
}
ENTRY e {
  x = f32[640] parameter(0)
  y = f32[640] parameter(1)
  zero = s32[] constant(0)
  init = (s32[], f32[640], f32[640]) tuple(zero, INIT)
  w = (s32[], f32[640], f32[640]) while(init), body=body, condition=condition
  p = f32[640] get-tuple-element(w), index=1
  q = f32[640] get-tuple-element(w), index=2
  ROOT r = (f32[640], f32[640]) tuple(p, q)
}
"""


def loop(init: str, first: str, second: str) -> str:
    """Return a loop that carries two arguments in some order."""
    return PAIR + LOOP.replace("INIT", init).replace("FIRST", first).replace("SECOND", second)


PROGRAMS: dict[str, tuple[str, set[tuple[int, int]]]] = {
    "index by index": (FIRST + "ENTRY e {\n" + PARAMETERS + "  ROOT r = f32[640] add(x, y)\n}", {(0, 0)}),
    "scalars": (
        FIRST
        + "ENTRY e {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT r = f32[] add(x, y)\n}",
        {(0, 0)},
    ),
    "across indices": (
        FIRST + "ENTRY e {\n" + PARAMETERS + "  ROOT r = f32[640] reverse(x), dimensions={0}\n}",
        set(),
    ),
    "read by a product": (
        FIRST
        + "ENTRY e {\n"
        + MATRICES
        + "  ROOT r = f32[16,16] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}",
        set(),
    ),
    "read before": (
        FIRST
        + "ENTRY e {\n"
        + MATRICES
        + "  d = f32[16,16] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        + "  ROOT r = f32[16,16] dot(d, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}",
        {(0, 0)},
    ),
    "handed on": (
        PAIR + "ENTRY e {\n" + PARAMETERS + "  ROOT r = (f32[640], f32[640]) tuple(x, y)\n}",
        {(0, 0), (1, 1)},
    ),
    "swapped": (PAIR + "ENTRY e {\n" + PARAMETERS + "  ROOT r = (f32[640], f32[640]) tuple(y, x)\n}", set()),
    "of several results": (
        PAIR
        + "ENTRY e {\n"
        + PARAMETERS
        + "  s = f32[640] add(x, y)\n  d = f32[640] subtract(x, y)\n"
        + "  ROOT r = (f32[640], f32[640]) tuple(s, d)\n}",
        {(1, 1)},
    ),
    "carried": (loop("x, y", "c", "a"), {(0, 0), (1, 1)}),
    "carried in the other order": (loop("y, x", "c", "a"), {(0, 0), (1, 1)}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_in_the_memory_of_arguments_are_the_same(name: str) -> None:
    text, wanted = PROGRAMS[name]
    program = compile_or_load(HloModule.from_text(text))
    reuses = dict(program.facts.reuses)
    assert set(reuses.items()) == wanted
    rng = np.random.default_rng(0)
    arguments: list[Any] = [
        rng.standard_normal(s.dimensions).astype(np.float32) for s in program.caller.parameters
    ]
    apart = program.caller.run(arguments)
    sources = [a.copy() for a in arguments]
    shapes = program.caller.results
    targets = [
        sources[reuses[n]] if n in reuses else np.empty(s.dimensions, np.float32)
        for n, s in enumerate(shapes)
    ]
    program.caller.run_at([a.ctypes.data for a in sources], [a.ctypes.data for a in targets])
    for found, right in zip(targets, apart, strict=True):
        assert np.array_equal(found, right)
