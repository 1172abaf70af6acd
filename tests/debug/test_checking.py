"""Comparison of backends, and the first instruction that differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner, Result

import hloom
from hloom import HloError, HloModule, Literal, Shape, Snapshot
from hloom.debug.agreement import compare
from hloom.debug.backends import run_on
from hloom.debug.checking import check, differs
from hloom.debug.error_analysis import ErrorAnalysis
from hloom.debug.inputs import edge_values, random_arguments
from hloom.debug.tolerance import Tolerance
from hloom.ir.operation import Value
from hloom.operations.arithmetic import Multiply
from hloom.passes.pipeline import Pipeline
from hloom.runtime import backend as backends
from hloom.runtime.evaluator_backend import EvaluatedProgram, EvaluatorBackend
from hloom.tools.cli import main
from tests import agreement
from tests.arrays import f32
from tests.reducers import with_reducers

SOFTMAX = with_reducers("""HloModule softmax

ENTRY e {
  x = f32[8,16] parameter(0)
  w = f32[8,16] parameter(1)
  y = f32[8,16] multiply(x, w), metadata={op_name="jit(f)/scale" source_file="model.py" source_line=7}
  e = f32[8,16] exponential(y)
  z = f32[] constant(0)
  r = f32[8] reduce(e, z), dimensions={1}, to_apply=add
  b = f32[8,16] broadcast(r), dimensions={0}
  ROOT v = f32[8,16] divide(e, b)
}
""")
LOOP = """HloModule loop

body {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[4] get-tuple-element(s), index=1
  f = f32[] convert(i)
  g = f32[4] broadcast(f), dimensions={}
  y = f32[4] multiply(x, g)
  two = f32[] constant(2)
  t = f32[4] broadcast(two), dimensions={}
  u = f32[4] add(y, t)
  ROOT n = (s32[], f32[4]) tuple(next, u)
}

condition {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  five = s32[] constant(5)
  ROOT l = pred[] compare(i, five), direction=LT
}

ENTRY e {
  x = f32[4] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[4]) tuple(zero, x)
  w = (s32[], f32[4]) while(s), condition=condition, body=body
  ROOT r = f32[4] get-tuple-element(w), index=1
}
"""


class _Wrong(EvaluatorBackend):
    """The evaluator with products that are wrong in one element if the second factor has a large one."""

    name = "wrong"

    def pipeline(self) -> Pipeline:
        return Pipeline([], title="wrong")

    def compile(self, module: HloModule, options: backends.CompileOptions) -> backends.Program:
        copy = module.clone()
        for instruction in copy.instructions():
            if instruction.opcode == "multiply":
                instruction.operation = WRONG
        return EvaluatedProgram(copy)


class _WrongMultiply(Multiply):
    def evaluate(self, run: Any, *operands: Value) -> Value:
        left, right = (np.asarray(o) for o in operands)
        product = left * right
        if (right >= 3).any():
            product.flat[-1] += 1
        return product


WRONG = _WrongMultiply()


@pytest.fixture
def wrong_backend() -> Any:
    backends.register_backend(_Wrong())
    yield "wrong"
    backends.unregister_backend("wrong")


def hloom_check(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["check", *map(str, arguments)])


def arguments_of(module: HloModule) -> list[Any]:
    drawn = random_arguments(module, 0)
    drawn[-1] = np.full_like(drawn[-1], 3)
    return drawn


# -- results


def test_backends_agree_within_rounding_errors() -> None:
    module = HloModule.from_text(SOFTMAX)
    found = check(module, random_arguments(module, 1))
    assert found.agrees and found.culprit is None
    assert [c.name for c in found.comparisons] == ["result"]


@pytest.mark.parametrize("edges", [False, True])
def test_passes_agree_too(edges: bool) -> None:
    module = HloModule.from_text(SOFTMAX)
    for seed in range(4):
        assert check(module, random_arguments(module, seed, edges=edges), backend="passes").agrees


def test_xla_agrees() -> None:
    pytest.importorskip("jaxlib")
    module = HloModule.from_text(SOFTMAX)
    assert check(module, random_arguments(module, 1), against="xla").agrees


def test_the_first_wrong_instruction_is_named(wrong_backend: str) -> None:
    module = HloModule.from_text(SOFTMAX)
    found = check(module, arguments_of(module), backend=wrong_backend)
    assert not found.agrees and found.culprit is not None
    assert found.culprit.opcode == "multiply"
    assert found.culprit.origin == "jit(f)/scale, model.py:7"
    assert [name for name, _ in found.culprit.operands] == ["%x f32[8,16]", "%w f32[8,16]"]
    (comparison,) = found.culprit.comparisons
    assert (comparison.name, comparison.index, comparison.wrong) == ("%y", (7, 15), 1)


def test_the_wrong_iteration_of_a_loop_is_named(wrong_backend: str) -> None:
    """The factor is the number of the iteration, and products of 3 are wrong."""
    module = HloModule.from_text(LOOP)
    found = check(module, [np.ones(4, np.float32)], backend=wrong_backend)
    assert found.culprit is not None
    assert found.culprit.opcode == "multiply"
    assert found.culprit.loop == "%w iteration 3"


def test_devices_are_compared_one_by_one() -> None:
    text = with_reducers("""HloModule m, replica_count=2
