"""The last elements of loops over bytes and other small elements, whose results overwrite an operand."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.codegen.llvm import print_module
from hloom.codegen.target import Target
from hloom.cpu.jit.compilation import optimize
from hloom.cpu.program import emit_program
from tests.evaluation import parse
from tests.native_runs import agree, arguments

WITHOUT_BYTE_MASKS = {
    "avx2": Target.named("x86_64-linux-gnu", "x86-64-v3"),
    "sse2": Target.named("x86_64-linux-gnu", "x86-64"),
    "neon": Target.named("aarch64-linux-gnu", "generic"),
}


def neighbors(kind: str, rows: int, columns: int) -> str:
    """Return a program that adds neighbors of elements to an array, in whose place the result may be."""
    return f"""
ENTRY main {{
  x = {kind}[{rows},{columns}] parameter(0)
  y = {kind}[{rows},{columns}] parameter(1)
  zero = {kind}[] constant(0)
  padded = {kind}[{rows},{columns + 2}] pad(x, zero), padding=0_0x1_1
  before = {kind}[{rows},{columns}] slice(padded), slice={{[0:{rows}],[0:{columns}]}}
  after = {kind}[{rows},{columns}] slice(padded), slice={{[0:{rows}],[2:{columns + 2}]}}
  n = {kind}[{rows},{columns}] maximum(before, after)
  ROOT r = {kind}[{rows},{columns}] maximum(n, y)
}}
"""


@pytest.mark.parametrize("columns", [1, 2, 5, 15, 16, 31, 33, 62, 64, 65, 127, 190, 255])
@pytest.mark.parametrize("kind", ["u8", "pred", "bf16", "s16", "f32"])
def test_the_last_elements_are_computed_once(kind: str, columns: int) -> None:
    text = neighbors(kind, 3, columns)
    agree(text, *arguments(np.random.default_rng(columns), text))


@pytest.mark.parametrize("target", WITHOUT_BYTE_MASKS)
def test_masks_of_bytes_are_short_without_instructions_for_them(target: str) -> None:
    module = emit_program(optimize(parse(neighbors("u8", 3, 190))), WITHOUT_BYTE_MASKS[target]).module
    text = print_module(module)
    assert "@llvm.masked.load.v4i8" in text
    assert "@llvm.masked.load.v64i8" not in text


@pytest.mark.parametrize("kind", ["u8", "s16"])
def test_loops_with_state_in_vectors_keep_their_length(kind: str) -> None:
    text = f"""
less {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}}

ENTRY main {{
  x = {kind}[30007] parameter(0)
  ROOT r = {kind}[30007] sort(x), dimensions={{0}}, to_apply=less
}}
"""
    agree(text, *arguments(np.random.default_rng(0), text))
