"""Reduction of programs that show a fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner, Result

import hloom
from hloom import HloError, HloModule
from hloom.debug import conditions, smaller
from hloom.debug.inputs import random_arguments
from hloom.debug.reduction import CountingEvaluator, reduce
from hloom.debug.smaller import Reproducer
from hloom.operations.structure import Constant
from hloom.tools.cli import main
from tests.planted_bugs.bugs import BUGS
from tests.planted_bugs.hunt import MOST_INSTRUCTIONS, hunt


def hloom_reduce(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["reduce", *map(str, arguments)])


def has(opcode: str, **found: Any) -> conditions.Condition:
    """Return the condition that a program has an operation, and can be run."""

    def condition(module: HloModule, arguments: list[Any]) -> bool:
        hloom.compile(module, "evaluator")(*arguments)
        return any(i.opcode == opcode for i in module.instructions())

    return condition


LOOP = """HloModule loop

body {
  s = (s32[], f64[6,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f64[6,4] get-tuple-element(s), index=1
  t = f64[4,6] transpose(x), dimensions={1,0}
  y = f64[6,4] transpose(t), dimensions={1,0}
  z = f64[6,4] tanh(y)
  ROOT n = (s32[], f64[6,4]) tuple(next, z)
}

condition {
  s = (s32[], f64[6,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  five = s32[] constant(5)
  ROOT l = pred[] compare(i, five), direction=LT
}

ENTRY e {
  x = f64[6,4] parameter(0)
  k = f64[6,4] constant({{1,2,3,4},{1,2,3,4},{1,2,3,4},{1,2,3,4},{1,2,3,4},{1,2,3,4}})
  v = f64[6,4] add(x, k), metadata={op_name="jit(f)/add"}
  zero = s32[] constant(0)
  s = (s32[], f64[6,4]) tuple(zero, v)
  w = (s32[], f64[6,4]) while(s), condition=condition, body=body
  u = f64[6,4] get-tuple-element(w), index=1
  c = f64[6,4] cosine(u)
  d = f64[6,4] divide(c, u)
  ROOT r = (f64[6,4], f64[6,4]) tuple(c, d)
}
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "loop.hlo"
    path.write_text(LOOP)
    return path


def reduced(condition: conditions.Condition) -> HloModule:
    module = HloModule.from_text(LOOP)
    found = reduce(module, random_arguments(module, 0), condition)
    found.module.verify()
    assert found.before == 23 and found.tests > 1
    hloom.compile(found.module, "evaluator")(*found.arguments)
    return found.module


def test_an_operation_in_a_loop_remains_alone() -> None:
    """Its loop, its size, its rank and its type are reduced."""
    root = reduced(has("tanh")).entry.root
    assert root.opcode == "tanh" and str(root.shape) == "f32[]"
    assert [o.opcode for o in root.operands] == ["parameter"]


def test_a_transpose_keeps_its_rank() -> None:
    module = reduced(has("transpose"))
    assert sorted(i.opcode for i in module.instructions()) == ["parameter", "transpose"]
    assert max(module.entry.root.shape.dimensions) == 1


def test_a_loop_stays_where_it_is_the_fault() -> None:
    module = reduced(has("while"))
    opcodes = [i.opcode for i in module.instructions()]
    assert "while" in opcodes and "cosine" not in opcodes and "transpose" not in opcodes


def test_the_state_of_a_loop_becomes_one_array() -> None:
    """A counter alone remains of a loop that must run: no tuples, and as few iterations as show it."""

    def runs_twice(module: HloModule, arguments: list[Any]) -> bool:
        counting = CountingEvaluator(0)
        counting.run(module.entry, arguments)
        return any(i.opcode == "while" for i in module.instructions()) and counting.calls >= 6

    module = reduced(runs_twice)
    assert module.entry.root.opcode == "while" and module.entry.root.shape.is_array
    assert sum(len(c) for c in module.computations) <= 8, str(module)
    limits = [i.operation.literal.array for i in module.instructions() if isinstance(i.operation, Constant)]
    assert max(map(int, limits)) <= 2, str(module)


def test_values_of_removed_instructions_become_arguments() -> None:
    module = HloModule.from_text(LOOP)
    given = random_arguments(module, 0)
    found = reduce(module, given, has("divide"))
    program = Reproducer.of(module, given)
    values, _ = program.values()
    assert [i.opcode for i in found.module.entry.instructions].count("divide") == 1
    firsts = {np.float32(np.ravel(v)[0]) for v in values.values() if isinstance(v, np.ndarray)}
    assert {np.float32(np.ravel(cast("Any", argument))[0]) for argument in found.arguments} <= firsts


def test_elements_of_arguments_become_ones_where_they_do_not_matter() -> None:
    module = HloModule.from_text(
        "HloModule m\nENTRY e { x = f32[6] parameter(0)  ROOT r = f32[6] negate(x) }"
    )
    x = np.array([3, 4, np.nan, 5, 6, 7], np.float32)

    def has_nan(program: HloModule, arguments: list[Any]) -> bool:
        return len(arguments[0]) == 6 and bool(np.isnan(arguments[0]).any())

    argument: Any = reduce(module, [x], has_nan).arguments[0]
    assert np.array_equal(argument, np.array([1, 1, np.nan, 1, 1, 1], np.float32), equal_nan=True)


def test_elements_are_taken_out_of_tuples() -> None:
    text = "HloModule m\nENTRY e { x = f32[2] parameter(0)  y = f32[2] sine(x)  t = tuple(x, y)\n"
    module = HloModule.from_text(text + "  g = get-tuple-element(t), index=1  ROOT r = f32[2] tanh(g) }")

    def is_tanh_of_sine(program: HloModule, arguments: list[Any]) -> bool:
        root = program.entry.root
        return root.opcode == "tanh" and "sine" in {i.opcode for i in program.instructions()}

    reduced = reduce(module, [np.ones(2, np.float32)], is_tanh_of_sine)
    assert [i.opcode for i in reduced.module.entry.post_order()] == ["parameter", "sine", "tanh"]


def test_a_reduction_stops() -> None:
    module = HloModule.from_text(LOOP)
    stopped = reduce(module, random_arguments(module, 0), has("tanh"), until=lambda: True)
    assert (stopped.before, stopped.after, stopped.tests) == (23, 23, 1)


def test_a_program_without_the_fault_is_refused() -> None:
    module = HloModule.from_text(LOOP)
    with pytest.raises(HloError) as caught:
        reduce(module, random_arguments(module, 0), has("sine"))
    assert caught.value.rule == "reduce.not-interesting"


def test_a_broken_rule_remains_broken() -> None:
    text = LOOP.replace("cosine(u)", 'custom-call(u), custom_call_target="nothing_of_this_name"')
    module = HloModule.from_text(text)
    with pytest.raises(HloError) as caught:
        hloom.compile(module)(*random_arguments(module, 0))
    rule = caught.value.rule
    found = reduce(module, random_arguments(module, 0), conditions.fails(rule))
    assert sorted(i.opcode for i in found.module.entry.instructions) == ["custom-call", "parameter"]


@pytest.mark.parametrize("name", ["transpose twice", "known branch", "native clamp", "end of a loop"])
def test_planted_bugs_are_found_and_reduced(name: str) -> None:
    """All of them, in programs of 1,000 instructions: python -m tests.planted_bugs."""
    trophy = hunt(BUGS[name], chains=8)
    assert trophy.found, trophy.found_in
    assert trophy.before > 60 and trophy.after <= MOST_INSTRUCTIONS, str(trophy.module)


def test_there_are_twenty_planted_bugs() -> None:
    assert len(BUGS) >= 20


# -- the command


def test_the_command_runs_a_command(program: Path, tmp_path: Path) -> None:
    result = hloom_reduce(program, "--test", "grep -q tanh {}", "-o", tmp_path / "small.hlo")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("// 23 -> 2 instructions, ")
    small = hloom.load(tmp_path / "small.hlo")
    assert small.entry.root.opcode == "tanh"
    assert len(np.load(tmp_path / "small.npz").files) == 1
    text = hloom_reduce(program, "--test", "test -e {input} && grep -q tanh")
    assert "ROOT" in text.output and "tanh" in text.output
    data = json.loads(hloom_reduce(program, "--test", "grep -q tanh", "--json").output)
    assert (data["before"], data["after"]) == (23, 2)


def test_commands_that_take_too_long_do_not_meet_the_condition() -> None:
    module = HloModule.from_text(LOOP)
    assert not conditions.command("sleep 5; true", timeout=0.1)(module, [])


def test_the_command_refuses_a_program_without_the_fault(program: Path) -> None:
    result = hloom_reduce(program)
    assert result.exit_code == 1 and "reduce.not-interesting" in result.output
    assert hloom_reduce(program, "--differs", "--fails", "x").exit_code == 2


def test_a_loop_that_no_longer_ends_is_not_taken() -> None:
    """A step may remove the counter of a loop: its evaluation ends after more calls than at first."""
    counting = CountingEvaluator(0)
    module = HloModule.from_text(LOOP)
    counting.run(module.entry, random_arguments(module, 0))
    assert counting.calls == 12  # the entry, five bodies, six conditions
    endless = HloModule.from_text(LOOP.replace("add(i, one)", "multiply(i, one)"))
    with pytest.raises(HloError) as caught:
        CountingEvaluator(100).run(endless.entry, random_arguments(endless, 0))
    assert caught.value.rule == "reduce.endless"


def test_a_step_that_names_what_is_gone_does_not_fit() -> None:
    module = HloModule.from_text(
        "HloModule m\nENTRY e {\n p = f32[2] parameter(0)\n ROOT n = f32[2] negate(p)\n}\n"
    )
    with pytest.raises(HloError) as caught:
        smaller.merged(Reproducer(module, {"p": np.ones(2, np.float32)}), "p", "q")
    assert caught.value.rule == "reduce.name"
