"""Integers of 2 and 4 bits: upper bits of results are zero, and those of arguments are ignored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom
from hloom.ir.module import HloModule
from hloom.shape.element_type import ElementType
from tests import agreement
from tests.reducers import binary, comparison

TYPES = ("s2", "u4")
COMBINERS = (
    binary("add", "T", name="add")
    + binary("multiply", "T", name="times")
    + comparison("GE", "T", name="larger")
    + """
pair { a = T[] parameter(0)  i = T[] parameter(1)  b = T[] parameter(2)  j = T[] parameter(3)
  s = T[] add(a, b)  p = T[] multiply(i, j)  ROOT r = (T[], T[]) tuple(s, p) }
"""
)
PARAMETERS = (
    "x = T[6,40] parameter(0)",
    "y = T[40,9] parameter(1)",
    "z = T[6,40] parameter(2)",
    "i = s32[6,1] parameter(3)",
)
PROGRAMS = {
    "add": "ROOT r = T[6,40] add(x, z)",
    "subtract": "ROOT r = T[6,40] subtract(x, z)",
    "multiply": "ROOT r = T[6,40] multiply(x, z)",
    "negate": "ROOT r = T[6,40] negate(x)",
    "not": "ROOT r = T[6,40] not(x)",
    "power": "ROOT r = T[6,40] power(x, z)",
    "divide": "ROOT r = T[6,40] divide(x, z)",
    "remainder": "ROOT r = T[6,40] remainder(x, z)",
    "shift-left": "ROOT r = T[6,40] shift-left(x, z)",
    "shift-right-logical": "ROOT r = T[6,40] shift-right-logical(x, z)",
    "shift-right-arithmetic": "ROOT r = T[6,40] shift-right-arithmetic(x, z)",
    "count-leading-zeros": "ROOT r = T[6,40] count-leading-zeros(x)",
    "popcnt": "ROOT r = T[6,40] popcnt(x)",
    "compare": "ROOT r = pred[6,40] compare(x, z), direction=LT",
    "convert": "ROOT r = f32[6,40] convert(x)",
    "dot": "ROOT r = T[6,9] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "dot of rows": "ROOT r = T[6,6] dot(x, z), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "batched dot": "ROOT r = T[6] dot(x, z), lhs_batch_dims={0}, rhs_batch_dims={0}, "
    "lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "fused dot": "d = T[6,9] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "ROOT r = s32[6,9] convert(d)",
    "long dot": "a = T[240] reshape(x)\n b = T[240] reshape(z)\n"
    "ROOT r = T[] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "dot to s32": "ROOT r = s32[6,9] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "large dot": "a = T[240] reshape(x)\n b = T[64,240] broadcast(a), dimensions={1}\n"
    "c = T[240,48] broadcast(a), dimensions={0}\n d = T[64,48] dot(b, c), lhs_contracting_dims={1}, "
    "rhs_contracting_dims={0}\n ROOT r = s32[64,48] convert(d)",
    "convolution": "a = T[6,8,5] reshape(x)\n k = T[3,5,24] reshape(y)\n"
    "ROOT r = T[6,8,24] convolution(a, k), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f",
    "convolution of groups": "a = T[6,8,5] reshape(x)\n k = T[8,1,45] reshape(y)\n"
    "ROOT r = T[6,1,45] convolution(a, k), window={size=8}, dim_labels=b0f_0io->b0f, feature_group_count=5",
    "reduce": "zero = T[] constant(0)\n ROOT r = T[6] reduce(x, zero), dimensions={1}, to_apply=add",
    "reduce of columns": "one = T[] constant(1)\n"
    "ROOT r = T[40] reduce(x, one), dimensions={0}, to_apply=times",
    "reduce of two": "zero = T[] constant(0)\n one = T[] constant(1)\n"
    "ROOT r = (T[6], T[6]) reduce(x, z, zero, one), dimensions={1}, to_apply=pair",
    "reduce-window": "zero = T[] constant(0)\n ROOT r = T[6,40] reduce-window(x, zero), "
    "window={size=3x5 pad=1_1x2_2}, to_apply=add",
    "running sum": "zero = T[] constant(0)\n ROOT r = T[6,40] reduce-window(x, zero), "
    "window={size=1x40 pad=0_0x39_0}, to_apply=add",
    "select-and-scatter": "one = T[] constant(1)\n s = T[3,10] slice(z), slice={[0:3],[0:10]}\n"
    "ROOT r = T[6,40] select-and-scatter(x, s, one), window={size=3x5 stride=2x4 pad=0_1x0_1}, "
    "select=larger, scatter=add",
    "scatter": "ROOT r = T[6,40] scatter(x, i, z), update_window_dims={1}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
    "gather": "ROOT r = T[6,40] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, "
    "start_index_map={0}, index_vector_dim=1, slice_sizes={1,40}",
    "sort": "ROOT r = T[6,40] sort(x), dimensions={1}, to_apply=larger",
    "iota": "n = T[6,40] iota(), iota_dimension=1\n ROOT r = s32[6,40] convert(n)",
    "map": "ROOT r = T[6,40] map(x, z), dimensions={0,1}, to_apply=times",
    "pad": "one = T[] constant(1)\n ROOT r = T[8,42] pad(x, one), padding=1_1x1_1",
    "transpose": "ROOT r = T[40,6] transpose(x), dimensions={1,0}",
    "concatenate": "ROOT r = T[12,40] concatenate(x, z), dimensions={0}",
    "copy": "ROOT r = T[6,40] copy(x)",
    "same": "ROOT r = (T[6,40], T[6,40]) tuple(x, z)",
    "clamp": "ROOT r = T[6,40] clamp(x, z, x)",
    "select": "p = pred[6,40] compare(x, z), direction=EQ\n ROOT r = T[6,40] select(p, x, z)",
}


def text_of(kind: str) -> str:
    """Return all programs for a type as one: the tuple of their results."""
    head = "\n  ".join(PARAMETERS)
    bodies = [f"p{n} {{\n  {head}\n  {body}\n}}\n" for n, body in enumerate(PROGRAMS.values())]
    calls = [f"c{n} = call(x, y, z, i), to_apply=p{n}" for n in range(len(PROGRAMS))]
    root = f"ROOT r = tuple({', '.join(f'c{n}' for n in range(len(PROGRAMS)))})"
    entry = "\n  ".join([*PARAMETERS, *calls, root])
    return f"HloModule m\n{COMBINERS}{''.join(bodies)}ENTRY e {{\n  {entry}\n}}\n".replace("T[", f"{kind}[")


def arguments(kind: str) -> list[Any]:
    """Return random bytes, with bits set beyond those of the type."""
    generator = np.random.default_rng(0)
    dtype = ElementType.parse(kind).numpy_dtype
    raw = [generator.integers(0, 256, sizes, dtype=np.uint8) for sizes in ((6, 40), (40, 9), (6, 40))]
    return [*(r.view(dtype) for r in raw), generator.integers(0, 6, (6, 1)).astype(np.int32)]


@pytest.mark.parametrize("kind", TYPES)
def test_results_wrap_and_other_bits_are_not_looked_at(kind: str) -> None:
    module = HloModule.from_text(text_of(kind))
    given = arguments(kind)
    wanted = hloom.compile(module, "evaluator")(*given)
    found = hloom.compile(module, "cpu")(*given)
    assert len(found) == len(PROGRAMS)
    for a, b in zip(found, wanted, strict=True):
        pairs = zip(a, b, strict=True) if isinstance(a, tuple) else [(a, b)]
        for ours, theirs in pairs:
            agreement.equal(ours.astype(np.float64), theirs.astype(np.float64))
