"""Rotations (`jnp.roll`), padding and joined arrays in loops, whose interior and rims are emitted apart."""

from __future__ import annotations

import numpy as np
import pytest

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
