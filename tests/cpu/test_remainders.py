"""Remainders of vector loops, and masks carried by loops."""

from __future__ import annotations

import re

import numpy as np
import pytest

import hloom
from tests.evaluation import parse
from tests.native_runs import agree, arguments
from tests.reducers import LESS, with_reducers

KINDS = ("f32", "bf16", "u8", "pred", "c64")
LENGTHS = (1, 7, 31, 63, 64, 65, 100, 129, 191)
SHIFTED = """
x = {kind}[5,{wide}] parameter(0)
a = {kind}[5,{length}] slice(x), slice={{[0:5], [1:{wide}]}}
b = {kind}[5,{length}] slice(x), slice={{[0:5], [0:{length}]}}
ROOT r = {kind}[5,{length}] {opcode}(a, b)"""


def shifted(kind: str, length: int) -> str:
    opcode = "xor" if kind == "pred" else "add"
    return SHIFTED.format(kind=kind, length=length, wide=length + 1, opcode=opcode)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_neighbors(kind: str, length: int) -> None:
    text = shifted(kind, length)
    agree(text, *arguments(np.random.default_rng(length), text), rounded=True)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_result_may_overwrite_an_operand(length: int) -> None:
    text = f"""HloModule overwritten
{LESS}
ENTRY main {{
  x = f32[6,{length}] parameter(0)
  v = f32[{length}] parameter(1)
  sorted = f32[6,{length}] sort(x), dimensions={{1}}, to_apply=less
  columns = f32[6,{length}] broadcast(v), dimensions={{1}}
  product = f32[6,{length}] multiply(sorted, columns)
  ROOT r = f32[6,{length}] subtract(product, columns)
}}"""
    agree(text, *arguments(np.random.default_rng(length), text), rounded=True)


@pytest.mark.parametrize("length", [3, 5, 6, 9, 10, 12])
@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "u8", "pred"])
def test_tiny_arrays_are_two_vectors(kind: str, length: int) -> None:
    text = f"""HloModule tiny
ENTRY main {{
  x = {kind}[4,{length}] parameter(0)
  v = {kind}[{length}] parameter(1)
  columns = {kind}[4,{length}] broadcast(v), dimensions={{1}}
  turned = {kind}[4,{length}] reverse(x), dimensions={{1}}
  sum = {kind}[4,{length}] add(turned, columns)
  square = {kind}[{length}] multiply(v, v)
  ROOT r = tuple(sum, square)
}}"""
    assert "masked" not in hloom.compile(parse(text)).to_llvm()
    agree(text, *arguments(np.random.default_rng(length), text), rounded=True)


@pytest.mark.parametrize("kind", ["u8", "bf16"])
def test_bytes_are_read_a_vector_at_a_time(kind: str) -> None:
    # without AVX-512 a masked vector of bytes is a branch for each of them
    assert "masked.load" not in hloom.compile(parse(shifted(kind, 254))).to_llvm()
    sums = f"x = {kind}[1001] parameter(0)\nROOT r = {kind}[1001] add(x, x)"  # may overwrite its operand
    assert "masked.load" in hloom.compile(parse(sums)).to_llvm()


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(
    "kind, opcode", [("pred", "or"), ("pred", "and"), ("u8", "maximum"), ("bf16", "maximum")]
)
def test_reductions_of_rows(kind: str, opcode: str, length: int) -> None:
    first = {"or": "false", "and": "true", "maximum": "0"}[opcode]
    text = with_reducers(f"""HloModule rows
ENTRY main {{
  x = {kind}[9,{length}] parameter(0)
  v = {kind}[] constant({first})
  ROOT r = {kind}[9] reduce(x, v), dimensions={{1}}, to_apply={opcode}_{kind}
}}""")
    agree(text, *arguments(np.random.default_rng(length), text))


def test_no_lane_of_a_mask_is_carried_in_a_register_of_its_own() -> None:
    text = with_reducers("""HloModule members
ENTRY main {
  x = s32[40] parameter(0)
  y = s32[3000] parameter(1)
  a = s32[40,3000] broadcast(x), dimensions={0}
  b = s32[40,3000] broadcast(y), dimensions={1}
  e = pred[40,3000] compare(a, b), direction=EQ
  no = pred[] constant(false)
  ROOT r = pred[40] reduce(e, no), dimensions={1}, to_apply=or_pred
}""")
    rng = np.random.default_rng(0)
    agree(text, *(rng.integers(0, 4000, size).astype(np.int32) for size in (40, 3000)))
    assert not re.search(r"phi <\d+ x i1>", hloom.compile(parse(text)).to_llvm())


def test_a_loop_over_padding_reads_nothing() -> None:
    """The loop over the elements behind a row stores the padding value, and asks no index."""
    text = """
    x = c64[20,37] parameter(0)
    y = c64[20,37] multiply(x, x)
    zero = c64[] constant((0, 0))
    ROOT r = c64[20,128] pad(y, zero), padding=0_0x3_88
    """
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)
    assert "masked.gather" not in hloom.compile(parse(text)).to_llvm()
