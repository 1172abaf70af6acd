"""Kept numbers of four bits are packed two in a byte for products that read them so."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.codegen.target import Target
from hloom.cpu.preparation import divided
from hloom.debug import random_arguments
from hloom.ir.module import HloModule
from tests import agreement
from tests.evaluation import parse
from tests.processors import PROCESSORS

PRODUCT = """
HloModule product
ENTRY main {
  x = f32[M,K] parameter(0)
  w = WEIGHTS parameter(1)
  scales = f32[K/G,N] parameter(2)
  others = u8[8388608] parameter(3)
  READ
  ROOT y = f32[M,N] dot(x, factor), lhs_contracting_dims={1}, rhs_contracting_dims={INNER}
}
"""
PLAIN = "factor = f32[SIZES] convert(w)"
HALVES = """fifteen = u8[] constant(15)
  fifteens = u8[K/2,N] broadcast(fifteen), dimensions={}
  four = u8[] constant(4)
  fours = u8[K/2,N] broadcast(four), dimensions={}
  low = u8[K/2,N] and(w, fifteens)
  high = u8[K/2,N] shift-right-logical(w, fours)
  both = u8[K,N] concatenate(low, high), dimensions={0}
  signed = s8[K,N] convert(both)
  eight = s8[] constant(8)
  eights = s8[K,N] broadcast(eight), dimensions={}
  numbers = s8[K,N] subtract(signed, eights)
  factor = f32[K,N] convert(numbers)"""
"""The halves of bytes as rows, without their bias."""
PAIRS = """pairs = u4[N,K/2,2] bitcast-convert(w)
  numbers = u4[N,K] reshape(pairs)
  factor = f32[N,K] convert(numbers)"""
GROUPS = """wide = f32[K,N] convert(w)
  grouped = f32[K/G,G,N] reshape(wide)
  scale = f32[K/G,G,N] broadcast(scales), dimensions={0,2}
  scaled = f32[K/G,G,N] multiply(grouped, scale)
  factor = f32[K,N] reshape(scaled)"""
TURNED_GROUPS = """wide = f32[N,K] convert(w)
  grouped = f32[N,K/G,G] reshape(wide)
  scale = f32[N,K/G,G] broadcast(scales), dimensions={1,0}
  scaled = f32[N,K/G,G] multiply(grouped, scale)
  factor = f32[N,K] reshape(scaled)"""
FORMS = {
    "rows": ("s4[K,N]", PLAIN.replace("SIZES", "K,N"), 0),
    "columns": ("s4[N,K]", PLAIN.replace("SIZES", "N,K"), 1),
    "unsigned": ("u4[N,K]", PLAIN.replace("SIZES", "N,K"), 1),
    "halves": ("u8[K/2,N]", HALVES, 0),
    "pairs": ("u8[N,K/2]", PAIRS, 1),
    "groups": ("s4[K,N]", GROUPS, 0),
    "groups of columns": ("s4[N,K]", TURNED_GROUPS, 1),
}


def product(form: str, m: int = 1, k: int = 512, n: int = 768) -> HloModule:
    weights, read, inner = FORMS[form]
    text = PRODUCT.replace("READ", read).replace("WEIGHTS", weights).replace("INNER", str(inner))
    sizes = {"M": m, "K": k, "N": n, "G": 64, "K/G": k // 64, "K/2": k // 2}
    return parse(re.sub(r"(?<=[\[,])(K/G|K/2|[MKNG])(?=[,\]])", lambda name: str(sizes[name[0]]), text))


@pytest.mark.parametrize("target", sorted(PROCESSORS))
@pytest.mark.parametrize("form", FORMS)
def test_products_read_packed_numbers(form: str, target: str) -> None:
    division = divided(product(form), {1}, PROCESSORS[target])
    (packed,) = division.preparing.entry.root.shape.tuple_shapes
    assert (packed.element_type.name, packed.element_count) == ("u8", 512 * 768 // 2)
    assert (division.sources, division.others) == ((1,), (0, 2, 3))


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_results(form: str, m: int) -> None:
    module = product(form, m)
    exe = hloom.compile(module)
    arguments: list[Any] = random_arguments(module, seed=m)
    prepared = exe.prepare({1: arguments[1]})
    assert prepared.bound_bytes == 512 * 768 // 2
    result = prepared(arguments[0], *arguments[2:])
    agreement.computed(result, module, arguments)
    if not FORMS[form][2]:  # sums of rows, before and after
        agreement.same(result, exe(*arguments))
    texts = [line.text for line in prepared.profile(arguments[0], *arguments[2:]).lines]
    assert all("f32" in text for text in texts)  # no kernel writes numbers


LAYERS = """
HloModule layers
body {
  state = (s32[], f32[1,512], WEIGHTS) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[1,512] get-tuple-element(state), index=1
  layers = WEIGHTS get-tuple-element(state), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  slice = s4[1,512,512] dynamic-slice(layers, i, zero, zero), dynamic_slice_sizes={1,512,512}
  layer = s4[512,512] reshape(slice)
  wide = f32[512,512] convert(layer)
  y = f32[1,512] dot(x, wide), lhs_contracting_dims={1}, rhs_contracting_dims={CONTRACTED}
  z = f32[1,512] tanh(y)
  ROOT r = (s32[], f32[1,512], WEIGHTS) tuple(next, z, layers)
}
condition {
  state = (s32[], f32[1,512], WEIGHTS) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(5)
  ROOT more = pred[] compare(i, n), direction=LT
}
repeated {
  outer = (s32[], f32[1,512], WEIGHTS) parameter(0)
  i = s32[] get-tuple-element(outer), index=0
  x = f32[1,512] get-tuple-element(outer), index=1
  layers = WEIGHTS get-tuple-element(outer), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  state = (s32[], f32[1,512], WEIGHTS) tuple(zero, x, layers)
  loop = (s32[], f32[1,512], WEIGHTS) while(state), condition=condition, body=body
  y = f32[1,512] get-tuple-element(loop), index=1
  ROOT r = (s32[], f32[1,512], WEIGHTS) tuple(next, y, layers)
}
again {
  outer = (s32[], f32[1,512], WEIGHTS) parameter(0)
  i = s32[] get-tuple-element(outer), index=0
  n = s32[] parameter_free()
  ROOT more = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[1,512] parameter(0)
  layers = WEIGHTS parameter(1)
  zero = s32[] constant(0)
  state = (s32[], f32[1,512], WEIGHTS) tuple(zero, x, layers)
  loop = (s32[], f32[1,512], WEIGHTS) while(state), condition=again, body=repeated
  ROOT r = f32[1,512] get-tuple-element(loop), index=1
}
""".replace("parameter_free()", "constant(2)").replace("WEIGHTS", "s4[40,512,512]")


@pytest.mark.parametrize("contracted", ["0", "1"])
def test_stacks_in_loops_in_loops(contracted: str) -> None:
    module = parse(LAYERS.replace("CONTRACTED", contracted))
    division = divided(module, {1}, PROCESSORS["x86-64-v3"])
    shapes = [p.shape.to_string(layout=False) for p in division.remaining.entry.parameters]
    assert shapes == ["f32[1,512]", "u8[40,512,256]"]
    assert "s4[40" not in division.remaining.to_text()
    x, layers = random_arguments(module, seed=7)
    exe = hloom.compile(module)
    agreement.same(exe.prepare({1: layers})(x), exe(x, layers))


def test_rows_of_a_table_that_is_a_factor_too() -> None:
    text = """
    HloModule tied
    ENTRY main {
      i = s32[] parameter(0)
      words = s4[768,512] parameter(1)
      zero = s32[] constant(0)
      row = s4[1,512] dynamic-slice(words, i, zero), dynamic_slice_sizes={1,512}
      x = f32[1,512] convert(row)
      wide = f32[768,512] convert(words)
      ROOT y = f32[1,768] dot(x, wide), lhs_contracting_dims={1}, rhs_contracting_dims={1}
    }
    """
    module = parse(text)
    arguments = random_arguments(module, seed=3)
    result = hloom.compile(module).prepare({1: arguments[1]})(arguments[0])
    agreement.computed(result, module, arguments)


@pytest.mark.parametrize(("form", "sizes"), [
    ("rows", (17, 512, 768)),  # many rows are multiplied in tiles
    ("rows", (1, 512, 767)),
    ("columns", (1, 512, 767)),
    ("rows", (1, 8, 768)),
    ("rows", (1, 4096, 64)),
])  # fmt: skip
def test_other_numbers_stay_as_they_are(form: str, sizes: tuple[int, int, int]) -> None:
    target: Target = PROCESSORS["x86-64-v3"]
    assert divided(product(form, *sizes), {1}, target).sources == ()


def test_numbers_of_more_bits_stay_as_they_are() -> None:
    text = str(product("halves").to_text()).replace("constant(15)", "constant(31)")
    assert divided(parse(text), {1}, PROCESSORS["x86-64-v3"]).sources == ()


@pytest.mark.parametrize("opcode", ["shift-right-logical", "shift-right-arithmetic"])
@pytest.mark.parametrize("kind", ["s8", "u8"])
def test_ranges_of_shifts(kind: str, opcode: str) -> None:
    """Numbers whose shifts fill more than four bits are no packed ones."""
    limits = np.iinfo(np.int8 if kind == "s8" else np.uint8)
    text = f"""
    HloModule shifts
    ENTRY main {{
      x = f32[1,512] parameter(0)
      w = {kind}[512,768] parameter(1)
      four = {kind}[] constant(4)
      fours = {kind}[512,768] broadcast(four), dimensions={{}}
      numbers = {kind}[512,768] {opcode}(w, fours)
      wide = f32[512,768] convert(numbers)
      ROOT y = f32[1,768] dot(x, wide), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
    }}
    """
    module = parse(text)
    arguments: list[Any] = random_arguments(module, seed=5)
    arguments[1][0, :2] = limits.min, limits.max
    is_narrow = (kind == "s8") == (opcode == "shift-right-arithmetic")
    division = divided(module, {1}, PROCESSORS["x86-64-v3"])
    shapes = [str(s) for s in division.preparing.entry.root.shape.tuple_shapes]
    assert ("u8[512,384]{1,0}" in shapes) == is_narrow
    result = hloom.compile(module).prepare({1: arguments[1]})(arguments[0])
    agreement.computed(result, module, arguments)
