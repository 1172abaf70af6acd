"""Differences of two programs: those that count and those that do not."""

from __future__ import annotations

from hloom import HloModule
from hloom.tools.reports.diff_text import diff_text
from hloom.tools.reports.differences import differences
from tests.reducers import ADD

PROGRAM = f"""HloModule m

{ADD}
ENTRY e {{
  p = f32[4] parameter(0)
  q = f32[4] parameter(1)
  n = f32[4] negate(p)
  t = f32[4] multiply(n, q)
  z = f32[] constant(0)
  r = f32[] reduce(t, z), dimensions={{0}}, to_apply=add
  ROOT x = f32[] exponential(r)
}}
"""


def report(left: str, right: str) -> str:
    return diff_text(
        HloModule.from_text(left), HloModule.from_text(right), lambda text, role: text, context=0
    )


def test_a_program_is_equal_to_itself() -> None:
    assert report(PROGRAM, PROGRAM) == ""


def test_names_and_order_are_no_difference() -> None:
    renamed = PROGRAM.replace(" n =", " minus =").replace("(n,", "(minus,").replace("add {", "sum {")
    renamed = renamed.replace("to_apply=add", "to_apply=sum")
    line = "  q = f32[4] parameter(1)\n"
    assert report(PROGRAM, renamed) == ""
    assert report(PROGRAM, PROGRAM.replace(line, "").replace("  t =", line + "  t =")) == ""


def test_a_changed_operand() -> None:
    text = report(PROGRAM, PROGRAM.replace("multiply(n, q)", "multiply(n, n)"))
    assert "- %t = f32[4]{0} multiply(%n, %q)\n+ %t = f32[4]{0} multiply(%n, %n)" in text
    assert text.endswith("1 changed, 0 removed, 0 added, 9 equal instructions\n")


def test_a_changed_attribute_does_not_change_what_follows() -> None:
    left = PROGRAM.replace("f32[4] negate(p)", "f32[4] reverse(p), dimensions={0}")
    text = report(left, left.replace("dimensions={0}\n  t", "dimensions={}\n  t"))
    assert text.endswith("1 changed, 0 removed, 0 added, 9 equal instructions\n")


def test_another_operation_in_the_same_place_is_a_change() -> None:
    text = report(
        PROGRAM, PROGRAM.replace("multiply(n, q)", "add(n, q)").replace(" t =", " y =").replace("(t", "(y")
    )
    assert "- %t = f32[4]{0} multiply(%n, %q)\n+ %y = f32[4]{0} add(%n, %q)" in text
    assert text.endswith("1 changed, 0 removed, 0 added, 9 equal instructions\n")


def test_an_added_instruction() -> None:
    longer = PROGRAM.replace("multiply(n, q)", "multiply(w, q)").replace(
        "  t =", "  w = f32[4] abs(n)\n  t ="
    )
    text = report(PROGRAM, longer)
    assert "+ %w = f32[4]{0} abs(%n)" in text
    assert text.endswith("1 changed, 0 removed, 1 added, 9 equal instructions\n")
    assert "- %w = f32[4]{0} abs(%n)" in report(longer, PROGRAM)


def test_another_reduction() -> None:
    text = report(PROGRAM, PROGRAM.replace("f32[] add(add.lhs, add.rhs)", "f32[] maximum(add.lhs, add.rhs)"))
    assert "- ROOT %add.result = f32[] add(%add.lhs, %add.rhs)" in text
    assert "+ ROOT %add.result = f32[] maximum(%add.lhs, %add.rhs)" in text


def test_added_and_removed_computations() -> None:
    other = PROGRAM.replace("ROOT x = f32[] exponential(r)", "ROOT x = f32[] call(r), to_apply=more")
    other = other.replace("ENTRY", "more {\n  y = f32[] parameter(0)\n  ROOT w = f32[] sine(y)\n}\n\nENTRY")
    assert "%more: computation added\n+ %y = f32[] parameter(0)" in report(PROGRAM, other)
    assert "%more: computation removed" in report(other, PROGRAM)


def test_the_header() -> None:
    text = report(PROGRAM, PROGRAM.replace("HloModule m", "HloModule m, is_scheduled=true"))
    assert text.startswith("is scheduled\n- False\n+ True\n")


def test_every_instruction_has_one_fate() -> None:
    left, right = HloModule.from_text(PROGRAM), HloModule.from_text(PROGRAM.replace("negate", "abs"))
    for difference in differences(left, right):
        assert difference.left is not None
        assert difference.right is not None
        assert len(difference.pairs) + len(difference.added) == len(difference.right)
        assert len(set(difference.pairs.values())) + len(difference.removed) == len(difference.left)
