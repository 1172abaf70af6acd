"""A toy target runs programs with passes, plans and code generation that do not refer to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.codegen.llvm import print_module
from hloom.errors import HloError
from hloom.runtime.backend import CompileOptions, register_backend, unregister_backend
from hloom.shape.shape import Shape
from tests import agreement
from tests.arrays import f32
from tests.evaluation import parse
from tests.reducers import ADD, binary
from tests.scalar_backend.backend import ScalarBackend

HEAD = "HloModule toy\n" + ADD + binary("maximum", "s32", name="largest")
PROGRAMS = {
    "elementwise": (
        "x = f32[6,8] parameter(0)  y = f32[6,8] parameter(1)  s = f32[6,8] add(x, y)  "
        "ROOT r = f32[6,8] tanh(s)"
    ),
    "scalars": "x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT r = f32[] atan2(x, y)",
    "integers": "x = s32[9] parameter(0)  y = s32[9] parameter(1)  ROOT r = s32[9] remainder(x, y)",
    "bytes": "x = u8[9] parameter(0)  ROOT r = u8[9] popcnt(x)",
    "bf16": "x = bf16[7] parameter(0)  y = bf16[7] parameter(1)  ROOT r = bf16[7] multiply(x, y)",
    "complex": "x = c64[5] parameter(0)  ROOT r = c64[5] exponential(x)",
    "predicate": (
        "x = f32[5] parameter(0)  y = f32[5] parameter(1)  p = pred[5] compare(x, y), direction=LT  "
        "ROOT r = f32[5] select(p, x, y)"
    ),
    "broadcast": (
        "x = f32[8] parameter(0)  b = f32[6,8] broadcast(x), dimensions={1}  "
        "ROOT r = f32[6,8] negate(b)"
    ),
    "transpose": "x = f32[8,6] parameter(0)  ROOT r = f32[6,8] transpose(x), dimensions={1,0}",
    "reshape": "x = f32[48] parameter(0)  y = f32[6,8] reshape(x)  ROOT r = f32[6,8] abs(y)",
    "slice": "x = f32[9,8] parameter(0)  ROOT r = f32[4,8] slice(x), slice={[1:9:2],[0:8]}",
    "reverse": "x = s8[6,8] parameter(0)  ROOT r = s8[6,8] reverse(x), dimensions={1}",
    "pad": (
        "x = f32[6,8] parameter(0)  z = f32[] constant(7)  "
        "ROOT r = f32[9,8] pad(x, z), padding=1_2x0_0"
    ),
    "concatenate": (
        "x = f32[2,8] parameter(0)  y = f32[4,8] parameter(1)  "
        "ROOT r = f32[6,8] concatenate(x, y), dimensions={0}"
    ),
    "iota": "ROOT r = s32[6,8] iota(), iota_dimension=1",
    "dynamic slice": (
        "x = f32[6,8] parameter(0)  i = s32[] parameter(1)  j = s32[] parameter(2)  "
        "ROOT r = f32[2,8] dynamic-slice(x, i, j), dynamic_slice_sizes={2,8}"
    ),
    "update": (
        "x = f32[6,8] parameter(0)  u = f32[2,8] parameter(1)  i = s32[] parameter(2)  "
        "j = s32[] parameter(3)  ROOT r = f32[6,8] dynamic-update-slice(x, u, i, j)"
    ),
    "gather": (
        "x = f32[6,8] parameter(0)  i = s32[5] parameter(1)  "
        "ROOT r = f32[5,8] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}"
    ),
    "reduce": (
        "x = f32[6,4,8] parameter(0)  z = f32[] constant(0)  "
        "ROOT r = f32[6,8] reduce(x, z), dimensions={1}, to_apply=add"
    ),
    "window": (
        "x = s32[9] parameter(0)  z = s32[] constant(-5)  "
        "ROOT r = s32[9] reduce-window(x, z), window={size=3 pad=1_1}, to_apply=largest"
    ),
    "dot": (
        "x = f32[6,5] parameter(0)  y = f32[5,8] parameter(1)  "
        "ROOT r = f32[6,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    ),
    "convolution": (
        "x = f32[1,6,6,2] parameter(0)  k = f32[3,3,2,4] parameter(1)  "
        "ROOT r = f32[1,6,6,4] convolution(x, k), window={size=3x3 pad=1_1x1_1}, "
        "dim_labels=b01f_01io->b01f"
    ),
}  # fmt: skip
LOOP = """HloModule loop
more { s = (s32[], f32[4]) parameter(0)  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)  ROOT l = pred[] compare(i, n), direction=LT }
step { s = (s32[], f32[4]) parameter(0)  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1  one = s32[] constant(1)  j = s32[] add(i, one)
  y = f32[4] multiply(x, x)  ROOT t = (s32[], f32[4]) tuple(j, y) }
ENTRY e { z = s32[] constant(0)  x = f32[4] parameter(0)  t = (s32[], f32[4]) tuple(z, x)
  ROOT w = (s32[], f32[4]) while(t), condition=more, body=step }
"""


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    register_backend(ScalarBackend())
    yield
    unregister_backend("scalar")


def drawn(rng: np.random.Generator, shape: Shape) -> Any:
    """Draw numbers of a shape around 0; nonnegative for unsigned integers."""
    kind = shape.element_type
    if kind.is_complex:
        parts = rng.normal(size=(2, *shape.dimensions))
        return (parts[0] + 1j * parts[1]).astype(kind.numpy_dtype)
    low = 0 if kind.is_unsigned else -5
    numbers = rng.integers(low, 6, shape.dimensions) if kind.is_integer else rng.normal(size=shape.dimensions)
    return np.asarray(numbers).astype(kind.numpy_dtype)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run(name: str) -> None:
    module = parse(HEAD + "ENTRY e {\n" + PROGRAMS[name].replace("  ", "\n") + "\n}")
    rng = np.random.default_rng(0)
    arguments = [drawn(rng, p.shape) for p in module.entry.parameters]
    agreement.computed(hloom.compile(module, backend="scalar")(*arguments), module, arguments)


def test_loops_run() -> None:
    x = f32([0.5, 1, -1, 1.5])
    count, values = hloom.compile(parse(LOOP), backend="scalar")(x)
    agreement.same(count, np.int32(5))
    agreement.near(values, np.float64(x) ** 32, 32)


def test_no_vector_is_in_the_code() -> None:
    module = parse(HEAD + "ENTRY e {\n" + PROGRAMS["elementwise"].replace("  ", "\n") + "\n}")
    program = ScalarBackend().compile(module, CompileOptions())
    assert " x float>" not in print_module(program.module)  # type: ignore[attr-defined]


def test_an_operation_without_a_rule_is_refused() -> None:
    text = """HloModule sorting
less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT l = pred[] compare(a, b), direction=LT }
ENTRY e { x = f32[4] parameter(0)  ROOT r = f32[4] sort(x), dimensions={0}, to_apply=less }"""
    with pytest.raises(HloError) as caught:
        hloom.compile(parse(text), backend="scalar")
    assert caught.value.rule == "cpu.element-rule"
