"""The tolerant parser reads what the parser reads, and goes on after errors."""

from __future__ import annotations

import random

import pytest

from hloom import HloModule
from hloom.errors import HloError
from hloom.ir.verifier import violations
from hloom.text.tolerant import parse_draft

PROGRAM = """HloModule m

max { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT m = f32[] maximum(a, b) }

%sum (c: f32[], d: f32[]) -> f32[] {
  %c = f32[] parameter(0)
  %d = f32[] parameter(1)
  ROOT %s = f32[] add(%c, %d), metadata={op_name="x = y"}
}

ENTRY %main (x: f32[4,8]) -> f32[4] {
  %x = f32[4,8] parameter(0)
  %n = f32[4,8] negate(%x)
  /* %y = f32[4,8] negate( */
  %zero = f32[] constant(0)
  %lowest = f32[] constant(-inf)
  %high = f32[4] reduce(%n, %lowest), dimensions={1}, to_apply=max
  ROOT %r = f32[4] reduce(%n, %zero), dimensions={1}, to_apply=%sum
}
"""


def broken(*changes: tuple[str, str]) -> str:
    text = PROGRAM
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def rules_at(text: str) -> list[tuple[int, str]]:
    """Return the lines and rules of all errors of a text."""
    draft = parse_draft(text)
    errors = [*draft.errors, *(violations(draft.module, draft.stand_ins) if draft.module else ())]
    for error in errors:
        if draft.module is not None:
            draft.module.locate(error)
    return sorted((error.line or 0, error.rule) for error in errors)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PROGRAM, []),
        (broken(("parameter(1)  ROOT", "parametr(1)  ROOT")), [(3, "text.opcode")]),
        (broken(("f32[4,8] negate(%x)", "f32[4,8 negate(%x)")), [(13, "shape.text-form")]),
        (broken(("negate(%x)\n", "negate(%x\n")), [(15, "text.syntax")]),
        (
            broken(("f32[4,8] negate(%x)", "f32[4,9] negate(%x)"), ("constant(0)", "konstant(0)")),
            [(13, "instruction.shape-matches"), (15, "text.opcode")],
        ),
        (broken(("-> f32[4] {", "-> f32[5] {")), [(11, "computation.result-shape")]),
        (broken(("(c: f32[], d: f32[])", "(c: f32[], d f32[)")), [(5, "shape.text-integer")]),
        (broken(("  ROOT %s = f32[] add(%c, %d)", "  ROOT %s = f32[] add(%c, %e)")), [(8, "text.operand")]),
        (broken(("HloModule m", "HloModule m, is_scheduled=1")), [(1, "text.syntax")]),
        (broken(('{op_name="x = y"}', '{op_name="x = y}')), [(8, "text.syntax")]),
        (broken(("to_apply=%sum\n}\n", "to_apply=%sum\n")), [(19, "text.syntax")]),
        (broken(('"x = y"}\n}\n', '"x = y"}\n')), [(10, "text.syntax")]),
        ("", [(1, "text.no-hlo")]),
        ("}{", [(1, "text.single-instruction"), (1, "text.syntax")]),
    ],
)
def test_every_error_is_reported_and_none_that_follows(text: str, expected: list[tuple[int, str]]) -> None:
    assert rules_at(text) == expected


def test_what_can_be_read_is_read() -> None:
    draft = parse_draft(broken(("f32[4,8] negate(%x)", "f32[4,8] nagate(%x)")))
    assert draft.module is not None
    assert [c.name for c in draft.module.computations] == ["max", "sum", "main"]
    assert [i.name for i in draft.stand_ins] == ["n"]
    assert str(next(iter(draft.stand_ins)).shape) == "f32[4,8]{1,0}"
    assert [len(c) for c in draft.module.computations] == [3, 3, 6]
    assert {PROGRAM[e.start] + PROGRAM[e.end - 1] for e in draft.extents.values()} == {"{}"}


def test_valid_text_gives_the_same_module() -> None:
    draft = parse_draft(PROGRAM)
    assert draft.module is not None
    assert draft.module.to_text() == HloModule.from_text(PROGRAM).to_text()


def damaged(source: random.Random) -> str:
    """Return the program with some characters removed, added or replaced."""
    text = list(PROGRAM)
    for _ in range(source.randint(1, 6)):
        at = source.randrange(len(text) + 1)
        match source.randrange(4):
            case 0:
                del text[at : at + source.randint(1, 9)]
            case 1:
                text.insert(at, source.choice('{}()"=,%\n ROOT'))
            case 2:
                text[at : at + 1] = source.choice('{}()"=,%\n ')
            case _ if source.random() < 0.1:
                del text[at:]
    return "".join(text)


def test_it_ends_and_agrees_with_the_parser_on_damaged_texts() -> None:
    for seed in range(400):
        text = damaged(random.Random(seed))
        draft = parse_draft(text)
        if draft.module is not None:
            violations(draft.module, draft.stand_ins)
        try:
            HloModule.from_text(text)
        except HloError:
            assert draft.errors, text
        else:
            assert not draft.errors, text
