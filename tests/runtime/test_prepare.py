"""Arguments that do not change are bound, and what depends on them alone is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.codegen.target import Target
from hloom.cpu.kernels.dot.gemm_plan import TilePlan
from hloom.cpu.kernels.dot.matrix_product import plan_of
from hloom.cpu.preparation import divided
from hloom.debug import random_arguments
from hloom.errors import HloError
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.runtime.backend import SplitProgram
from hloom.runtime.executable import PreparedExecutable
from tests import agreement
from tests.arrays import f32
from tests.evaluation import parse
from tests.processors import PROCESSORS
from tests.reducers import ADD

PRODUCT = """
HloModule product
ENTRY main {
  x.1 = f32[17,96] parameter(0)
  w.1 = f32[96,512] parameter(1)
  b.1 = f32[512] parameter(2)
  y = f32[17,512] dot(x.1, w.1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  bias = f32[17,512] broadcast(b.1), dimensions={1}
  ROOT z = f32[17,512] add(y, bias)
}
"""
LARGE = PRODUCT.replace("96", "768")
LAYERS = """
HloModule layers
body {
  state = (s32[], f32[17,768], f32[5,768,768]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[17,768] get-tuple-element(state), index=1
  layers = f32[5,768,768] get-tuple-element(state), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  slice = f32[1,768,768] dynamic-slice(layers, i, zero, zero), dynamic_slice_sizes={1,768,768}
  layer = f32[768,768] reshape(slice)
  y = f32[17,768] dot(x, layer), lhs_contracting_dims={1}, rhs_contracting_dims={CONTRACTED}
  z = f32[17,768] tanh(y)
  ROOT r = (s32[], f32[17,768], f32[5,768,768]) tuple(next, z, layers)
}
condition {
  state = (s32[], f32[17,768], f32[5,768,768]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(5)
  ROOT more = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[17,768] parameter(0)
  layers = f32[5,768,768] parameter(1)
  zero = s32[] constant(0)
  state = (s32[], f32[17,768], f32[5,768,768]) tuple(zero, x, layers)
  loop = (s32[], f32[17,768], f32[5,768,768]) while(state), condition=condition, body=body
  ROOT r = f32[17,768] get-tuple-element(loop), index=1
}
"""
NORMS = (
    """
HloModule norms
"""
    + ADD
    + """
ENTRY main {
  w = f32[96,512] parameter(0)
  x = f32[17,512] parameter(1)
  zero = f32[] constant(0)
  squares = f32[96,512] multiply(w, w)
  sums = f32[512] reduce(squares, zero), dimensions={0}, to_apply=add
  norms = f32[512] sqrt(sums)
  wide = f32[17,512] broadcast(norms), dimensions={1}
  ROOT y = f32[17,512] divide(x, wide)
}
"""
)


def refusal(call: Callable[[], object]) -> HloError:
    with pytest.raises(HloError) as caught:
        call()
    return caught.value


def same_bits(module: HloModule, kept: dict[int | str, int]) -> PreparedExecutable:
    """Prepare random arguments, by number, and compare results with those of the whole program."""
    exe = hloom.compile(module)
    arguments: list[Any] = random_arguments(module, seed=1)
    prepared = exe.prepare({name: arguments[number] for name, number in kept.items()})
    others = [a for number, a in enumerate(arguments) if number not in kept.values()]
    agreement.same(prepared(*others), exe(*arguments))
    return prepared


def product_in(module: HloModule) -> HloInstruction:
    (dot,) = (i for i in module.instructions() if i.opcode == "dot")
    return dot


def named(text: str, target: str, kept: set[int]) -> SplitProgram:
    return divided(parse(text), kept, PROCESSORS[target])


# -- what is prepared


def test_results_have_the_same_bits() -> None:
    prepared = same_bits(parse(LARGE), {"w.1": 1})
    assert prepared.bound_bytes == 768 * 512 * 4
    same_bits(parse(LARGE), {"b": 2, 1: 1})
    for contracted in "01":
        same_bits(parse(LAYERS.replace("CONTRACTED", contracted)), {"layers": 1})
    same_bits(parse(NORMS), {"w": 0})


@pytest.mark.parametrize(
    ("target", "panels"), [("x86-64-v3", "f32[32,768,16]"), ("x86-64-v4", "f32[16,768,32]")]
)
def test_products_read_panels(target: str, panels: str) -> None:
    division = named(LARGE, target, {1})
    assert [str(s) for s in division.preparing.entry.root.shape.tuple_shapes] == [f"{panels}{{2,1,0}}"]
    assert [p.name for p in division.remaining.entry.parameters][:2] == ["x.1", "b.1"]
    assert division.remaining.entry.parameters[2].shape.to_string(layout=False) == panels
    assert (division.sources, division.others) == ((1,), (0, 2))


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("rows", [9, 17, 128, 300, 600])
@pytest.mark.parametrize("depth", [300, 768, 3072])
def test_sums_have_the_same_order(target: str, rows: int, depth: int) -> None:
    """Blocks of a sum do not depend on who packs the factor."""
    text = LARGE.replace("17", str(rows)).replace("768", str(depth))
    plans = [
        plan_of(product_in(m), PROCESSORS[target]) for m in (parse(text), named(text, target, {1}).remaining)
    ]
    assert all(isinstance(plan, TilePlan) for plan in plans)
    assert len({plan.depth for plan in plans if isinstance(plan, TilePlan)}) == 1


@pytest.mark.parametrize("contracted", ["0", "1"])
def test_products_in_loops_read_stacks_of_panels(contracted: str) -> None:
    division = named(LAYERS.replace("CONTRACTED", contracted), "x86-64-v3", {1})
    shapes = [p.shape.to_string(layout=False) for p in division.remaining.entry.parameters]
    assert shapes == ["f32[17,768]", "f32[5,48,768,16]"]
    assert "f32[5,768,768]" not in division.remaining.to_text()


def test_panels_of_a_processor_with_short_vectors() -> None:
    target = Target.named("aarch64-linux-gnu", "neoverse-v1")
    division = divided(parse(LARGE), {1}, target)
    assert division.remaining.entry.parameters[2].shape.dimensions == (32, 768, 16)


@pytest.mark.parametrize("text", [
    LARGE.replace("17", "4"),  # a tile of four rows reads a row of the factor once
    LARGE.replace("512", "500"),  # columns that are not whole panels
    PRODUCT.replace("f32[96,512] parameter", "bf16[96,512] parameter").replace(
        "y =", "wide = f32[96,512] convert(w.1)\n  y ="
    ).replace("dot(x.1, w.1)", "dot(x.1, wide)"),  # packed, it would be as wide as the sums
])  # fmt: skip
def test_other_factors_stay_as_they_are(text: str) -> None:
    division = named(text, "x86-64-v3", {1})
    assert division.sources == ()
    assert division.others == (0, 2, 1)
    same_bits(parse(text), {"w": 1})


def test_computations_run_once() -> None:
    division = named(NORMS, "x86-64-v3", {0})
    assert "sqrt" in division.preparing.to_text()
    remaining = division.remaining.to_text()
    assert "sqrt" not in remaining
    assert "f32[96,512]" not in remaining


def test_nothing_grows() -> None:
    text = """
    HloModule outer
    ENTRY main {
      w = f32[512] parameter(0)
      x = f32[512,512] parameter(1)
      a = f32[512,512] broadcast(w), dimensions={0}
      b = f32[512,512] broadcast(w), dimensions={1}
      c = f32[512,512] multiply(a, b)
      e = f32[512,512] exponential(c)
      ROOT y = f32[512,512] add(x, e)
    }
    """
    division = named(text, "x86-64-v3", {0})
    assert division.sources == ()
    same_bits(parse(text), {"w": 0})


def test_results_that_depend_on_kept_arguments_only() -> None:
    same_bits(parse(NORMS), {"w": 0, "x": 1})


def test_aliases_name_the_parameters_that_remain() -> None:
    text = NORMS.replace("HloModule norms", "HloModule norms, input_output_alias={ {}: (1, {}, may-alias) }")
    (alias,) = named(text, "x86-64-v3", {0}).remaining.config.aliases.values()
    assert alias.parameter_number == 0


# -- the handle


def test_arrays_that_are_not_contiguous() -> None:
    exe = hloom.compile(parse(NORMS))
    w, x = (np.asarray(a) for a in random_arguments(parse(NORMS), seed=2))
    strided = np.asfortranarray(w)
    agreement.same(exe.prepare(w=strided)(x), exe(w, x))


def test_profiles_are_of_the_remaining_program() -> None:
    module = parse(NORMS)
    w, x = random_arguments(module, seed=2)
    lines = hloom.compile(module).prepare(w=w).profile(x).lines
    assert not any("reduce" in line.text for line in lines)


def test_arguments_are_released() -> None:
    module = parse(NORMS)
    w, x = random_arguments(module, seed=3)
    with hloom.compile(module).prepare(w=w) as prepared:
        prepared(x)
        assert prepared.bound_bytes > 0
    assert prepared.bound_bytes == 0
    assert refusal(lambda: prepared(x)).rule == "prepare.released"


def test_refusals() -> None:
    exe = hloom.compile(parse(NORMS))
    w, x = random_arguments(parse(NORMS), seed=4)
    assert refusal(exe.prepare).rule == "prepare.argument"
    unknown = refusal(lambda: exe.prepare(weights=w))
    assert unknown.rule == "prepare.argument"
    assert "'weights' is no parameter; the parameters are w, x" in unknown.message
    assert "has two values" in refusal(lambda: exe.prepare({0: w}, w=w)).message
    assert refusal(lambda: exe.prepare({2: w})).rule == "prepare.argument"
    assert refusal(lambda: exe.prepare(w=f32([1]))).rule == "run.argument"
    assert refusal(lambda: exe.prepare(w=w)(x, x)).rule == "run.argument-count"
    evaluator = hloom.compile(parse(NORMS), backend="evaluator")
    assert refusal(lambda: evaluator.prepare(w=w)).rule == "compile.not-offered"
    two = hloom.compile(parse(NORMS), num_replicas=2)
    assert refusal(lambda: two.prepare(w=w)).rule == "run.one-device"
    dynamic = parse("HloModule d\nENTRY e {\n  p = f32[<=4] parameter(0)\n  ROOT n = f32[<=4] negate(p)\n}")
    assert refusal(lambda: hloom.compile(dynamic).prepare({0: f32([1])})).rule == "prepare.dynamic"
