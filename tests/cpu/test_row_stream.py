"""Products of few rows with matrices larger than the caches, which are read in the order of memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hloom.cpu.kernels.dot.row_stream import CACHED, LEAST_BYTES
from hloom.cpu.native import compile_or_load
from hloom.debug import random_arguments
from hloom.ir.module import HloModule
from hloom.shape.element_type import ElementType
from tests import agreement
from tests.native_runs import Native
from tests.processors import PROCESSORS, runs_here

ROOT = Path(__file__).parents[2]
LAYERS = """
HloModule layers
body {
  state = (s32[], f32[M,N], f32[M,K], NARROW[L,K,N]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  sum = f32[M,N] get-tuple-element(state), index=1
  x = f32[M,K] get-tuple-element(state), index=2
  layers = NARROW[L,K,N] get-tuple-element(state), index=3
  zero = s32[] constant(0)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  slice = NARROW[1,K,N] dynamic-slice(layers, i, zero, zero), dynamic_slice_sizes={1,K,N}
  layer = NARROW[K,N] reshape(slice)
  wide = f32[K,N] convert(layer)
  y = f32[M,N] dot(x, wide), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  new = f32[M,N] add(sum, y)
  ROOT r = (s32[], f32[M,N], f32[M,K], NARROW[L,K,N]) tuple(next, new, x, layers)
}
condition {
  state = (s32[], f32[M,N], f32[M,K], NARROW[L,K,N]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(2)
  ROOT more = pred[] compare(i, n), direction=LT
}
ENTRY main {
  sum = f32[M,N] parameter(0)
  x = f32[M,K] parameter(1)
  layers = NARROW[L,K,N] parameter(2)
  zero = s32[] constant(0)
  state = (s32[], f32[M,N], f32[M,K], NARROW[L,K,N]) tuple(zero, sum, x, layers)
  loop = (s32[], f32[M,N], f32[M,K], NARROW[L,K,N]) while(state), condition=condition, body=body
  ROOT r = f32[M,N] get-tuple-element(loop), index=1
}
"""
SIZES = [("f32", 1, 301, 517), ("f32", 3, 129, 700), ("f32", 8, 130, 640), ("bf16", 1, 300, 1000),
         ("bf16", 4, 333, 500), ("s8", 1, 601, 500), ("s8", 2, 602, 501), ("f16", 2, 256, 513),
         ("s8", 5, 602, 501), ("bf16", 8, 130, 2500), ("s8", 8, 64, 4100), ("u8", 7, 331, 300),
         ("f8e4m3fn", 4, 330, 301), ("s8", 11, 258, 65100)]  # fmt: skip


def layers(narrow: str, m: int, k: int, n: int) -> HloModule:
    """Return a sum of products with two slices of an array that is larger than the caches."""
    layer_bytes = k * n * ElementType.parse(narrow).bits // 8
    assert layer_bytes >= LEAST_BYTES
    sizes = {"M": m, "K": k, "N": n, "L": 1 + CACHED // layer_bytes}
    text = re.sub(r"(?<=[\[{,])[MKNL](?=[,\]}])", lambda name: str(sizes[name[0]]), LAYERS)
    return HloModule.from_text(text.replace("NARROW", narrow))


@pytest.mark.parametrize(("narrow", "m", "k", "n"), SIZES)
def test_slices_of_a_large_array(narrow: str, m: int, k: int, n: int) -> None:
    module = layers(narrow, m, k, n)
    arguments: list[Any] = random_arguments(module, seed=m)
    agreement.computed(compile_or_load(module).caller.run(arguments)[0], module, arguments)


INTEGERS = """
HloModule integers
ENTRY main {
  x = LEFT[M,K] parameter(0)
  matrix = RIGHT[K,N] parameter(1)
  others = u8[8388608] parameter(2)
  ROOT y = s32[M,N] dot(x, matrix), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.mark.parametrize("machine", PROCESSORS)
@pytest.mark.parametrize(("left", "right", "m", "k", "n", "in_pairs"), [
    ("s8", "s8", 1, 502, 517, True), ("s8", "s8", 8, 1030, 300, True), ("u8", "s8", 3, 64, 9001, True),
    ("s8", "u8", 5, 334, 640, True), ("s8", "s16", 2, 128, 700, True), ("s8", "s8", 2, 601, 500, False),
    ("s32", "s8", 2, 300, 512, False),
])  # fmt: skip
def test_integers(machine: str, left: str, right: str, m: int, k: int, n: int, in_pairs: bool) -> None:
    if not runs_here(machine):
        pytest.skip(f"this machine is no {machine}")
    sizes = {"M": m, "K": k, "N": n}
    text = re.sub(r"(?<=[\[,])[MKN](?=[,\]])", lambda name: str(sizes[name[0]]), INTEGERS)
    module = HloModule.from_text(text.replace("LEFT", left).replace("RIGHT", right))
    arguments: list[Any] = random_arguments(module, seed=k)
    x, matrix, others = arguments
    x[0], matrix[:, 0] = np.iinfo(x.dtype).min, np.iinfo(matrix.dtype).min
    native = Native(module, PROCESSORS[machine])
    forms = [call.kernel.form for call in native.program.calls if call.kernel is not None]
    assert any("sums of rows" in form for form in forms)
    assert any("2 products at a time" in form for form in forms) == in_pairs
    agreement.same(native(x, matrix, others), x.astype(np.int32) @ matrix.astype(np.int32))


PACKED = """
HloModule packed
ENTRY main {
  x = f32[M,K] parameter(0)
  bytes = u8[K,HALF] parameter(1)
  scales = f32[N] parameter(2)
  pairs = NARROW[K,HALF,2] bitcast-convert(bytes)
  numbers = NARROW[K,N] reshape(pairs)
  wide = f32[K,N] convert(numbers)
  y = f32[M,N] dot(x, wide), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[M,N] broadcast(scales), dimensions={1}
  ROOT r = f32[M,N] multiply(y, s)
}
"""


@pytest.mark.parametrize("machine", PROCESSORS)
@pytest.mark.parametrize(("narrow", "m", "k", "n"), [
    ("s4", 1, 64, 128), ("s4", 1, 301, 646), ("u4", 1, 1030, 300), ("s4", 1, 7, 9000), ("s4", 3, 40, 300),
    ("s4", 8, 301, 646), ("u4", 5, 32, 6000),
])  # fmt: skip
def test_two_numbers_of_a_byte(machine: str, narrow: str, m: int, k: int, n: int) -> None:
    if not runs_here(machine):
        pytest.skip(f"this machine is no {machine}")
    sizes = {"M": m, "K": k, "N": n, "HALF": n // 2}
    text = re.sub(r"(?<=[\[,])(M|K|N|HALF)(?=[,\]])", lambda name: str(sizes[name[0]]), PACKED)
    module = HloModule.from_text(text.replace("NARROW", narrow))
    arguments: list[Any] = random_arguments(module, seed=m)
    arguments[1] = np.random.default_rng(n).integers(0, 256, (k, n // 2)).astype(np.uint8)
    agreement.computed(Native(module, PROCESSORS[machine])(*arguments), module, arguments)


GROUPS = """
HloModule groups
ENTRY main {
  x = WIDE[M,K] parameter(0)
  held = STORED parameter(1)
  scales = f32[K/G,N] parameter(2)
  zeros = u8[K/G,N] parameter(3)
  UNPACK
  wide = WIDE[K,N] convert(numbers)
  grouped = WIDE[K/G,G,N] reshape(wide)
  wide_zeros = WIDE[K/G,N] convert(zeros)
  zero = WIDE[K/G,G,N] broadcast(wide_zeros), dimensions={0,2}
  shifted = WIDE[K/G,G,N] subtract(grouped, zero)
  narrow_scales = WIDE[K/G,N] convert(scales)
  scale = WIDE[K/G,G,N] broadcast(narrow_scales), dimensions={0,2}
  scaled = WIDE[K/G,G,N] multiply(shifted, scale)
  matrix = WIDE[K,N] reshape(scaled)
  ROOT y = WIDE[M,N] dot(x, matrix), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
PAIRS = """pairs = NARROW[K,N/2,2] bitcast-convert(held)
  numbers = NARROW[K,N] reshape(pairs)"""
SHIFTED = """copied = u8[K,N] copy(held)
  signed = s8[K,N] convert(copied)
  eight = s8[] constant(8)
  eights = s8[K,N] broadcast(eight), dimensions={}
  numbers = s8[K,N] subtract(signed, eights)"""
"""Numbers of 4 bits in bytes, as shifts and masks unpack them, without their bias."""


@pytest.mark.parametrize("machine", PROCESSORS)
@pytest.mark.parametrize(("narrow", "wide", "m", "k", "n", "group"), [
    ("s8", "f32", 1, 192, 517, 64), ("u8", "f32", 3, 96, 300, 32), ("s8", "bf16", 8, 640, 640, 128),
    ("s4", "f32", 1, 192, 646, 64), ("u4", "bf16", 5, 64, 300, 8), ("s4", "f32", 2, 1024, 1000, 1024),
])  # fmt: skip
def test_scales_and_zero_points_of_groups(
    machine: str, narrow: str, wide: str, m: int, k: int, n: int, group: int
) -> None:
    if not runs_here(machine):
        pytest.skip(f"this machine is no {machine}")
    is_packed = narrow in ("s4", "u4")
    read = SHIFTED if narrow == "u8" else f"numbers = {narrow}[K,N] copy(held)"
    text = GROUPS.replace("UNPACK", PAIRS if is_packed else read)
    text = text.replace("STORED", "u8[K,N/2]" if is_packed else f"{narrow}[K,N]").replace("WIDE", wide)
    sizes = {"M": m, "K": k, "N": n, "G": group, "K/G": k // group, "N/2": n // 2}
    text = re.sub(r"(?<=[\[,])(K/G|N/2|[MKNG])(?=[,\]])", lambda name: str(sizes[name[0]]), text)
    module = HloModule.from_text(text.replace("NARROW", narrow))
    arguments: list[Any] = random_arguments(module, seed=m)
    native = Native(module, PROCESSORS[machine])
    forms = [call.kernel.form for call in native.program.calls if call.kernel is not None]
    assert any("sums of rows" in form for form in forms)
    agreement.computed(native(*arguments), module, arguments)


HEADS = """
HloModule heads
ENTRY main {
  queries = f32[H,G,D] parameter(0)
  keys = NARROW[T,H,D] parameter(1)
  values = NARROW[T,H,D] parameter(2)
  others = u8[8388608] parameter(3)
  wide_keys = f32[T,H,D] convert(keys)
  wide_values = f32[T,H,D] convert(values)
  scores = f32[H,G,T] dot(queries, wide_keys), lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_contracting_dims={2}
  weights = f32[H,G,T] tanh(scores)
  mixed = f32[H,G,D] dot(weights, wide_values), lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_contracting_dims={0}
  ROOT r = (f32[H,G,T], f32[H,G,D]) tuple(scores, mixed)
}
"""  # noqa: E501


QUERIES = """
HloModule queries
ENTRY main {
  queries = NARROW[H,G,D] parameter(0)
  keys = NARROW[T,H,D] parameter(1)
  ROOT r = f32[H,G,T] dot(queries, keys), lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_contracting_dims={2}
}
"""  # noqa: E501


@pytest.mark.parametrize("machine", PROCESSORS)
@pytest.mark.parametrize(("narrow", "t", "heads", "group", "head"), [
    ("f32", 512, 3, 3, 64), ("f32", 301, 2, 1, 192), ("bf16", 403, 8, 4, 128), ("f16", 266, 5, 2, 64),
    ("f32", 1029, 2, 8, 64),
])  # fmt: skip
def test_heads_that_share_rows(machine: str, narrow: str, t: int, heads: int, group: int, head: int) -> None:
    if not runs_here(machine):
        pytest.skip(f"this machine is no {machine}")
    module = sized(HEADS, narrow, {"T": t, "H": heads, "G": group, "D": head})
    arguments: list[Any] = random_arguments(module, seed=t)
    native = Native(module, PROCESSORS[machine])
    forms = [call.kernel.form for call in native.program.calls if call.kernel is not None]
    is_prefetched = any("rows in turn" in form for form in forms)
    assert is_prefetched or any("a row after the other" in form for form in forms)
    assert any("sums of rows" in form for form in forms)
    agreement.computed(native(*arguments), module, arguments)


@pytest.mark.parametrize("machine", PROCESSORS)
@pytest.mark.parametrize(("narrow", "group"), [("bf16", 4), ("bf16", 7), ("f16", 2), ("f32", 8)])
def test_narrow_queries_of_heads_are_converted_once(machine: str, narrow: str, group: int) -> None:
    if not runs_here(machine):
        pytest.skip(f"this machine is no {machine}")
    module = sized(QUERIES, narrow, {"T": 259, "H": 4, "G": group, "D": 80})
    arguments: list[Any] = random_arguments(module, seed=group)
    native = Native(module, PROCESSORS[machine])
    (form,) = [
        form for call in native.program.calls if call.kernel is not None and (form := call.kernel.form)
    ]
    assert "rows in turn" in form
    assert ("columns packed" in form) == (narrow != "f32")
    agreement.computed(native(*arguments), module, arguments)


def sized(text: str, narrow: str, sizes: dict[str, int]) -> HloModule:
    """Return a program with numbers in place of the letters of sizes."""
    letters = "".join(sizes)
    text = re.sub(rf"(?<=[\[,])[{letters}](?=[,\]])", lambda name: str(sizes[name[0]]), text)
    return HloModule.from_text(text.replace("NARROW", narrow))


INNER = """
HloModule inner
ENTRY main {
  matrix = NARROW[B,M,K] parameter(0)
  x = f32[B,K,N] parameter(1)
  scales = f32[M] parameter(2)
  wide = f32[B,M,K] convert(matrix)
  y = f32[B,M,N] dot(wide, x), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
  s = f32[B,M,N] broadcast(scales), dimensions={1}
  ROOT r = f32[B,M,N] multiply(y, s)
}
"""  # noqa: E501


@pytest.mark.parametrize("machine", PROCESSORS)
@pytest.mark.parametrize(("narrow", "batches", "m", "k", "n"), [
    ("f32", 1, 4099, 301, 1), ("bf16", 1, 4100, 520, 1), ("s8", 1, 4097, 576, 2), ("s8", 3, 2053, 1040, 1),
])  # fmt: skip
def test_inner_products_of_rows_apart(
    machine: str, narrow: str, batches: int, m: int, k: int, n: int
) -> None:
    if not runs_here(machine):
        pytest.skip(f"this machine is no {machine}")
    module = sized(INNER, narrow, {"B": batches, "M": m, "K": k, "N": n})
    arguments: list[Any] = random_arguments(module, seed=m)
    native = Native(module, PROCESSORS[machine])
    forms = [call.kernel.form for call in native.program.calls if call.kernel is not None]
    assert any("rows apart" in form for form in forms)
    agreement.computed(native(*arguments), module, arguments)


DIGEST = """
import hashlib
from hloom.cpu.native import compile_or_load
from hloom.debug import random_arguments
from tests.cpu.test_row_stream import layers
module = layers("f32", 1, 301, 517)
(result,) = compile_or_load(module).caller.run(random_arguments(module, seed=1))
print(hashlib.sha256(result.tobytes()).hexdigest())
"""


def test_every_number_of_threads_gives_the_same_bits() -> None:
    def digest(threads: int) -> bytes:
        environment = {**os.environ, "HLOOM_NUM_THREADS": str(threads)}
        return subprocess.check_output([sys.executable, "-c", DIGEST], cwd=ROOT, env=environment)

    assert len({digest(threads) for threads in (1, 2, 3)}) == 1
