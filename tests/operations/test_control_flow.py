"""call, while, conditional and fusion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.arrays import f32
from tests.devices import program
from tests.evaluation import evaluate, refused
from tests.work import bytecodes

COMPUTATIONS = """
double { x = f32[2] parameter(0)
  ROOT r = f32[2] add(x, x) }
negate { x = f32[2] parameter(0)
  ROOT r = f32[2] negate(x) }
same { ROOT x = f32[2] parameter(0) }
scalar { x = f32[2] parameter(0)
  ROOT c = f32[] constant(1) }
no { x = f32[2] parameter(0)
  ROOT c = pred[] constant(false) }
"""


def over(body: str) -> str:
    return program("p = f32[2] parameter(0)\n" + body, COMPUTATIONS)


def test_a_call_is_its_computation() -> None:
    assert evaluate(over("ROOT c = f32[2] call(p), to_apply=double"), f32([1, 2])).tolist() == [2, 4]


def test_a_composite_is_its_definition() -> None:
    text = over(
        "ROOT c = f32[2] call(p), to_apply=double, is_composite=true, "
        'frontend_attributes={composite.name="my.double",composite.version="1"}'
    )
    assert evaluate(text, f32([1, 2])).tolist() == [2, 4]


def test_a_fusion_is_its_computation() -> None:
    text = over(
        "ROOT c = f32[2] fusion(p), kind=kLoop, output_to_operand_aliasing={{}: (0, {})}, calls=negate"
    )
    assert evaluate(text, f32([1, 2])).tolist() == [-1, -2]


LOOP = """
body {
  state = (s32[], f32[10]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  v = f32[10] get-tuple-element(state), index=1
  one = s32[] constant(1)
  ones = f32[10] constant({1, 1, 1, 1, 1, 1, 1, 1, 1, 1})
  j = s32[] add(i, one)
  w = f32[10] add(v, ones)
  ROOT next = (s32[], f32[10]) tuple(j, w)
}
condition {
  state = (s32[], f32[10]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  limit = s32[] constant(LIMIT)
  ROOT more = pred[] compare(i, limit), direction=LT
}
"""
WHILE = """
  zero = s32[] constant(0)
  v = f32[10] parameter(0)
  init = (s32[], f32[10]) tuple(zero, v)
  ROOT end = (s32[], f32[10]) while(init), condition=condition, body=body
"""


def test_the_thousand_iterations_of_the_page() -> None:
    count, vector = evaluate(program(WHILE, LOOP.replace("LIMIT", "1000")), np.zeros(10, np.float32))
    assert count == 1000
    assert vector.tolist() == [1000.0] * 10


def test_a_condition_that_fails_at_once_gives_the_initial_state() -> None:
    count, vector = evaluate(program(WHILE, LOOP.replace("LIMIT", "0")), np.arange(10, dtype=np.float32))
    assert count == 0
    assert vector.tolist() == list(range(10))


def test_iterations_are_cheap() -> None:
    def task(iterations: int) -> Callable[[], Any]:
        text = program(WHILE, LOOP.replace("LIMIT", str(iterations)))
        return lambda: evaluate(text, np.zeros(10, np.float32))

    assert bytecodes(task(300)) - bytecodes(task(100)) < 200 * 2500


@pytest.mark.parametrize(("pred", "expected"), [(True, [2, 4]), (False, [-3, -4])])
def test_a_predicate_chooses_one_of_two(pred: bool, expected: list[float]) -> None:
    text = over("""
      q = f32[2] parameter(1)
      which = pred[] parameter(2)
      ROOT r = f32[2] conditional(which, p, q), true_computation=double, false_computation=negate""")
    value = evaluate(text, f32([1, 2]), f32([3, 4]), np.bool_(pred))
    assert value.tolist() == expected


@pytest.mark.parametrize(
    ("index", "expected"),
    [(0, [2, 4]), (1, [-1, -2]), (2, [1, 2]), (3, [1, 2]), (-1, [1, 2]), (-(2**31), [1, 2])],
)
def test_an_index_chooses_and_the_last_branch_is_the_default(index: int, expected: list[float]) -> None:
    text = over("""
      which = s32[] parameter(1)
      ROOT r = f32[2] conditional(which, p, p, p), branch_computations={double, negate, same}""")
    assert evaluate(text, f32([1, 2]), np.int32(index)).tolist() == expected


def test_only_the_chosen_branch_runs() -> None:
    computations = """
      elided { x = f32[] parameter(0)
        ROOT c = f32[20] constant({...}) }
      fine { x = f32[] parameter(0)
        ROOT b = f32[20] broadcast(x), dimensions={} }"""
    text = program(
        """
      which = s32[] parameter(0)
      x = f32[] parameter(1)
      ROOT r = f32[20] conditional(which, x, x), branch_computations={elided, fine}""",
        computations,
    )
    assert evaluate(text, np.int32(1), np.float32(7)).tolist() == [7.0] * 20


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("ROOT r = f32[2] call(p, p), to_apply=double", "call.arguments"),
        ("s = f32[] constant(1)\n ROOT r = f32[2] call(s), to_apply=double", "call.arguments"),
        ("ROOT r = f32[3] call(p), to_apply=double", "instruction.shape-matches"),
        ("ROOT r = f32[2] call(p), to_apply=double, is_composite=true", "call.composite-name"),
        ("s = f32[] constant(1)\n ROOT r = f32[] while(s), condition=no, body=double", "while.arguments"),
        ("ROOT r = f32[2] while(p), condition=scalar, body=double", "while.condition-result"),
        ("ROOT r = f32[2] while(p), condition=no, body=scalar", "while.body-result"),
        (
            "w = u32[] parameter(1)\n ROOT r = f32[2] conditional(w, p), branch_computations={double}",
            "conditional.branch-index",
        ),
        (
            "w = s32[2] parameter(1)\n ROOT r = f32[2] conditional(w, p), branch_computations={double}",
            "conditional.branch-index",
        ),
        (
            "w = pred[] parameter(1)\n ROOT r = f32[2] conditional(w, p), true_computation=double",
            "conditional.branch-count",
        ),
        (
            "w = s32[] parameter(1)\nROOT r = f32[2] conditional(w, p), branch_computations={double,negate}",
            "conditional.operand-count",
        ),
        (
            "w = s32[] parameter(1)\n ROOT r = f32[2] conditional(w, w), branch_computations={double}",
            "conditional.arguments",
        ),
        (
            "w = s32[] parameter(1)\nROOT r = f32[2] conditional(w, p, p), branch_computations={no, double}",
            "conditional.branch-results",
        ),
        ("ROOT r = f32[2] fusion(p, p), kind=kLoop, calls=double", "fusion.arguments"),
        ("ROOT r = f32[3] fusion(p), kind=kLoop, calls=double", "fusion.result"),
        (
            "ROOT r = f32[2] fusion(p), kind=kLoop, output_to_operand_aliasing={{}: (1, {})}, calls=double",
            "fusion.aliasing",
        ),
        (
            "ROOT r = f32[2] fusion(p), kind=kLoop, output_to_operand_aliasing={{0}: (0, {})}, calls=double",
            "shape.index-valid",
        ),
    ],
)
def test_what_is_refused(body: str, rule: str) -> None:
    assert refused(over(body)).rule == rule


@pytest.mark.parametrize(
    "body",
    [
        "ROOT r = f32[2] call(p)",
        "ROOT r = f32[2] call(p), to_apply=missing",
        "ROOT r = f32[2] while(p), body=double",
        "ROOT r = f32[2] fusion(p), calls=double",
        "ROOT r = f32[2] fusion(p), kind=kFast, calls=double",
    ],
)
def test_what_does_not_parse(body: str) -> None:
    assert refused(over(body)).line is not None
