"""Long epilogues of products and convolutions: functions of their own, called for each tile."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hloom.codegen.target import Target
from hloom.cpu.jit.compilation import optimize
from hloom.cpu.jit.llvm import generate_module
from hloom.cpu.program import emit_program
from tests.evaluation import parse
from tests.native_runs import agree, arguments

AVX2 = Target.named("x86_64-linux-gnu", "x86-64-v3")
DESCENT = """
rate = f32[] constant(0.01)
zero = f32[] constant(0)
rates = f32[{shape}] broadcast(rate), dimensions={{}}
zeros = f32[{shape}] broadcast(zero), dimensions={{}}
sum = f32[{shape}] add(gradient, zeros)
change = f32[{shape}] multiply(sum, rates)
ROOT descended = f32[{shape}] subtract(weights, change)"""
DOT = """
x = f32[96,64] parameter(0)
y = f32[96,256] parameter(1)
weights = f32[64,256] parameter(2)
gradient = f32[64,256] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}"""
CONVOLUTION = """
x = f32[4,32,32,32] parameter(0)
kernel = f32[3,3,32,64] parameter(1)
weights = f32[4,30,30,64] parameter(2)
gradient = f32[4,30,30,64] convolution(x, kernel), window={size=3x3}, dim_labels=b01f_01io->b01f"""


@pytest.mark.parametrize(
    "program",
    [DOT + DESCENT.format(shape="64,256"), CONVOLUTION + DESCENT.format(shape="4,30,30,64")],
    ids=["dot", "convolution"],
)
def test_constants_of_an_epilogue_take_no_register_from_the_products(program: str) -> None:
    """AVX2 has 16 registers: a product that shares them with two constants stores its sums at every step."""
    emitted = emit_program(optimize(parse(program)), AVX2)
    assembly = generate_module(emitted.module, assembly=True).decode()
    loops = [block for block in re.split(r"\n\.L\w+:", assembly) if block.count("vfmadd") >= 8]
    assert loops
    for loop in loops:
        _, *products = re.split(r"(?=vfmadd)", loop)
        between = "".join(products[:-1])
        assert not re.search(r"%ymm\d+, -?\d*\(%rsp\)", between), loop
    assert len(re.findall(r"^epilogue\d+:", assembly, re.MULTILINE)) == 1


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize(
    "sizes", [(64, 256, 40), (101, 208, 33), (7, 400, 70), (300, 96, 40), (13, 1040, 520)]
)
def test_epilogues_of_strips(kind: str, sizes: tuple[int, int, int]) -> None:
    """Narrow panels: the epilogue of several ones at once, below which rows and columns may remain."""
    m, n, k = sizes
    for dot in (
        f"x = {kind}[{k},{m}] parameter(0)\ny = {kind}[{k},{n}] parameter(1)\n"
        f"d = {kind}[{m},{n}] dot(x, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}",
        f"x = {kind}[{m},{k}] parameter(0)\ny = {kind}[{k},{n}] parameter(1)\n"
        f"d = {kind}[{m},{n}] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
    ):
        text = f"""
        {dot}
        v = {kind}[{m},{n}] parameter(2)
        w = {kind}[{m},{n}] parameter(3)
        squares = {kind}[{m},{n}] multiply(d, d)
        sums = {kind}[{m},{n}] add(squares, v)
        parts = {kind}[{m},{n}] multiply(d, w)
        change = {kind}[{m},{n}] subtract(parts, sums)
        ROOT r = ({kind}[{m},{n}], {kind}[{m},{n}]) tuple(sums, change)"""
        x, y, v, w = arguments(np.random.default_rng(0), text)
        whole = [np.trunc(4 * a).astype(a.dtype) for a in (x, y, v, w)]  # sums of whole numbers are exact
        agree(text, *whole)