ENTRY e {
  p = s32[3] parameter(0)
  ROOT r = s32[3] all-reduce(p), replica_groups={}, to_apply=add_s32
}""")
    module = HloModule.from_text(text)
    found = check(module, [[np.arange(3, dtype=np.int32)], [np.ones(3, np.int32)]])
    assert found.agrees
    assert [c.name for c in found.comparisons] == ["device 0 result", "device 1 result"]
    with pytest.raises(HloError) as caught:
        check(module, [[np.arange(3, dtype=np.int32)], [np.ones(3, np.int32)]], against="xla")
    assert caught.value.rule == "check.one-device"


SHARDED = with_reducers("""HloModule layer, replica_count=2
ENTRY e {
  x = f32[4,32] parameter(0)
  w = f32[32,8] parameter(1)
  y = f32[4,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[4,8] all-reduce(y), replica_groups={}, to_apply=add
  h = f32[4,8] tanh(t)
  g = f32[8,8] all-gather(h), dimensions={0}, replica_groups={}
  three = f32[] constant(3)
  threes = f32[8,8] broadcast(three), dimensions={}
  ROOT r = f32[8,8] multiply(g, threes)
}""")


def test_results_of_several_devices_have_bounds(wrong_backend: str) -> None:
    """Each device's part of a sum is rounded differently by native code."""
    module = HloModule.from_text(SHARDED)
    given = [random_arguments(module, seed) for seed in range(2)]
    found = check(module, given)
    assert found.agrees and any(c.unequal for c in found.comparisons)
    assert check(module, given, backend="passes").agrees
    wrong = check(module, given, backend=wrong_backend)
    assert wrong.is_wrong and [c.wrong for c in wrong.comparisons] == [1, 1]
    wanted = run_on("evaluator", module, given)
    bounds = Tolerance().bounds_of_devices(module, given, wanted)
    for device, got in enumerate(run_on("cpu", module, given)):
        agreement.within(got, wanted[device], bounds[device])


def test_results_of_collectives_in_two_steps_have_bounds() -> None:
    """A gathered number has the errors of its own computation, a sum of devices also those of the sum."""
    module = HloModule.from_text(
        with_reducers("""HloModule m, replica_count=2
        ENTRY e { x = f32[4] parameter(0)
          y = f32[4] exponential(x)
          gathering = (f32[4], f32[8]) all-gather-start(y), dimensions={0}
          gathered = f32[8] all-gather-done(gathering)
          summing = f32[4] all-reduce-start(y), to_apply=add
          sum = f32[4] all-reduce-done(summing)
          ROOT r = (f32[8], f32[4]) tuple(gathered, sum) }""")
    )
    given = [random_arguments(module, seed) for seed in range(2)]
    wanted = run_on("evaluator", module, given)
    bounds: list[Any] = Tolerance().bounds_of_devices(module, given, wanted)
    for gathered, total in bounds:
        assert (gathered > 0).all() and (total > gathered.reshape(2, 4).max(0)).all()
    assert check(module, given).agrees


def test_distances_are_counted_in_units_of_the_last_place() -> None:
    wanted = f32([1, 2, np.nan, np.inf, 0])
    got = wanted.copy()
    got[1] = np.nextafter(np.float32(2), np.float32(3))
    got[4] = np.nan
    (found,) = compare(got, wanted, 1e-6)
    assert (found.unequal, found.wrong, found.ulps, found.index) == (2, 1, 1.0, (4,))
    assert compare((), (), 0.0) == []
    with pytest.raises(HloError) as caught:
        compare(got, wanted[:2], 0.0)
    assert caught.value.rule == "check.form"


@pytest.mark.parametrize("kind", [np.int32, np.uint8, np.int64, np.bool_])
def test_the_unit_of_integers_is_1(kind: Any) -> None:
    wanted = np.array([0, 1, 1, 0]).astype(kind)
    got = np.array([0, 1, 0, 1 if kind is np.bool_ else 3]).astype(kind)
    (comparison,) = compare(got, wanted, 0.0)
    assert comparison.unequal == 2
    assert comparison.ulps == comparison.difference == (1.0 if kind is np.bool_ else 3.0)


def test_edge_values_are_the_extremes_of_each_type() -> None:
    for name in ("f32", "bf16", "f8e4m3fn", "s8", "u4", "c64", "pred"):
        kind = Shape.parse(f"{name}[]").element_type
        values = np.asarray(edge_values(kind)).astype(kind.numpy_dtype)
        assert len(values) >= 2
    module = HloModule.from_text("HloModule m\nENTRY e { ROOT p = f32[1000] parameter(0) }")
    drawn: list[Any] = [random_arguments(module, seed, edges=True)[0] for seed in range(8)]
    assert np.isnan(np.stack(drawn)).any() and np.isinf(np.stack(drawn)).any()


# -- tolerances


def test_a_tolerance_is_read() -> None:
    assert Tolerance.parse("4ulp") == Tolerance(ulps=4.0)
    assert Tolerance.parse("exact") == Tolerance(ulps=0.0)
    assert Tolerance.parse("rtol=1e-5,atol=2") == Tolerance(rtol=1e-5, atol=2.0)
    assert Tolerance.parse("analysis").analyses
    with pytest.raises(HloError) as caught:
        Tolerance.parse("about")
    assert caught.value.rule == "check.tolerance"


def test_sums_that_may_overflow_have_no_bound() -> None:
    """In one order the sum is finite, in another one infinite."""
    text = "HloModule m\nENTRY e {\n x = f32[4] parameter(0)\n ROOT r = f32[] dot(x, x), BOTH\n}"
    module = HloModule.from_text(text.replace("BOTH", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"))
    bounds: list[Any] = [Tolerance().bounds(module, [f32([1, 2, 3, x])], None) for x in (4, 2e19)]
    small, large = bounds
    assert 0 < small < 1e-4 and np.isposinf(large)


def test_a_stated_tolerance_is_kept(wrong_backend: str) -> None:
    module = HloModule.from_text(
        "HloModule m\nENTRY e { x = f32[2] parameter(0)\n ROOT r = f32[2] multiply(x, x) }"
    )
    given = [f32([1, 4])]
    assert differs(module, given, wrong_backend, "evaluator", Tolerance(ulps=4))
    assert not differs(module, given, wrong_backend, "evaluator", Tolerance(atol=1))


CHAOS = """HloModule m
body {
  s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[2] get-tuple-element(s), index=1
  ones = f32[2] constant({1, 1})
  four = f32[2] constant({4, 4})
  rest = f32[2] subtract(ones, x)
  half = f32[2] multiply(x, rest)
  y = f32[2] multiply(four, half)
  ROOT t = (s32[], f32[2]) tuple(next, y)
}
less {
  s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(60)
  ROOT l = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[2] parameter(0)
  three = f32[2] constant({3, 3})
  m = f32[2] multiply(x, three)
  c = f32[2] sine(m)
  z = s32[] constant(0)
  s = (s32[], f32[2]) tuple(z, c)
  w = (s32[], f32[2]) while(s), condition=less, body=body
  ROOT r = f32[2] get-tuple-element(w), index=1
}"""
"""The logistic map: each iteration may double an error, so that no digit is left of 60."""


def test_without_a_bound_only_equal_results_agree(wrong_backend: str) -> None:
    module = HloModule.from_text(CHAOS)
    assert check(module, [f32([0.1, 0.13])], backend="evaluator").agrees
    found = check(module, [f32([0.1, 0.13])], backend=wrong_backend)
    assert not found.agrees and not found.is_wrong
    assert found.undecided.startswith("rounding errors grow as large as the numbers; first in ")
    stated = check(module, [f32([0.1, 0.13])], backend=wrong_backend, tolerance=Tolerance(atol=1))
    assert stated.agrees and not stated.undecided


LAYER = """three = f32[] constant(3)
threes = f32[8,64] broadcast(three), dimensions={}
ROOT r = f32[8,64] multiply(h8, threes)"""


def test_wrong_results_of_several_layers_are_found(wrong_backend: str) -> None:
    """Intervals exceed the numbers after a few layers; samples keep to what rounding makes of them."""
    layers = "\n".join(
        f"m{n} = f32[8,64] dot(h{n}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
        f"h{n + 1} = f32[8,64] tanh(m{n})"
        for n in range(8)
    )
    text = f"HloModule m\nENTRY e {{\nx = f32[8,64] parameter(0)\nw = f32[64,64] parameter(1)\n{LAYER}\n}}"
    module = HloModule.from_text(text.replace(LAYER, f"h0 = f32[8,64] tanh(x)\n{layers}\n{LAYER}"))
    draw = np.random.default_rng(0)
    given = [draw.normal(size=(8, 64)), draw.normal(size=(64, 64)) / 8]
    arguments = [a.astype(np.float32) for a in given]
    assert np.max(cast("Any", ErrorAnalysis(module).run(arguments)[1])) > 1  # tanh is at most 1
    assert check(module, arguments).agrees
    found = check(module, arguments, backend=wrong_backend)
    assert found.is_wrong and found.culprit is not None and found.culprit.opcode == "multiply"
    wanted = hloom.compile(module, "evaluator")(*arguments)
    agreement.within(hloom.compile(module)(*arguments), wanted, Tolerance().bounds(module, arguments, wanted))


def test_unknown_backends_are_refused() -> None:
    module = HloModule.from_text(SOFTMAX)
    with pytest.raises(HloError, match="evaluator") as caught:
        run_on("tpu", module, [[]])
    assert caught.value.rule == "check.backend"


def test_xla_without_jaxlib_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hloom.debug.backends.find_spec", lambda name: None)
    module = HloModule.from_text(SOFTMAX)
    with pytest.raises(HloError, match="pip install jax") as caught:
        check(module, random_arguments(module, 0), against="xla")
    assert caught.value.rule == "check.jaxlib"


def test_what_xla_refuses_is_an_error() -> None:
    pytest.importorskip("jaxlib")
    text = "HloModule m\nENTRY e { p = u32[] parameter(0)  ROOT b = s32[] bitcast(p) }"
    with pytest.raises(HloError, match="XLA:CPU refuses the program: ") as caught:
        check(HloModule.from_text(text), [np.uint32(1)], against="xla")
    assert caught.value.rule == "check.xla"


# -- the command


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "softmax.hlo"
    path.write_text(SOFTMAX)
    return path


def test_the_command_reports_each_result(program: Path) -> None:
    result = hloom_check(program, "--repeat", 2)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("cpu against evaluator, random 0: 1 of 1 results agree")
    assert "cpu against evaluator, edge values 1: " in result.output


def test_the_command_reports_differences(program: Path, wrong_backend: str, tmp_path: Path) -> None:
    given = arguments_of(HloModule.from_text(SOFTMAX))
    np.savez(tmp_path / "given.npz", *given)
    arguments = (program, "--backend", wrong_backend, "--input", tmp_path / "given.npz")
    result = hloom_check(*arguments)
    assert result.exit_code == 1
    assert "differs result f32[8,16]: 16 of 128 elements differ" in result.output
    assert "first instruction that differs\n  %y = f32[8,16]{1,0} multiply(%x, %w)" in result.output
    assert "  at jit(f)/scale, model.py:7\n" in result.output
    data = json.loads(hloom_check(*arguments, "--json").output)
    assert data["checks"][0]["agrees"] is False
    assert data["checks"][0]["culprit"]["opcode"] == "multiply"
    assert "first instruction" not in hloom_check(*arguments, "--no-locate").output
    assert hloom_check(*arguments, "--random", 1).exit_code == 2


def test_errors_have_their_own_exit_status(program: Path, tmp_path: Path) -> None:
    result = hloom_check(program, "--against", "tpu")
    assert result.exit_code == 2
    assert "check.backend" in result.stderr
    (tmp_path / "empty").mkdir()
    result = hloom_check(tmp_path / "empty")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {tmp_path / 'empty'} holds no programs")


def test_errors_are_at_a_place_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.hlo"
    path.write_text("HloModule m\nENTRY e { p = f32[")
    assert hloom_check(path).stderr.startswith(f"error: {path}:2:")


def test_snapshots_are_compared_with_their_results(program: Path, tmp_path: Path) -> None:
    module = HloModule.from_text(SOFTMAX)
    given = random_arguments(module, 5)
    result = hloom.compile(module)(*given)
    runs = (tuple(Literal(a) for a in given),)
    path = tmp_path / "run.hlo_snapshot.pb"
    hloom.save_snapshot(Snapshot(module, runs, Literal(result)), path)
    told = hloom_check(path)
    assert told.exit_code == 0 and told.output.startswith("cpu against stored, snapshot")
    result[0, 0] += 1
    hloom.save_snapshot(Snapshot(module, runs, Literal(result)), path)
    assert hloom_check(path).exit_code == 1
    assert hloom_check(path, "--against", "evaluator").output.startswith("cpu against evaluator, snapshot")


def test_a_missing_bound_is_told(tmp_path: Path, wrong_backend: str) -> None:
    path = tmp_path / "chaos.hlo"
    path.write_text(CHAOS)
    np.save(tmp_path / "x.npy", f32([0.1, 0.13]))
    result = hloom_check(path, "--backend", wrong_backend, "--input", tmp_path / "x.npy")
    assert result.exit_code == 2
    assert "no tolerance can be derived" in result.output
    assert "unequal result f32[2]" in result.output and "differs" not in result.output
