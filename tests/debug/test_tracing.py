"""Traces: every value of a run, the first NaN, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import hloom
from hloom import HloError, HloModule
from hloom.debug.tracing import first_event
from hloom.tools.cli import main
from tests.arrays import f32
from tests.reducers import with_reducers

LOOP = with_reducers("""HloModule loop

body {
  s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  v = f32[2] get-tuple-element(s), index=1
  half = f32[] constant(0.5)
  h = f32[2] broadcast(half), dimensions={}
  y = f32[2] subtract(v, h)
  u = f32[2] sqrt(y), metadata={op_name="jit(f)/root" source_file="model.py" source_line=9}
  ROOT n = (s32[], f32[2]) tuple(next, u)
}

condition {
  s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  five = s32[] constant(5)
  ROOT l = pred[] compare(i, five), direction=LT
}

ENTRY e {
  x = f32[2] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[2]) tuple(zero, x)
  w = (s32[], f32[2]) while(s), condition=condition, body=body
  r = f32[2] get-tuple-element(w), index=1
  none = f32[] constant(nan)
  nothing = f32[] constant(0)
  ROOT t = f32[] reduce(r, nothing), dimensions={0}, to_apply=add
}
""")


def hloom_trace(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["trace", *map(str, arguments)])


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "loop.hlo"
    path.write_text(LOOP)
    np.save(tmp_path / "x.npy", f32([2, 1]))
    return path


def jax_programs() -> Any:
    pytest.importorskip("jax")
    from tests.debug import nan_programs

    return nan_programs


NAMES = (
    "logarithm", "square_root", "zero_by_zero", "difference_of_infinities", "naive_softmax", "arcsine",
    "power_of_negative", "loop", "scan", "branch", "gradient_of_where", "gradient_of_norm", "singular_matrix",
    "cholesky", "out_of_bounds", "softmax_of_masked_row", "product_that_overflows",
    "variance_by_cancellation", "called_function", "zero_times_infinity",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_first_nan_of_a_jax_function_is_at_its_line(name: str) -> None:
    programs = jax_programs()
    assert set(programs.PROGRAMS) == set(NAMES)
    function, arguments = programs.PROGRAMS[name]
    found = hloom.debug.nan_origin(function, *arguments)
    if name == "zero_times_infinity":  # its first NaN is an argument
        assert found is not None and found.instruction.opcode == "parameter"
        found = hloom.debug.nan_origin(function, np.ones_like(arguments[0]), arguments[1] * 0)
    assert found is not None
    path, _, line = found.source_line.rpartition(":")
    assert Path(path).name == "nan_programs.py"
    assert "# NaN" in Path(path).read_text().splitlines()[int(line) - 1], str(found)


def test_a_function_without_nan_has_no_origin() -> None:
    jax_programs()
    assert hloom.debug.nan_origin(lambda x: x + 1, f32([1, 2])) is None
    found = hloom.debug.infinity_origin(lambda x: 1 / x, f32([1, 0]))
    assert found is not None and found.instruction.opcode == "divide"


def test_functions_of_jax_need_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hloom.debug.jax_functions.find_spec", lambda name: None)
    with pytest.raises(HloError) as caught:
        hloom.debug.nan_origin(lambda x: x, 1)
    assert caught.value.rule == "debug.jax"


def test_a_trace_has_every_value_in_order() -> None:
    executable = hloom.compile(HloModule.from_text(LOOP))
    found = executable.trace(f32([2, 1]))
    bodies = [e for e in found if e.instruction.name == "y"]
    assert [e.loop for e in bodies] == [f"%w[iteration {n}] " for n in range(5)]
    assert np.array_equal(bodies[0].value, f32([1.5, 0.5]))
    conditions = [e for e in found if e.instruction.name == "l"]
    assert [e.loop for e in conditions] == [f"%w[condition {n}] " for n in range(6)]
    assert found.events[0].instruction.opcode == "parameter"
    assert found.events[-1].instruction.name == "t" and np.isnan(found.result)
    assert not any(e.instruction.parent and e.instruction.parent.name == "add" for e in found)
    assert len(found) > 50


def test_the_first_nan_has_its_operands_and_iteration() -> None:
    event = hloom.debug.trace(HloModule.from_text(LOOP), [f32([2, 1])]).first_nan
    assert event is not None and event.instruction.name == "u"
    head, place, loop, operand = str(event).splitlines()
    assert head.startswith("%u = f32[2]{0} sqrt(%y)")
    assert place == "  at jit(f)/root, model.py:9"
    assert loop == "  in %w[iteration 2]"
    assert operand.startswith("  %y f32[2] = [")
    assert hloom.debug.trace(HloModule.from_text(LOOP), [f32([2, 1])]).first_infinity is None


def test_constants_of_nan_are_no_origin() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[2] parameter(0)
  c = f32[] constant(nan)
  b = f32[2] broadcast(c), dimensions={}
  p = pred[2] compare(x, x), direction=GT
  ROOT s = f32[2] select(p, b, x)
}"""
    module = HloModule.from_text(text)
    assert first_event(module, [f32([1, 2])], lambda event: event.has_nan) is None
    chosen = HloModule.from_text(text.replace("direction=GT", "direction=EQ"))
    event = first_event(chosen, [f32([1, 2])], lambda event: event.has_nan)
    assert event is not None and event.instruction.name == "s"


# -- the command


def test_the_command_prints_statistics(program: Path) -> None:
    result = hloom_trace(program, "--input", program.parent / "x.npy")
    assert result.exit_code == 0
    header, first, *rest = result.output.splitlines()
    assert header.split() == ["value", "shape", "min", "max", "mean", "NaN", "inf", "origin"]
    assert first.split() == ["%x", "f32[2]", "1", "2", "1.5"]
    assert any(line.startswith("%w[iteration 1] %u") and "model.py:9" in line for line in rest)


def test_the_command_finds_the_first_nan(program: Path) -> None:
    given = ("--input", program.parent / "x.npy")
    result = hloom_trace(program, "--first-nan", *given)
    assert result.exit_code == 1
    assert result.output.startswith("first NaN: 1 of 2 elements of\n%u = f32[2]{0} sqrt(%y)")
    assert "  at jit(f)/root, model.py:9\n" in result.output
    none = hloom_trace(program, "--first-inf", *given)
    assert (none.exit_code, none.output) == (0, "no value has an infinity\n")
    data = json.loads(hloom_trace(program, "--first-nan", "--json", *given).output)
    assert (data["instruction"], data["source"]) == ("u", "model.py:9")


def test_the_command_writes_values(program: Path, tmp_path: Path) -> None:
    result = hloom_trace(program, "--save", tmp_path / "values", "--random", 3)
    assert result.exit_code == 0 and result.output.startswith("wrote ")
    files = sorted((tmp_path / "values").iterdir())
    assert files[0].name == "000001.x.npy"
    assert any("_w_iteration_1_u" in file.name for file in files)
    lines = hloom_trace(program, "--json", "--random", 3).output.splitlines()
    assert json.loads(lines[0])["values"][0]["shape"] == "f32[2]"


def test_the_command_compares_two_programs(program: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.hlo"
    other.write_text(LOOP.replace("constant(0.5)", "constant(0.25)"))
    assert hloom_trace(program, "--diff", program).exit_code == 0
    result = hloom_trace(program, "--diff", other, "--input", program.parent / "x.npy")
    assert result.exit_code == 1
    assert "differs %w[iteration 0] %half f32[]" in result.output.splitlines()[0]
