"""Tokens of HLO text: what every word means."""

from __future__ import annotations

from pathlib import Path

import pytest

from hloom import HloModule
from hloom.text.tokens import Kind, statement_at, tokens

TEXT = """HloModule m, is_scheduled=true
max { a = f32[] parameter(0)  ROOT m = f32[] maximum(a, a) }
%sum (c: f32[], d: f32[2]{0:T(2)}) -> f32[] {
  %c = f32[] parameter(0)
  ROOT %s = (f32[], u8[2]{0}) tuple(%c, /*index=1*/d), control-predecessors={%c}, metadata={op_name="q = r"}
}
ENTRY main {
  loop = (f32[]) while(add(x, y), z), condition=%more, body=step, sharding={replicated}
  c = pred[3] constant({true, false, nan}), backend_config={uplo = 76 : ui8, trans = 78 : ui8}
  x = s32[] conditional(p), branch_computations={%one, two}, direction=LT // x = f32[] negate(x)
}
"""


def words(kind: Kind) -> list[str]:
    return [token.name for token in tokens(TEXT, 0, len(TEXT)) if token.kind is kind]


def test_kinds() -> None:
    assert words(Kind.DEFINITION) == ["a", "m", "c", "s", "loop", "c", "x"]
    assert words(Kind.OPERAND) == ["a", "a", "c", "d", "c", "x", "y", "z", "p"]
    assert words(Kind.COMPUTATION) == ["max", "sum", "main", "more", "step", "one", "two"]
    assert words(Kind.PARAMETER) == ["c", "d"]
    assert words(Kind.OPCODE) == [
        "parameter", "maximum", "parameter", "tuple", "while", "add", "constant", "conditional",
    ]  # fmt: skip
    assert words(Kind.VALUE) == [
        "m",
        "true",
        "replicated",
        "true",
        "false",
        "nan",
        "uplo",
        "ui8",
        "trans",
        "ui8",
        "LT",
    ]
    assert words(Kind.KEY)[:3] == ["is_scheduled", "control-predecessors", "metadata"]
    assert words(Kind.TYPE)[2:5] == ["f32[]", "f32[2]{0:T(2)}", "f32[]"]
    assert words(Kind.OPAQUE) == ["/*index=1*/", '"q = r"', "// x = f32[] negate(x)"]
    assert words(Kind.KEYWORD) == ["HloModule", "ROOT", "ROOT", "ENTRY"]


def test_tokens_have_their_places_and_attributes() -> None:
    for token in tokens(TEXT, 0, len(TEXT)):
        assert TEXT[token.start : token.end].removeprefix("%") == token.name
    (used,) = [t for t in tokens(TEXT, 0, len(TEXT)) if t.name == "step"]
    assert used.key == "body"


FILES = sorted((Path(__file__).parents[1] / "hlo").rglob("*.hlo"))


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_names_are_those_of_the_parser(file: Path) -> None:
    """As many instructions are defined and used as the module has."""
    for text in file.read_text().split("// -----"):
        if not text.strip():
            continue
        try:
            instructions = list(HloModule.from_text(text).instructions())
        except ValueError:
            continue  # a file about an error
        kinds = [token.kind for token in tokens(text, 0, len(text))]
        written = [i for i in instructions if i.position >= 0]
        anonymous = [i for i in written if ".anon" in i.name]  # operands that are instructions
        assert kinds.count(Kind.DEFINITION) == len(written) - len(anonymous)
        uses = sum(len(i.operands) + len(i.control_predecessors) for i in written)
        assert kinds.count(Kind.OPERAND) == uses - len(anonymous)


def test_statements_begin_at_their_line() -> None:
    text = "e {\n  a = f32[2] constant({1,\n    2}),\n    sharding={replicated}\n"
    text += "  ROOT b = f32[2] negate(a)\n}\n"
    start, end = statement_at(text, text.index("sharding"))
    assert text[start:end] == "  a = f32[2] constant({1,\n    2}),\n    sharding={replicated}\n"
    start, end = statement_at(text, text.index("negate"))
    assert text[start:end] == "  ROOT b = f32[2] negate(a)\n"
