"""Rotations (`jnp.roll`), extended (`jnp.pad`) and joined arrays in loops: interior and rims are apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.evaluate.evaluator import Evaluator
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import agree, arguments


class Program:
    """A program under construction on an array ``x``."""

    def __init__(self, kind: str, sizes: tuple[int, ...]) -> None:
        self.shape = f"{kind}[{','.join(map(str, sizes))}]"
        self.kind, self.sizes = kind, sizes
        self.lines = [f"x = {self.shape} parameter(0)"]

    def roll(self, array: str, dimension: int, start: int) -> str:
        """Add the rotation of an array that begins with element ``start``; return its name."""
        name, size = f"r{len(self.lines)}", self.sizes[dimension]
        for part, (low, high) in enumerate([(start, size), (0, start)]):
            ranges = [f"[0:{extent}]" for extent in self.sizes]
            ranges[dimension] = f"[{low}:{high}]"
            extents = [*self.sizes[:dimension], high - low, *self.sizes[dimension + 1 :]]
            shape = f"{self.kind}[{','.join(map(str, extents))}]"
            self.lines.append(f"{name}_{part} = {shape} slice({array}), slice={{{', '.join(ranges)}}}")
        operation = f"concatenate({name}_0, {name}_1), dimensions={{{dimension}}}"
        self.lines.append(f"{name} = {self.shape} {operation}")
        return name

    def extend(self, array: str, dimension: int, low: int, high: int, mode: str) -> str:
        """Add an array that is longer at both ends of a dimension by its own elements; return its name."""
        name, size = f"e{len(self.lines)}", self.sizes[dimension]
        first = {"wrap": size - low, "reflect": 1, "symmetric": 0}[mode]
        last = {"wrap": 0, "reflect": size - 1 - high, "symmetric": size - high}[mode]
        parts = [f"{name}_low", array, f"{name}_high"]
        for part, start, width in [(parts[0], first, low), (parts[2], last, high)]:
            ranges = [f"[0:{extent}]" for extent in self.sizes]
            ranges[dimension] = f"[{start}:{start + width}]"
            shape = self.resized(dimension, width)
            self.lines.append(f"{part}_slice = {shape} slice({array}), slice={{{', '.join(ranges)}}}")
            turned = f"reverse({part}_slice), dimensions={{{dimension}}}"
            self.lines.append(f"{part} = {shape} {f'copy({part}_slice)' if mode == 'wrap' else turned}")
        operation = f"concatenate({', '.join(parts)}), dimensions={{{dimension}}}"
        self.lines.append(f"{name} = {self.resized(dimension, low + size + high)} {operation}")
        return name

    def window(self, array: str, dimension: int, start: int, extent: int) -> str:
        """Add the slice of an extended array that has the sizes of ``x``; return its name."""
        name = f"w{len(self.lines)}"
        ranges = [f"[0:{size}]" for size in self.sizes]
        ranges[dimension] = f"[{start}:{start + extent}]"
        self.lines.append(f"{name} = {self.shape} slice({array}), slice={{{', '.join(ranges)}}}")
        return name

    def resized(self, dimension: int, extent: int) -> str:
        """Return the shape of ``x`` with another extent of a dimension."""
        sizes = [*self.sizes[:dimension], extent, *self.sizes[dimension + 1 :]]
        return f"{self.kind}[{','.join(map(str, sizes))}]"

    def apply(self, opcode: str, *operands: str) -> str:
        """Add an elementwise operation; return its name."""
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {self.shape} {opcode}({', '.join(operands)})")
        return name

    def text(self, root: str) -> str:
        return "\n".join([*self.lines, f"ROOT root = {self.shape} copy({root})"])


SIZES = [(3,), (65,), (64,), (1000,), (7, 64), (5, 131), (3, 4, 70), (2, 300, 3), (70, 1)]
STEPS = [1, 2, 40]
OTHER_KINDS = ["s8", "f64", "c64", "bf16"]
CASES = [
    *(("f32", sizes, step) for sizes in SIZES for step in STEPS),
    *((k, s, STEPS[(a + b) % 3]) for a, k in enumerate(OTHER_KINDS) for b, s in enumerate(SIZES)),
]
"""All of f32; of the other types all sizes and all steps, but not each with each."""


@pytest.mark.parametrize(("kind", "sizes", "step"), CASES)
def test_neighbours_in_every_dimension(kind: str, sizes: tuple[int, ...], step: int) -> None:
    program = Program(kind, sizes)
    total = "x"
    for dimension, size in enumerate(sizes):
        for start in {step % size, -step % size} - {0}:
            total = program.apply("add", total, program.roll("x", dimension, start))
    text = program.text(total)
    agree(text, *arguments(np.random.default_rng(0), text))


@pytest.mark.parametrize("sizes", [(9, 128), (130,), (4, 5, 66)])
def test_rotations_of_values_that_are_computed(sizes: tuple[int, ...]) -> None:
    program = Program("f32", sizes)
    last = len(sizes) - 1
    square = program.apply("multiply", "x", "x")
    corner = program.roll(program.roll(square, last, 1), 0, sizes[0] - 1)
    back = program.roll(program.apply("add", corner, "x"), last, sizes[last] - 1)
    text = program.text(program.apply("subtract", back, program.roll(square, 0, 2)))
    agree(text, *arguments(np.random.default_rng(1), text))


WIDTHS = [(1, 1), (2, 3), (4, 1), (1, 5)]


@pytest.mark.parametrize("mode", ["wrap", "reflect", "symmetric"])
@pytest.mark.parametrize(("low", "high"), WIDTHS)
@pytest.mark.parametrize(("kind", "sizes"), [("f32", (70, 65)), ("f64", (1000,)), ("s8", (6, 7, 131))])
def test_windows_of_extended_arrays(
    kind: str, sizes: tuple[int, ...], low: int, high: int, mode: str
) -> None:
    """The loop of wide extensions has more pieces than it may: its rims test the index."""
    program = Program(kind, sizes)
    total = program.apply("multiply", "x", "x")
    for dimension, size in enumerate(sizes):
        extended = program.extend("x", dimension, low, high, mode)
        for start in range(low + high + 1):
            total = program.apply("add", total, program.window(extended, dimension, start, size))
    text = program.text(total)
    agree(text, *arguments(np.random.default_rng(3), text))


@pytest.mark.parametrize("mode", ["wrap", "reflect", "symmetric"])
def test_extensions_of_extended_arrays_and_of_rotations(mode: str) -> None:
    program = Program("f32", (40, 66))
    rotated = program.roll(program.apply("multiply", "x", "x"), 1, 9)
    rows = program.window(program.extend(rotated, 0, 2, 2, mode), 0, 3, 40)
    columns = program.window(program.extend(rows, 1, 3, 1, mode), 1, 1, 66)
    text = program.text(program.apply("subtract", columns, program.roll(rows, 0, 5)))
    agree(text, *arguments(np.random.default_rng(4), text))


@pytest.mark.parametrize("size", [64, 100, 1000])
def test_padding_and_joined_arrays_in_a_loop(size: int) -> None:
    text = f"""
    x = f32[3,{size}] parameter(0)
    y = f32[3,{size + 5}] parameter(1)
    zero = f32[] constant(0.5)
    p = f32[3,{size + 5}] pad(x, zero), padding=0_0x2_3
    m = f32[3,{size + 5}] pad(x, zero), padding=0_0x5_0
    a = f32[3,{size + 5}] add(p, y)
    ROOT r = f32[3,{size + 5}] multiply(a, m)"""
    agree(text, *arguments(np.random.default_rng(2), text))


COLUMNS = (2, 0, 1)


@pytest.mark.parametrize("joined", [0, 1])
@pytest.mark.parametrize(("kind", "rows"), [("f32", 40), ("f32", 131), ("u8", 100), ("c64", 40), ("f64", 33)])
def test_columns_of_rotated_points(kind: str, rows: int, joined: int) -> None:
    agree(columns_of_rotated_points(kind, rows, joined), *points(kind, rows))


@pytest.mark.parametrize("joined", [0, 1])
def test_threads_share_columns_of_rotated_points(joined: int) -> None:
    module = parse(columns_of_rotated_points("f32", 100_003, joined))
    x = points("f32", 100_003)
    agreement.same(hloom.compile(module)(*x), Evaluator().run(module.entry, x))


def columns_of_rotated_points(kind: str, rows: int, joined: int) -> str:
    """Return a program that joins the columns of rotated points: as rows, or side by side."""
    program = Program(kind, (rows, 3))
    rotated = program.roll("x", 0, rows - 1)
    parts: list[str] = []
    for n, column in enumerate(COLUMNS):
        source = rotated if n % 2 else "x"
        program.lines.append(
            f"column{n} = {kind}[{rows},1] slice({source}), slice={{[0:{rows}], [{column}:{column + 1}]}}"
        )
        shape = f"{kind}[{rows},1]" if joined else f"{kind}[1,{rows}]"
        program.lines.append(f"part{n} = {shape} reshape(column{n})")
        parts.append(f"part{n}")
    sizes = f"{rows},3" if joined else f"3,{rows}"
    join = f"ROOT r = {kind}[{sizes}] concatenate({', '.join(parts)}), dimensions={{{joined}}}"
    return "\n".join([*program.lines, join])


def points(kind: str, rows: int) -> Sequence[Any]:
    """Return random arguments of `columns_of_rotated_points`."""
    return arguments(np.random.default_rng(5), f"ROOT x = {kind}[{rows},3] parameter(0)")
