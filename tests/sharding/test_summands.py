"""Results that the program states to be unreduced stay summands on the devices, until something adds them."""

from __future__ import annotations

import numpy as np
import pytest

import hloom
from hloom.errors import HloError
from hloom.ir.module import HloModule
from tests import agreement
from tests.reducers import ADD
from tests.sharding.runs import run_partitioned

MESH = 'HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=2, "y"=2]>}}\n'
X = (np.arange(64) % 7).astype(np.float32).reshape(8, 8)
Y = (np.arange(64) % 5).astype(np.float32).reshape(8, 8)


def cut(*axes: str, unreduced: str = "") -> str:
    """Return the annotation of an array with dimensions cut over axes; "?" leaves one open."""
    cuts = ", ".join("{" + (axis if axis in ("", "?") else f'\\"{axis}\\"') + "}" for axis in axes)
    rest = f', unreduced={{\\"{unreduced}\\"}}' if unreduced else ""
    return f'frontend_attributes={{xla.sdy.sharding="#sdy.sharding<@mesh, [{cuts}]{rest}>"}}'


def constraint(name: str, of: str, shape: str, annotation: str) -> str:
    return f'{name} = {shape} custom-call({of}), custom_call_target="Sharding", {annotation}'


def opcodes_of(text: str) -> list[str]:
    """Run a program on 4 devices; its values are right. Return its collectives."""
    module = HloModule.from_text(MESH + text)
    wanted = hloom.compile(module, "evaluator")(X, Y)
    partitioned, (found,) = run_partitioned(module, 4, [X, Y])
    agreement.equal(found, wanted)
    return [i.opcode for i in partitioned.module.instructions() if i.operation.communicates]


PARTIAL = f"""
  x = f32[8,8] parameter(0), {cut("", "x")}
  y = f32[8,8] parameter(1), {cut("x", "")}
  d = f32[8,8] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  {constraint("u", "d", "f32[8,8]", cut("", "", unreduced="x"))}
"""
UNREDUCED = cut("", "", unreduced="x")


def test_partial_sums_are_left_unreduced() -> None:
    module = HloModule.from_text(MESH + "ENTRY e {" + PARTIAL + f"ROOT r = f32[8,8] copy(u), {UNREDUCED} }}")
    partitioned, (found,) = run_partitioned(module, 4, [X, Y])
    agreement.equal(found, X @ Y)
    assert not [i for i in partitioned.module.instructions() if i.operation.communicates]


@pytest.mark.parametrize(
    "annotation",
    [
        'sharding={unreduced metadata={op_type="sdy::reduction_op" op_name="MAX"}}',
        "sharding={mesh['x'=4], [{}, {}], unreduced=max{'x'}}",
        UNREDUCED.replace("unreduced=", "unreduced=max"),
    ],
)
def test_parts_whose_maximum_is_the_value_are_refused(annotation: str) -> None:
    program = f"ENTRY e {{ x = f32[8,8] parameter(0), {annotation}\n ROOT y = f32[8,8] negate(x) }}"
    module = HloModule.from_text(MESH + program)
    with pytest.raises(HloError) as caught:
        run_partitioned(module, 4, [X])
    assert caught.value.rule == "sharding.reduction-sum"


@pytest.mark.parametrize(
    "operation",
    [
        "negate(u)",
        "add(u, u)",
        "subtract(u, u)",
        "transpose(u), dimensions={1,0}",
        "reverse(u), dimensions={0}",
        "convert(u)",
        "multiply(u, w)",
        "divide(u, w)",
        "dot(u, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "dynamic-slice(u, n, n), dynamic_slice_sizes={8,8}",
        "dynamic-update-slice(u, u, n, n)",
        "select(q, u, u)",
        "pad(u, zero), padding=1_-1x0_0",
    ],
)
def test_linear_operations_give_summands_of_summands(operation: str) -> None:
    text = f"""ENTRY e {{ {PARTIAL}
      one = f32[] constant(2)
      zero = f32[] constant(0)
      n = s32[] constant(1)
      w = f32[8,8] broadcast(one), dimensions={{}}
      q = pred[8,8] compare(w, w), direction=EQ
      v = f32[8,8] {operation}, {UNREDUCED}
      {constraint("r", "v", "f32[8,8]", cut("", ""))}
      ROOT z = f32[8,8] copy(r), {cut("", "")} }}"""
    assert opcodes_of(text) == ["all-reduce"]


