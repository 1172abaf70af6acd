"""Slices and updates of stacked arrays: values, and which of them are subviews instead of copies."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hloom.analysis.subviews import Subview
from hloom.cpu.native import NativeExecutable, compile_or_load
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.module import HloModule
from tests import agreement

ROW, STACK = "f32[1,96]", "f32[4,96]"
TEMPLATE = """
HloModule stacks
less {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT l = pred[] compare(p, q), direction=LT
}
inner {
  s = (s32[], ROW, ROW) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = ROW get-tuple-element(s), index=1
  w = ROW get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = ROW multiply(x, w)
  z = ROW sort(y), dimensions={1}, to_apply=less
  ROOT r = (s32[], ROW, ROW) tuple(next, z, w)
}
few {
  s = (s32[], ROW, ROW) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(2)
  ROOT l = pred[] compare(i, n), direction=LT
}
body {
  s = (s32[], s32[], STACK, STACK, ROW) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  a = STACK get-tuple-element(s), index=2
  b = STACK get-tuple-element(s), index=3
  x = ROW get-tuple-element(s), index=4
  zero = s32[] constant(0)
  one = s32[] constant(1)
  three = s32[] constant(3)
  next = s32[] add(i, one)
  back = s32[] subtract(three, i)
  j = s32[] multiply(i, three)
  far = s32[] subtract(j, three)
LINES
  ROOT state = (s32[], s32[], STACK, STACK, ROW) tuple(next, n, RESULTS)
}
more {
  s = (s32[], s32[], STACK, STACK, ROW) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  ROOT l = pred[] compare(i, n), direction=LT
}
ENTRY main {
  n = s32[] parameter(0)
  a = STACK parameter(1)
  b = STACK parameter(2)
  x = ROW parameter(3)
  zero = s32[] constant(0)
  s = (s32[], s32[], STACK, STACK, ROW) tuple(zero, n, a, b, x)
  w = (s32[], s32[], STACK, STACK, ROW) while(s), condition=more, body=body
  a.1 = STACK get-tuple-element(w), index=2
  b.1 = STACK get-tuple-element(w), index=3
  x.1 = ROW get-tuple-element(w), index=4
  ROOT r = (STACK, STACK, ROW) tuple(a.1, b.1, x.1)
}
"""


def program(lines: Sequence[str], results: str) -> HloModule:
    """Return the loop whose body has these lines, with `sort(x)` for a sort of rows, and these results."""
    body = re.sub(r"(sort\(\w+\))", r"\1, dimensions={1}, to_apply=less", "\n".join(lines))
    text = TEMPLATE.replace("LINES", body).replace("RESULTS", results)
    return HloModule.from_text(text.replace("ROW", ROW).replace("STACK", STACK))


def subviews(executable: NativeExecutable) -> list[str]:
    """Return the opcodes of the slices and updates that are parts of arrays."""
    instructions = executable.inspection.optimized.instructions()
    return sorted(i.opcode for i in instructions if i.annotation(Subview) is not None)


def check(module: HloModule, seed: int = 0) -> NativeExecutable:
    """Compare a program with the evaluator; return it."""
    executable = compile_or_load(module)
    draw = np.random.default_rng(seed)
    arrays = [draw.standard_normal(p.shape.dimensions, np.float32) for p in module.entry.parameters[1:]]
    for trips in (0, 1, 4):
        arguments: list[Any] = [np.int32(trips), *arrays]
        expected: Any = Evaluator().run(module.entry, arguments)
        for result, right in zip(executable.caller.run(arguments), expected, strict=True):
            agreement.same(result, right)
    return executable


AT = [
    "first = f32[1,1] slice(y), slice={[0:1], [0:1]}",
    "number = f32[] reshape(first)",
    "at = s32[] convert(number)",
]
"""A position that depends on y."""
SLICE = "dynamic-slice(ARRAY, INDEX, zero), dynamic_slice_sizes={1,96}"
PART, PLACED = "dynamic-slice", "dynamic-update-slice"


def sliced(array: str, index: str) -> str:
    """Return a slice of one row."""
    return SLICE.replace("ARRAY", array).replace("INDEX", index)


CASES = {
    "read": ([f"r = ROW {sliced('a', 'i')}", "y = ROW sort(r)"], "a, b, y", [PART]),
    "clamped": ([f"r = ROW {sliced('a', 'far')}", "y = ROW sort(r)"], "a, b, y", [PART]),
    "two rows": (
        ["r = f32[2,96] dynamic-slice(a, far, zero), dynamic_slice_sizes={2,96}",
         "q = f32[2,96] sort(r)", "y = ROW slice(q), slice={[1:2], [0:96]}"],
        "a, b, y",
        [PART],
    ),
    "written": (
        ["y = ROW sort(x)", "c = STACK dynamic-update-slice(b, y, i, zero)", "m = ROW add(y, x)"],
        "a, c, m",
        [PLACED],
    ),
    "written backwards": (
        ["y = ROW sort(x)", "m = ROW add(y, x)", "c = STACK dynamic-update-slice(b, y, back, zero)"],
        "a, c, m",
        [PLACED],
    ),
    "written, then read": (
        ["y = ROW sort(x)", "c = STACK dynamic-update-slice(b, y, i, zero)", f"r = ROW {sliced('c', 'j')}",
         "z = ROW sort(r)", "v = ROW add(z, y)"],
        "a, c, v",
        [PART, PLACED],
    ),
    "the old row is read for the new one": (
        [f"r = ROW {sliced('b', 'i')}", "y = ROW sort(r)", "c = STACK dynamic-update-slice(b, y, i, zero)"],
        "a, c, x",
        [PART],
    ),
    "the old row is read after the update": (
        [f"r = ROW {sliced('b', 'i')}", "y = ROW sort(x)", "c = STACK dynamic-update-slice(b, y, i, zero)",
         f"t = ROW {sliced('c', 'j')}", "z = ROW sort(t)", "m = ROW add(z, r)", "v = ROW sort(m)"],
        "a, c, v",
        [PART],
    ),
    "the old array is read after the value": (
        ["y = ROW sort(x)", *AT, f"t = ROW {sliced('b', 'at')}",
         "c = STACK dynamic-update-slice(b, y, i, zero)", "m = ROW sort(t)"],
        "a, c, m",
        [],
    ),
    "the position depends on the value": (
        ["y = ROW sort(x)", *AT, "c = STACK dynamic-update-slice(b, y, at, zero)"],
        "a, c, x",
        [],
    ),
    "updated twice": (
        ["y = ROW sort(x)", "c = STACK dynamic-update-slice(b, y, i, zero)", "z = ROW sort(y)",
         "d = STACK dynamic-update-slice(c, z, j, zero)"],
        "a, d, x",
        [],
    ),
    "two arrays get one value": (
        ["y = ROW sort(x)", "c = STACK dynamic-update-slice(b, y, i, zero)",
         "d = STACK dynamic-update-slice(a, y, back, zero)", "m = ROW add(y, x)"],
        "d, c, m",
        [PLACED],
    ),
    "exchanged": (["y = ROW sort(x)", "c = STACK dynamic-update-slice(b, y, i, zero)"], "c, a, x", []),
    "returned twice": (["y = ROW sort(x)", "c = STACK dynamic-update-slice(b, y, i, zero)"], "b, c, y", []),
    "read by an inner loop": (
        [f"r = ROW {sliced('a', 'i')}", "t = (s32[], ROW, ROW) tuple(zero, x, r)",
         "u = (s32[], ROW, ROW) while(t), condition=few, body=inner",
         "y = ROW get-tuple-element(u), index=1"],
        "a, b, y",
        [PART],
    ),
    "overwritten by an inner loop": (
        [f"r = ROW {sliced('a', 'i')}", "t = (s32[], ROW, ROW) tuple(zero, r, x)",
         "u = (s32[], ROW, ROW) while(t), condition=few, body=inner",
         "y = ROW get-tuple-element(u), index=1"],
        "a, b, y",
        [PART],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_subviews_of_stacked_arrays(case: str) -> None:
    lines, results, expected = CASES[case]
    assert subviews(check(program(lines, results))) == expected


def random_program(seed: int) -> HloModule:
    """Return a loop of random slices, updates, sorts and sums of rows."""
    draw = random.Random(seed)
    rows, versions = ["x"], {"a": "a", "b": "b"}
    old = list(versions)
    lines: list[str] = []
    for number in range(draw.randint(3, 9)):
        name, index = f"v{number}", draw.choice(["i", "j", "far", "back"])
        match draw.choice(["slice", "sort", "add", "update", "update"]):
            case "slice":
                lines.append(f"{name} = ROW {sliced(draw.choice(old), index)}")
                rows.append(name)
            case "sort":
                lines.append(f"{name} = ROW sort({draw.choice(rows)})")
                rows.append(name)
            case "add":
                lines.append(f"{name} = ROW add({draw.choice(rows)}, {draw.choice(rows)})")
                rows.append(name)
            case _:
                array = draw.choice(list(versions))
                lines.append(
                    f"{name} = STACK dynamic-update-slice({versions[array]}, {rows[-1]}, {index}, zero)"
                )
                versions[array] = name
                old.append(name)
    results = [*versions.values()] if draw.random() < 0.8 else [versions["b"], versions["a"]]
    return program(lines, ", ".join([*results, rows[-1]]))


@pytest.mark.parametrize("seed", range(24))
def test_random_loops_over_stacked_arrays(seed: int) -> None:
    check(random_program(seed), seed)
