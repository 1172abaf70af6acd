"""Narrow dimensions: the merged operations move and compute the same elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hloom.evaluate.evaluator import Evaluator
from hloom.ir.computation import HloComputation
from hloom.operations.structure import Parameter
from hloom.plan.parts import KernelParts, merge_narrow_dimensions
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import Native

SHAPE = "f32[2,5,3]"
POINTS = f"x = {SHAPE} parameter(0)  y = {SHAPE} parameter(1)  z = f32[] constant(7)\n"
MERGED = {
    "pad": "ROOT r = f32[2,9,3] pad(x, z), padding=0_0x1_3x0_0",
    "crop": "ROOT r = f32[2,3,3] pad(x, z), padding=0_0x-1_-1x0_0",
    "pad around": "ROOT r = f32[4,5,3] pad(x, z), padding=1_1x0_0x0_0",
    "concatenate": "ROOT r = f32[2,10,3] concatenate(x, y), dimensions={1}",
    "concatenate along an outer dimension": "ROOT r = f32[4,5,3] concatenate(x, y), dimensions={0}",
    "rotate": (
        "a = f32[2,4,3] slice(x), slice={[0:2],[1:5],[0:3]}  "
        "b = f32[2,1,3] slice(x), slice={[0:2],[0:1],[0:3]}  "
        "ROOT r = f32[2,5,3] concatenate(a, b), dimensions={1}"
    ),
    "elementwise with a scalar": (
        "p = f32[2,6,3] pad(x, z), padding=0_0x0_1x0_0  b = f32[2,6,3] broadcast(z), dimensions={}  "
        "ROOT r = f32[2,6,3] multiply(p, b)"
    ),
    "broadcast": (
        "v = f32[5,3] parameter(2)  b = f32[2,5,3] broadcast(v), dimensions={1,2}  "
        "c = f32[2,10,3] concatenate(x, b), dimensions={1}  ROOT r = f32[2,10,3] negate(c)"
    ),
    "transpose of whole points": (
        "t = f32[5,3,2] parameter(2)  u = f32[2,5,3] transpose(t), dimensions={2,0,1}  "
        "ROOT r = f32[2,10,3] concatenate(u, x), dimensions={1}"
    ),
    "reverse": (
        "v = f32[2,5,3] reverse(x), dimensions={1,2}  ROOT r = f32[2,10,3] concatenate(v, x), dimensions={1}"
    ),
    "reverse along an outer dimension": (
        "v = f32[2,5,3] reverse(x), dimensions={0}  ROOT r = f32[2,10,3] concatenate(v, x), dimensions={1}"
    ),
    "reshape": (
        "q = f32[10,3] parameter(2)  v = f32[2,5,3] reshape(q)  "
        "ROOT r = f32[2,10,3] concatenate(v, x), dimensions={1}"
    ),
    "reshape of numbers": (
        "q = f32[2,15] parameter(2)  v = f32[2,5,3] reshape(q)  "
        "ROOT r = f32[2,10,3] concatenate(v, x), dimensions={1}"
    ),
    "iota along an outer dimension": (
        "v = f32[2,5,3] iota(), iota_dimension=0  ROOT r = f32[2,10,3] concatenate(v, x), dimensions={1}"
    ),
}
APART = {
    "pad inside points": "ROOT r = f32[2,5,4] pad(x, z), padding=0_0x0_0x0_1",
    "pad between points": "ROOT r = f32[2,9,3] pad(x, z), padding=0_0x0_0_1x0_0",
    "concatenate inside points": "ROOT r = f32[2,5,6] concatenate(x, y), dimensions={2}",
    "broadcast of one point": (
        "v = f32[3] parameter(2)  b = f32[2,5,3] broadcast(v), dimensions={2}  "
        "ROOT r = f32[2,10,3] concatenate(x, b), dimensions={1}"
    ),
    "slice of points": (
        "w = f32[2,5,4] parameter(2)  s = f32[2,5,3] slice(w), slice={[0:2],[0:5],[1:4]}  "
        "ROOT r = f32[2,10,3] concatenate(x, s), dimensions={1}"
    ),
    "slice of every other point": (
        "w = f32[2,9,3] parameter(2)  s = f32[2,5,3] slice(w), slice={[0:2],[0:9:2],[0:3]}  "
        "ROOT r = f32[2,10,3] concatenate(x, s), dimensions={1}"
    ),
    "reverse along points": (
        "v = f32[2,5,3] reverse(x), dimensions={1}  ROOT r = f32[2,10,3] concatenate(v, x), dimensions={1}"
    ),
    "iota along points": (
        "v = f32[2,5,3] iota(), iota_dimension=1  ROOT r = f32[2,10,3] concatenate(v, x), dimensions={1}"
    ),
    "transpose into points": (
        "t = f32[5,2,3] parameter(2)  u = f32[2,5,3] transpose(t), dimensions={1,0,2}  "
        "ROOT r = f32[2,10,3] concatenate(u, x), dimensions={1}"
    ),
    "one array read in two ways": (
        "s = f32[1,1,1] slice(x), slice={[1:2],[2:3],[1:2]}  o = f32[] reshape(s)  "
        "b = f32[2,10,3] broadcast(o), dimensions={}  c = f32[2,10,3] concatenate(x, y), dimensions={1}  "
        "ROOT r = f32[2,10,3] add(b, c)"
    ),
    "a padding value in a tuple": (
        "t = (f32[], f32[]) parameter(2)  s = f32[] get-tuple-element(t), index=0  "
        "ROOT r = f32[2,9,3] pad(x, s), padding=0_0x1_3x0_0"
    ),
    "wide points": "w = f32[5,64] parameter(2)  ROOT r = f32[6,64] pad(w, z), padding=0_1x0_0",
}


def parts_of(text: str) -> KernelParts:
    """Return the parts of a kernel that computes an entry."""
    order = parse(POINTS + text).entry.post_order()
    inputs = tuple(i for i in order if i.opcode == "parameter" and i.shape.is_array)
    return KernelParts(inputs, (order[-1],), tuple(i for i in order if i.opcode != "parameter"))


@pytest.mark.parametrize("name", MERGED)
def test_merged_operations_compute_the_same_elements(name: str) -> None:
    parts = parts_of(MERGED[name])
    merged = merge_narrow_dimensions(parts)
    assert merged.roots[0].shape.rank < parts.roots[0].shape.rank
    random = np.random.default_rng(0)
    arguments = [random.normal(size=i.shape.dimensions).astype(np.float32) for i in parts.inputs]
    reshaped = [a.reshape(i.shape.dimensions) for a, i in zip(arguments, merged.inputs, strict=True)]
    results: list[Any] = [
        Evaluator().run(computation_of(each), values)
        for each, values in ((parts, arguments), (merged, reshaped))
    ]
    agreement.same(np.ravel(results[1]), np.ravel(results[0]))


@pytest.mark.parametrize("name", MERGED)
def test_native_code_runs_over_merged_dimensions(name: str) -> None:
    module = parse(POINTS + MERGED[name])
    random = np.random.default_rng(1)
    arguments = [random.normal(size=p.shape.dimensions).astype(np.float32) for p in module.entry.parameters]
    agreement.same(Native(module)(*arguments), Evaluator().run(module.entry, arguments))


@pytest.mark.parametrize("name", APART)
def test_dimensions_that_an_operation_tells_apart_stay_apart(name: str) -> None:
    parts = parts_of(APART[name])
    assert merge_narrow_dimensions(parts) is parts


def computation_of(parts: KernelParts) -> HloComputation:
    """Return a computation of the kernel's inputs that returns its result; shapes are checked."""
    computation = HloComputation("kernel")
    copies = {i: i.clone(operation=Parameter(parameter_number=n)) for n, i in enumerate(parts.inputs)}
    for i in parts.members:
        copies[i] = i.clone(operands=[copies[o] for o in i.operands])
    for copy in copies.values():
        copy.check_shape()
        computation.add(copy, root=copy is copies[parts.roots[0]])
    return computation