@pytest.mark.parametrize("operation", ["multiply(u, u)", "abs(u)", "maximum(u, u)", "divide(w, u)"])
def test_other_operations_take_the_sum(operation: str) -> None:
    text = f"""ENTRY e {{ {PARTIAL}
      one = f32[] constant(2)
      w = f32[8,8] broadcast(one), dimensions={{}}
      v = f32[8,8] {operation}, {UNREDUCED}
      ROOT z = f32[8,8] copy(v), {cut("", "")} }}"""
    assert opcodes_of(text) == ["all-reduce"]


def test_summands_become_tiles_by_a_reduce_scatter() -> None:
    text = f"ENTRY e {{ {PARTIAL} ROOT z = f32[8,8] multiply(u, u), {cut('x', '')} }}"
    assert opcodes_of(text) == ["reduce-scatter"]


def test_tiles_become_summands_without_a_collective() -> None:
    text = f"""ENTRY e {{ x = f32[8,8] parameter(0), {cut("x", "")}
      y = f32[8,8] parameter(1)
      ROOT z = f32[8,8] negate(x), {UNREDUCED} }}"""
    assert opcodes_of(text) == []


def test_a_loop_adds_summands_and_reduces_them_once() -> None:
    text = f"""
      body {{ p = (s32[], f32[8,8], f32[8,8], f32[8,8]) parameter(0)
        n = s32[] get-tuple-element(p), index=0
        one = s32[] constant(1)
        m = s32[] add(n, one)
        a = f32[8,8] get-tuple-element(p), index=1
        x = f32[8,8] get-tuple-element(p), index=2
        y = f32[8,8] get-tuple-element(p), index=3
        d = f32[8,8] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {UNREDUCED}
        b = f32[8,8] add(a, d), {UNREDUCED}
        ROOT t = (s32[], f32[8,8], f32[8,8], f32[8,8]) tuple(m, b, x, y) }}
      less {{ p = (s32[], f32[8,8], f32[8,8], f32[8,8]) parameter(0)
        n = s32[] get-tuple-element(p), index=0
        k = s32[] constant(3)
        ROOT c = pred[] compare(n, k), direction=LT }}
      ENTRY e {{ x = f32[8,8] parameter(0), {cut("", "x")}
        y = f32[8,8] parameter(1), {cut("x", "")}
        zero = s32[] constant(0)
        nothing = f32[] constant(0)
        s = f32[8,8] broadcast(nothing), dimensions={{}}, {UNREDUCED}
        t = (s32[], f32[8,8], f32[8,8], f32[8,8]) tuple(zero, s, x, y)
        w = (s32[], f32[8,8], f32[8,8], f32[8,8]) while(t), condition=less, body=body
        a = f32[8,8] get-tuple-element(w), index=1
        ROOT r = f32[8,8] copy(a), {cut("", "")} }}"""
    module = HloModule.from_text(MESH + text)
    partitioned, (found,) = run_partitioned(module, 4, [X, Y])
    agreement.equal(found, 3 * (X @ Y))
    entry = {i.opcode for i in partitioned.module.entry.instructions}
    every = [i.opcode for i in partitioned.module.instructions() if i.operation.communicates]
    assert every == ["all-reduce"] and "all-reduce" in entry


def test_open_dimensions_are_cut_further() -> None:
    text = f"""ENTRY e {{ x = f32[8,8] parameter(0), {cut("x", "y")}
      y = f32[8,8] parameter(1)
      n = f32[8,8] negate(x)
      {constraint("c", "n", "f32[8,8]", cut("x", "?"))}
      ROOT z = f32[8,8] add(c, c) }}"""
    module = HloModule.from_text(MESH + text)
    partitioned, (found,) = run_partitioned(module, 4, [X, Y])
    agreement.equal(found, -2 * X)
    assert [tiling.tiles for tiling in partitioned.results] == [(2, 2)]


def test_sums_without_elements_are_not_scattered() -> None:
    text = f"""{ADD}
      ENTRY e {{ x = f32[8,8] parameter(0), {cut("", "x")}
        y = f32[8,8] parameter(1)
        z = f32[0,8] slice(x), slice={{[0:0], [0:8]}}, {cut("", "x")}
        zero = f32[] constant(0)
        ROOT r = f32[0] reduce(z, zero), dimensions={{1}}, to_apply=add, {cut("x")} }}"""
    assert opcodes_of(text) in ([], ["all-reduce"])
