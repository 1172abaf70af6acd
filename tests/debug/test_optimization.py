"""`hloom opt`, and the passes that are public as hloom.passes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import hloom
from hloom import HloError, HloModule
from hloom.passes.simplify.algebraic_simplifier import AlgebraicSimplifier
from hloom.tools.cli import main

NO_NAME = "no_such_name"
TWICE = """HloModule twice

ENTRY e {
  x = f32[4] parameter(0)
  a = f32[4] negate(x)
  b = f32[4] negate(x)
  ROOT c = f32[4] add(a, b)
}
"""


def hloom_opt(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["opt", *map(str, arguments)])


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "twice.hlo"
    path.write_text(TWICE)
    return path


def test_passes_are_public() -> None:
    module = HloModule.from_text(TWICE)
    assert hloom.passes.run(module, "cse, dce")
    assert len(module.entry) == 3
    assert not hloom.passes.run(module, ["cse"])
    assert hloom.passes.pass_named("algebraic-simplifier") is AlgebraicSimplifier
    assert "run" in dir(hloom.passes) and "check" in dir(hloom.debug)
    for package in (hloom.passes, hloom.debug):
        with pytest.raises(AttributeError):
            getattr(package, NO_NAME)


def test_a_pass_that_needs_options_is_refused_alone() -> None:
    with pytest.raises(HloError) as caught:
        hloom.passes.run(HloModule.from_text(TWICE), "product-views")
    assert caught.value.rule == "pass.options"
    hloom.debug.optimized(HloModule.from_text(TWICE), "product-views")


def test_the_given_program_stays_as_it_is() -> None:
    module = HloModule.from_text(TWICE)
    result = hloom.debug.optimized(module, "cse")
    assert (len(module.entry), len(result.entry)) == (4, 3)
    assert [i.opcode for i in hloom.debug.optimized(module).entry.instructions] == ["parameter", "fusion"]


def test_unknown_passes_are_refused_with_a_suggestion() -> None:
    with pytest.raises(
        HloError, match=r"did you mean 'algsimp'.*parts of the pipeline are cpu, expansion"
    ) as caught:
        hloom.debug.optimized(HloModule.from_text(TWICE), "algsim")
    assert caught.value.rule == "pass.name"


def test_the_command_prints_the_program(program: Path, tmp_path: Path) -> None:
    result = hloom_opt(program, "--passes=cse,dce")
    assert result.exit_code == 0
    assert "ROOT %c = f32[4]{0} add(%a, %a)" in result.output
    assert "negate(%x)" in result.output and "%b" not in result.output
    assert hloom_opt(program, "--passes=cse", "-o", tmp_path / "out.hlo").output == ""
    assert len(hloom.load(tmp_path / "out.hlo").entry) == 3


def test_the_command_prints_what_changed(program: Path) -> None:
    result = hloom_opt(program, "--passes=cse,dce", "--diff")
    assert "- %b = f32[4]{0} negate(%x)" in result.output
    assert hloom_opt(program, "--passes=dce", "--diff").output == "equal\n"


def test_the_command_prints_after_each_pass(program: Path) -> None:
    result = hloom_opt(program, "--passes=simplification", "--print-after-all", "--diff")
    assert result.output.startswith("// -- after cse\n")
    whole = hloom_opt(program, "--passes=cse,simplification", "--print-after-all").output
    assert whole.count("HloModule twice") == whole.count("// -- after")


def test_the_command_lists_the_passes() -> None:
    output = hloom_opt("--list").output
    assert output.startswith("cpu\n  expansion\n    bitcast-expander\n")
    assert "other passes\n" in output
    assert hloom_opt().exit_code == 2
