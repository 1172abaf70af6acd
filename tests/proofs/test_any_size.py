"""`hloom prove --any-size` decides whether two programs are equal for all sizes of their parameters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.proofs.symbolic.pairs import PairVerdict, prove_any_size
from hloom.proofs.verdict import Relation
from hloom.tools.commands.prove import prove

pytest.importorskip("z3", reason="z3 is not installed")

SUM = """
HloModule sum
ENTRY e {
  x = f32[7,5] parameter(0)
  y = f32[5] parameter(1)
  b = f32[7,5] broadcast(y), dimensions={1}
  s = f32[7,5] add(x, b)
  t = f32[5,7] transpose(s), dimensions={1,0}
  ROOT r = f32[35] reshape(t)
}
"""
TRANSPOSED = """
HloModule transposed
ENTRY e {
  x = f32[7,5] parameter(0)
  y = f32[5] parameter(1)
  t = f32[5,7] transpose(x), dimensions={1,0}
  b = f32[5,7] broadcast(y), dimensions={0}
  s = f32[5,7] add(t, b)
  ROOT r = f32[35] reshape(s)
}
"""
CUT = """
HloModule cut
ENTRY e {
  x = f32[7] parameter(0)
  y = f32[5] parameter(1)
  c = f32[12] concatenate(x, y), dimensions={0}
  ROOT r = f32[BOUND] slice(c), slice={[0:BOUND]}
}
"""
FIRST = """
HloModule first
ENTRY e {
  x = f32[7] parameter(0)
  y = f32[5] parameter(1)
  ROOT r = f32[BOUND] slice(x), slice={[0:BOUND]}
}
"""


def judged(before: str, after: str) -> PairVerdict:
    return prove_any_size(HloModule.from_text(before), HloModule.from_text(after))


def test_numbers_of_both_programs_vary_with_the_sizes_of_parameters() -> None:
    result = judged(SUM, TRANSPOSED)
    assert result.verdict.relation is Relation.IDENTICAL
    assert result.parameters == ("x: f32[a,b]", "y: f32[b]")
    assert result.derived == {35: "a*b"}
    assert result.conditions == ()


def test_other_numbers_are_fixed_and_restrict_the_sizes() -> None:
    whole, part = (judged(*(text.replace("BOUND", bound) for text in (CUT, FIRST))) for bound in "73")
    assert whole.verdict.relation is part.verdict.relation is Relation.IDENTICAL
    assert whole.conditions == ()
    assert part.conditions == ("-3 + a >= 0",)


def test_programs_that_are_equal_at_their_own_sizes_only_are_refuted() -> None:
    # The second row ends at twice the number of columns, which is the number of rows, 6, here only.
    rows = """
    HloModule rows
    ENTRY e {
      x = f32[6,3] parameter(0)
      s = f32[1,3] slice(x), slice={[1:2], [0:3]}
      ROOT r = f32[3] reshape(s)
    }"""
    flat = """
    HloModule flat
    ENTRY e {
      x = f32[6,3] parameter(0)
      s = f32[18] reshape(x)
      ROOT r = f32[3] slice(s), slice={[3:6]}
    }"""
    result = judged(rows, flat)
    assert result.verdict.relation is Relation.REFUTED
    assert result.verdict.sizes["a"] != 2 * result.verdict.sizes["b"]
    larger = judged(rows.replace("[6,3]", "[7,3]"), flat.replace("[6,3]", "[7,3]").replace("[18]", "[21]"))
    assert larger.verdict.relation is Relation.IDENTICAL
    assert larger.derived == {6: "2*b", 21: "a*b"}


def test_different_parameters_are_refused() -> None:
    with pytest.raises(HloError, match="different parameters") as caught:
        judged(SUM, SUM.replace("7,5", "8,5"))
    assert caught.value.rule == "prove.parameters"
    scalar = "HloModule m\nENTRY e {\n  ROOT x = f32[] parameter(0)\n}\n"
    with pytest.raises(HloError, match="no parameter has a size") as caught:
        judged(scalar, scalar)
    assert caught.value.rule == "prove.parameters"


def run(folder: Path, before: str, after: str, *options: str) -> Result:
    paths = folder / "before.hlo", folder / "after.hlo"
    for path, text in zip(paths, (before, after), strict=True):
        path.write_text(text)
    return CliRunner().invoke(prove, ["--any-size", *options, *map(str, paths)])


def test_the_command_states_what_is_proved(tmp_path: Path) -> None:
    result = run(tmp_path, SUM, TRANSPOSED)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "identical",
        "  for all sizes a, b for which both programs are valid",
        "  parameters: x: f32[a,b], y: f32[b]",
        "  numbers that vary: 35 = a*b; all others are fixed",
    ]
    result = run(tmp_path, SUM, TRANSPOSED.replace("add", "subtract"), "--json")
    assert result.exit_code == 1
    row = json.loads(result.stdout)
    assert row["relation"] == "refuted" and set(row["sizes"]) == {"a", "b"} and row["inputs"]
