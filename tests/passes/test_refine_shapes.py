"""Programs of unbounded sizes: compiled for those of the arguments, as often as there are different ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom
from hloom.cpu import native, refinement
from hloom.cpu.native import NativeExecutable
from hloom.errors import HloError
from hloom.passes.expand.dynamic_padder import static_module
from hloom.passes.expand.refine_shapes import refined_module
from hloom.shape.shape import Shape
from tests import agreement
from tests.evaluation import parse
from tests.reducers import ADD, LESS

X = "x = f32[?,4] parameter(0)\n"


def check(body: str, *sizes: tuple[int, ...], computations: str = "") -> Any:
    """Both backends give the same for arguments of these sizes."""
    text = f"HloModule m\n{ADD}{LESS}{computations}\nENTRY e {{\n{body}\n}}"
    rng = np.random.default_rng(0)
    given = [rng.normal(size=s).astype(np.float32) for s in sizes]
    found = hloom.compile(parse(text))(*given)
    agreement.computed(found, parse(text), given)
    return found


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize(
    "body",
    [
        "ROOT r = f32[?,4] add(x, x)",
        "ROOT r = bf16[?,4] convert(x)",
        "ROOT r = s32[?,4] bitcast-convert(x)",
        "ROOT r = f32[4,?] transpose(x), dimensions={1,0}",
        "z = f32[] constant(0)\nROOT r = f32[?] reduce(x, z), dimensions={1}, to_apply=add",
        "ROOT r = f32[?,2] slice(x), slice={[0:0], [1:3]}",
        "z = f32[] constant(3)\nROOT r = f32[?,5] pad(x, z), padding=1_2_1x1_0",
        "ROOT r = f32[?,4] concatenate(x, x), dimensions={0}",
        "ROOT r = f32[?] reshape(x)",
        "ROOT r = f32[2,?,2] reshape(x)",
        "ROOT r = f32[3,?,4] broadcast(x), dimensions={1,2}",
        "ROOT r = f32[?,?] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        "ROOT r = f32[?,4] sort(x), dimensions={0}, to_apply=less",
        "ROOT r = s32[] get-dimension-size(x), dimensions={0}",
        "t = (f32[?,4], f32[?,4]) tuple(x, x)\nROOT r = f32[?,4] get-tuple-element(t), index=1",
    ],
)
def test_sizes_follow_from_the_arguments(body: str, n: int) -> None:
    check(X + body, (n, 4))


def test_loops_branches_calls_and_fusions() -> None:
    """A computation that is called with two sizes becomes two."""
    computations = """
    twice { a = f32[?] parameter(0)
      ROOT b = f32[?] add(a, a) }
    body { s = (s32[], f32[?]) parameter(0)
      n = s32[] get-tuple-element(s), index=0
      v = f32[?] get-tuple-element(s), index=1
      one = s32[] constant(1)
      m = s32[] add(n, one)
      w = f32[?] fusion(v), kind=kLoop, calls=twice
      ROOT r = (s32[], f32[?]) tuple(m, w) }
    condition { s = (s32[], f32[?]) parameter(0)
      n = s32[] get-tuple-element(s), index=0
      l = s32[] constant(3)
      ROOT c = pred[] compare(n, l), direction=LT }
    once { ROOT a = f32[?] parameter(0) }
    """
    found = check(
        """x = f32[?] parameter(0)
      y = f32[?] parameter(1)
      p = pred[] constant(true)
      z = s32[] constant(0)
      t = (s32[], f32[?]) tuple(z, x)
      w = (s32[], f32[?]) while(t), condition=condition, body=body
      a = f32[?] get-tuple-element(w), index=1
      b = f32[?] call(y), to_apply=twice
      c = f32[?] conditional(p, b, b), true_computation=twice, false_computation=once
      ROOT r = (f32[?], f32[?]) tuple(a, c)""",
        (3,), (2,), computations=computations,
    )  # fmt: skip
    assert [part.shape for part in found] == [(3,), (2,)]


def test_bounded_dimensions_stay_bounded() -> None:
    text = "x = f32[?,<=4] parameter(0)\nROOT r = f32[?,<=4] add(x, x)"
    refined = refined_module(parse(text), [Shape.parse("f32[3,<=4]")])
    assert str(refined.entry.root.shape.without_layout()) == "f32[3,<=4]"
    check(text, (3, 2))


def test_a_program_is_compiled_once_for_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def compile_or_load(module: hloom.HloModule, *, reproducible: bool) -> NativeExecutable:
        made.append(str(module.entry.root.shape.without_layout()))
        return native.compile_or_load(module, reproducible=reproducible)

    monkeypatch.setattr(refinement, "compile_or_load", compile_or_load)
    monkeypatch.setattr(refinement, "KEPT", 2)
    exe = hloom.compile(parse("x = f32[?] parameter(0)\nROOT r = f32[?] negate(x)"))
    for n in (1, 2, 1, 2, 3, 2, 1):
        assert exe(np.ones(n, np.float32)).shape == (n,)
    assert made == ["f32[1]", "f32[2]", "f32[3]", "f32[1]"], "the size not used for longest was forgotten"
    assert exe.memory.argument == 4


def test_several_devices_may_have_different_sizes() -> None:
    exe = hloom.compile(parse("x = f32[?] parameter(0)\nROOT r = f32[?] negate(x)"), num_replicas=2)
    first, second = exe.run([[np.ones(2, np.float32)], [np.ones(3, np.float32)]])
    assert (first.shape, second.shape) == ((2,), (3,))


def refusal(call: Any) -> HloError:
    with pytest.raises(HloError) as caught:
        call()
    return caught.value


def test_what_cannot_be_known() -> None:
    exe = hloom.compile(parse("x = f32[] parameter(0)\nROOT r = f32[?] broadcast(x), dimensions={}"))
    assert refusal(lambda: exe(np.float32(1))).rule == "refine-shapes.unbounded"
    text = 'x = f32[?] parameter(0)\nROOT r = f32[?] custom-call(x), custom_call_target="f"'
    error = refusal(lambda: hloom.compile(parse(text))(np.ones(2, np.float32)))
    assert (error.rule, error.instruction) == ("refine-shapes.unbounded", "r")


def test_what_is_not_compiled_yet_tells_nothing() -> None:
    exe = hloom.compile(parse("x = f32[?] parameter(0)\nROOT r = f32[?] negate(x)"))
    assert refusal(lambda: exe.memory).rule == "compile.unbounded"


def test_sizes_that_do_not_fit_are_refused() -> None:
    exe = hloom.compile(parse("x = f32[?] parameter(0)\ny = f32[?] parameter(1)\nROOT r = f32[?] add(x, y)"))
    assert refusal(lambda: exe(np.ones(2, np.float32), np.ones(3, np.float32))).rule
    assert refusal(lambda: exe(np.ones((2, 2), np.float32), np.ones(3, np.float32))).rule == "run.argument"


def test_the_padder_refuses_them() -> None:
    text = "x = f32[?] parameter(0)\nROOT r = f32[?] add(x, x)"
    assert refusal(lambda: static_module(parse(text))).rule == "dynamic-padder.unbounded"
