"""The viewer's tab of proofs: which instructions two programs have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from hloom import HloModule
from hloom.proofs.matching import match
from hloom.proofs.verdict import Relation
from hloom.tools.cli import main
from hloom.tools.viewer.program import stage_of
from hloom.tools.viewer.proof import proof_part
from tests.viewer.conftest import Viewed

BEFORE = """HloModule before

ENTRY main {
  x = f32[4,8] parameter(0)
  w = f32[8,8] parameter(1)
  product = f32[4,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  zeros = f32[4,8] broadcast(zero), dimensions={}
  positive = f32[4,8] maximum(product, zeros)
  ROOT double = f32[4,8] add(positive, positive)
}
"""
FUSED = """HloModule after

fused {
  a = f32[4,8] parameter(0)
  zero.1 = f32[] constant(0)
  zeros.1 = f32[4,8] broadcast(zero.1), dimensions={}
  ROOT rectified = f32[4,8] OPCODE(zeros.1, a)
}

ENTRY main {
  x = f32[4,8] parameter(0)
  w = f32[8,8] parameter(1)
  product = f32[4,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  fusion = f32[4,8] fusion(product), kind=kLoop, calls=fused
  ROOT double = f32[4,8] add(fusion, fusion)
}
"""
RIGHT, WRONG = (FUSED.replace("OPCODE", opcode) for opcode in ("maximum", "minimum"))


def test_instructions_match_through_fusions() -> None:
    matching = match(HloModule.from_text(BEFORE), HloModule.from_text(RIGHT), samples=1)
    assert matching.verdict.relation is Relation.IDENTICAL
    assert {("positive", "rectified"), ("zeros", "zeros.1"), ("x", "x")} <= set(matching.pairs)
    assert matching.after["fusion"] and all(matching.before.values()) and all(matching.after.values())


def test_what_only_one_program_computes_does_not_match() -> None:
    matching = match(HloModule.from_text(BEFORE), HloModule.from_text(WRONG), samples=4)
    assert matching.verdict.relation is Relation.REFUTED
    unmatched = {name for name, is_matched in matching.after.items() if not is_matched}
    assert unmatched == {"rectified", "fusion", "double"}
    assert {name for name, is_matched in matching.before.items() if not is_matched} == {"positive", "double"}


def test_instructions_of_equal_texts_match_without_random_numbers() -> None:
    matching = match(HloModule.from_text(BEFORE), HloModule.from_text(BEFORE), samples=0)
    assert matching.verdict.certain and ("positive", "positive") in matching.pairs
    assert all(matching.after.values())


def test_a_fusion_that_is_called_twice_matches_only_if_both_calls_do() -> None:
    twice = RIGHT.replace("add(fusion, fusion)", "add(fusion, other)").replace(
        "  ROOT double", "  other = f32[4,8] fusion(x), kind=kLoop, calls=fused\n  ROOT double"
    )
    matching = match(HloModule.from_text(BEFORE), HloModule.from_text(twice), samples=1)
    assert matching.after["zeros.1"] and not matching.after["rectified"]


def test_a_program_in_place_of_another_form_is_not_compared() -> None:
    other = BEFORE.replace("f32[4,8]", "f32[2,8]")
    matching = match(HloModule.from_text(BEFORE), HloModule.from_text(other), samples=1)
    assert matching.verdict.relation is Relation.OPEN and matching.verdict.reason
    assert matching.after == {}


def test_stages_of_different_programs_are_not_compared() -> None:
    stages = [stage_of(HloModule.from_text(BEFORE), name, program=name) for name in ("a", "b")]
    assert proof_part(stages, samples=1) == {"proof": [None, None]}


def test_a_single_stage_cannot_be_proved(tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(BEFORE)
    options = ["view", str(file), "--prove", "-o", str(tmp_path / "page.html")]
    assert CliRunner().invoke(main, [*options, "--no-compile"]).exit_code == 2
    done = CliRunner().invoke(main, options)
    assert done.exit_code == 0 and done.output.endswith("code, proof\n")


@pytest.mark.parametrize(("after", "relation"), [(RIGHT, "identical"), (WRONG, "refuted")])
def test_the_tab_shows_the_verdict_and_colours_what_matches(
    view: Callable[..., Path], viewed: Viewed, after: str, relation: str
) -> None:
    viewed.open(view(BEFORE, after, options=("--prove",)), "#tab=proof&program=1&color=proof")
    assert viewed.texts("#tab-proof .verdict b") == [relation]
    assert viewed.texts("#tab-proof .stages small") == ["", relation]
    later = "#tab-proof .columns .columns > .lines:nth-child(2)"
    unmatched = viewed.texts(f"{later} .line.unmatched")
    assert [line.split(" = ")[0].split("%")[-1] for line in unmatched] == (
        [] if relation == "identical" else ["rectified", "fusion", "double"]
    )
    viewed.page.locator(f"{later} .line.matched", has_text="%zeros.1 =").click()
    selected = viewed.texts("#tab-proof .line.selected")
    assert ["%zeros =" in selected[0], "%zeros.1 =" in selected[1]] == [True, True]
    viewed.page.locator("#tab-proof .stages li").first.click()
    assert viewed.texts("#tab-proof .verdict") == ["the program as given"]
