"""The answers of the language server, by offsets; `test_language_protocol.py` asks through the protocol."""

from __future__ import annotations

import json
import random
import sys
import time

import pytest

from hloom.errors import HloError
from hloom.tools.language_server import formatting
from hloom.tools.language_server.analysis import MOST_PROBLEMS, Analysis
from hloom.tools.language_server.completion import MOST_PROPOSALS, complete
from hloom.tools.language_server.formatting import formatted
from hloom.tools.language_server.hover import hover
from hloom.tools.language_server.messages import locations, symbols
from hloom.tools.language_server.outline import MOST_ENTRIES, outline
from hloom.tools.language_server.source import Changes, Place, Source
from hloom.tools.language_server.view import DocumentView

TEXT = """HloModule m

%sum (c: f32[], x: f32[]) -> f32[] {
  %c = f32[] parameter(0)
  %x = f32[] parameter(1)
  ROOT %add = f32[] add(%c, %x), metadata={op_name="jit(f)/add"}
}

ENTRY %main (x: f32[4,8]) -> f32[4] {
  %x = f32[4,8] parameter(0)
  %x.1 = f32[4,8] negate(%x), metadata={op_name="x" source_file="model.py" source_line=3}
  %zero = f32[] constant(0)
  ROOT %r = f32[4] reduce(%x.1, %zero), dimensions={1}, to_apply=%sum
}
"""


def view(text: str = TEXT, analysed: str | None = None) -> DocumentView:
    return DocumentView(Source(text), Analysis(Source(text if analysed is None else analysed)))


def at(marked: str, text: str = TEXT) -> int:
    """Return the offset of the ``«`` in a part of the text."""
    part = marked.replace("«", "")
    assert text.count(part) == 1, part
    return text.index(part) + marked.index("«")


def places(found: DocumentView, marked: str) -> list[int]:
    symbol = found.symbol_at(at(marked))
    assert symbol is not None
    return [token.start for token in found.occurrences(symbol)]


def test_names_are_found_in_their_computation() -> None:
    found = view()
    assert places(found, "negate(«%x)") == [
        at("main («x: "), at("  «%x = f32[4,8]"), at("negate(«%x)"),
    ]  # fmt: skip
    assert places(found, "%c, %«x)") == [at("«x: f32[]) ->"), at("  «%x = f32[] "), at("%c, «%x)")]
    assert places(found, "to_apply=%su«m") == [at("«%sum (c"), at("to_apply=«%sum")]
    assert places(found, "ROOT %a«dd =") == [at("ROOT «%add =")]
    for marked in ("f32[4] red«uce(", "f32[4«] reduce", "dimen«sions=", 'op_name="«x"'):
        assert found.symbol_at(at(marked)) is None


@pytest.mark.parametrize(
    ("used", "defined"),
    [
        ("reduce(%x.«1", "  «%x.1 ="),
        ("negate(%«x)", "  «%x = f32[4,8]"),
        ("to_apply=%«sum", "«%sum (c"),
        ("main («x: ", "  «%x = f32[4,8]"),
    ],
)
def test_definitions(used: str, defined: str) -> None:
    found = view()
    symbol = found.symbol_at(at(used))
    assert symbol is not None
    span = found.definition(symbol)
    assert span is not None and span.start == at(defined)


def test_definitions_while_the_text_changes() -> None:
    """The analysis is of the text before an edit that moves the lines and renames an instruction."""
    text = TEXT.replace("  %x.1 = ", "  %new = f32[] constant(7)\n  %x.2 = ").replace("(%x.1,", "(%x.2,")
    found = view(text, analysed=TEXT)
    for used, defined in (
        ("to_apply=%«sum", "«%sum (c"),
        ("reduce(%«x.2", "  «%x.2 ="),
        ("%«zero)", "  «%zero ="),
    ):
        symbol = found.symbol_at(at(used, text))
        assert symbol is not None
        span = found.definition(symbol)
        assert span is not None and span.start == at(defined, text)


def test_new_names() -> None:
    found = view()
    symbol = found.symbol_at(at("reduce(%x.«1"))
    assert symbol is not None
    assert found.check_new_name(symbol, "%y") == "y"
    assert found.check_new_name(symbol, "c") == "c"  # of another computation
    for name in ("", "1y", "a b", "f32", "ROOT"):
        with pytest.raises(HloError, match=r"rename\.well-formed"):
            found.check_new_name(symbol, name)
    with pytest.raises(HloError, match=r"rename\.unique"):
        found.check_new_name(symbol, "zero")


@pytest.mark.parametrize(
    ("marked", "words"),
    [
        ("negate(%«x)", ["%x = f32[4,8]{1,0} parameter()", "1 user", "128 bytes", "{1,0}"]),
        ("reduce(%x.«1", ["negate(%x)", "model.py:3", "`x`", "-operand"]),
        ("ROOT %«r", ["root", "reduce(operands...)", "f32[4]"]),
        ("to_apply=%«sum", ["%sum (f32[], f32[]) -> f32[]", "3 instructions"]),
        ("] «reduce(", ["### reduce", "#### Rules", "#### Example"]),
        ("«dimensions=", ["`dimensions`: required by reduce"]),
        ("to_«apply=", ["a computation that reduce calls"]),
        ("«source_file", ["an attribute that any instruction may have"]),
        ("%x.1 = f32[4,«8]", ["[4,8]", "128 bytes"]),
    ],
)
def test_hover(marked: str, words: list[str]) -> None:
    found = hover(view(), at(marked))
    assert found is not None
    assert [word for word in words if word not in found[0]] == []


def test_nothing_is_known_about_strings_and_blanks() -> None:
    assert hover(view(), at("jit(«f)")) is None
    assert hover(view(), at("HloModule m\n«\n")) is None


@pytest.mark.parametrize(
    ("line", "first", "missing"),
    [
        ("  %y = f32[4,8] mul", ["mulhi", "multiply"], ["add"]),
        ("  %y = f32[4,8] add(", ["zero", "x.1", "x"], ["r", "c"]),
        ("  %y = f32[4,8] add(%x, %", ["%zero", "%x.1", "%x"], ["%r"]),
        ("  %y = pred[] compare(%x, %x), ", ["direction="], ["to_apply="]),
        ("  %y = pred[] compare(%x, %x), direction=LT, ", ["type="], ["direction="]),
        ("  %y = pred[] compare(%x, %x), direction=", ["EQ", "NE", "GE"], []),
        ("  %y = f32[4] reduce(%x, %zero), to_apply=%", ["%sum"], ["%main"]),
        ("  %y = f32[4] sort(%x), is_stable=", ["true", "false"], []),
        ("  %y = f32[4] add(%x, %x), control-predecessors={", ["zero"], []),
        ('  %y = f32[4] add(%x, %x), metadata={op_name="', [], ["zero"]),
    ],
)
def test_completion(line: str, first: list[str], missing: list[str]) -> None:
    text = TEXT.replace("  ROOT %r", line + "\n  ROOT %r")
    found = complete(view(text), text.index(line) + len(line))
    words = [proposal.text for proposal in found.proposals]
    assert words[: len(first)] == first
    assert not set(missing) & set(words)


def test_outline() -> None:
    entries = outline(view())
    assert [(e.name, e.detail) for e in entries] == [
        ("sum", "3 instructions"),
        ("main", "ENTRY, 4 instructions"),
    ]
    assert [child.name for child in entries[1].children] == ["x", "x.1", "zero", "r"]
    assert entries[1].children[1].detail == "negate f32[4,8]"
    assert TEXT[entries[1].span.start : entries[1].span.end].startswith("%main (x")


def long_program(count: int) -> str:
    lines = ["HloModule m", "ENTRY e {", "  x.0 = f32[2] parameter(0)"]
    lines += [f"  x.{n + 1} = f32[2] negate(x.{n})" for n in range(count)]
    return "\n".join([*lines, f"  ROOT r = f32[2] negate(x.{count})", "}", ""])


def test_large_programs_are_answered_in_part() -> None:
    text = long_program(MOST_ENTRIES + 10)
    found = view(text)
    assert [child.name for child in outline(found)[0].children] == ["x.0", "r"]
    offered = complete(found, text.index("ROOT r") + len("ROOT r = f32[2] negate("))
    assert offered.is_incomplete and len(offered.proposals) == MOST_PROPOSALS


def test_answers_on_30000_lines_are_quick() -> None:
    """The text has an edit since its analysis. An idle processor takes about 60 ms."""
    analysed = long_program(30_000)
    analysis = Analysis(Source(analysed))
    text = analysed.replace("  x.7 = ", "  new = f32[2] constant({1, 2})\n  x.7 = ")
    used = text.index("negate(x.29000)") + len("negate(")

    def answer() -> None:
        found = DocumentView(Source(text), analysis)
        assert found.source.offset(*found.source.place(used)) == used
        symbol = found.symbol_at(used)
        assert symbol is not None
        span = found.definition(symbol)
        assert span is not None and text[span.start : span.end] == "x.29000"
        assert len(list(found.occurrences(symbol))) == 2
        assert hover(found, used) is not None
        assert complete(found, used + 1).proposals
        assert outline(found)

    def seconds() -> float:
        start = time.process_time()
        answer()
        return time.process_time() - start

    assert min(seconds() for _ in range(5)) < 0.25  # all of them together


def test_long_answers_come_at_once() -> None:
    """References of 3,000 uses in 30,000 lines, an outline of 4,500 entries, an edit; as they are sent.

    The target is 100 ms on an idle machine; the bound is ten times that, for slow and busy ones.
    """
    text = long_program(30_000)
    for n in range(10, 30_000, 10):
        text = text.replace(f"negate(x.{n})", f"negate(x.{n}), control-predecessors={{x.0}}")
    found, small = view(text), view(long_program(4500))
    symbol = found.symbol_at(text.index("x.0"))
    assert symbol is not None

    def references() -> int:
        sent = locations(found.source, "file:///program.hlo", found.occurrences(symbol))
        return json.dumps(sent).count("range")

    def entries() -> int:
        return json.dumps(symbols(small.source, outline(small))).count("selectionRange")

    def edit() -> int:
        where = Place(15_000, 2)
        return len(found.source.edited(where, where, "new", 2).text) - len(text)

    for answer, size in ((references, 3001), (entries, 4503), (edit, 3)):
        seconds: list[float] = []
        for _ in range(5):
            start = time.process_time()
            assert answer() == size
            seconds.append(time.process_time() - start)
        assert min(seconds) < 1, (answer, seconds)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_edits_of_any_text(encoding: str) -> None:
    """Positions are counted in code units; after an edit all are those of the new text read anew."""
    draw = random.Random(encoding)
    source = Source(TEXT, 0, encoding)
    for version in range(200):
        first, last = sorted(draw.randrange(len(source.text) + 1) for _ in range(2))
        last = min(last, first + draw.randrange(40))
        new = "".join(draw.choice("ab\n😀é ") for _ in range(draw.randrange(30)))
        text = source.text[:first] + new + source.text[last:]
        source = source.edited(source.place(first), source.place(last), new, version)
        assert source.text == text and source.version == version
        again = Source(text, version, encoding)
        codec = encoding + "-le" if encoding != "utf-8" else encoding
        for offset in range(0, len(text), 7):
            place = source.place(offset)
            assert place == again.place(offset) and source.offset(*place) == offset
            before = text[text.rfind("\n", 0, offset) + 1 : offset].encode(codec)
            assert place.character == len(before) // (int(encoding[4:]) // 8)


def test_problems_have_ranges_and_a_limit() -> None:
    text = TEXT.replace("negate(%x)", "nagate(%x)")
    (problem,) = Analysis(Source(text)).problems
    assert (text[problem.span.start : problem.span.end], problem.rule) == ("nagate", "text.opcode")
    text = TEXT.replace("f32[4,8] negate", "f32[4,9] negate")
    problem, *_ = Analysis(Source(text)).problems
    assert (text[problem.span.start : problem.span.end], problem.rule) == (
        "%x.1",
        "instruction.shape-matches",
    )
    many = long_program(2 * MOST_PROBLEMS).replace("negate", "nagate")
    assert len(Analysis(Source(many)).problems) == MOST_PROBLEMS


def test_formatting_prints_the_program_with_its_names() -> None:
    text = """HloModule m
one { p = f32[] parameter(0)   ROOT q = f32[] negate(p) }
ENTRY main { p = f32[12] parameter(0)
    c = f32[12] constant({1,2,3,4,5,6,7,8,9,10,11,12})
  ROOT z = f32[12] map(p), dimensions={0}, to_apply=one }"""
    result = formatted(text)
    assert "constant({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})" in result
    assert "  ROOT q = f32[] negate(p)\n}\n\nENTRY main (p: f32[12]) -> f32[12] {\n" in result
    assert formatted(result) == result
    assert "%p = f32[12]{0} parameter" in formatted(
        result.replace("  p =", "  %p =").replace("[12] ", "[12]{0} ")
    )


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (TEXT.replace("ROOT %r", "// the result\n  ROOT %r"), r"format\.comments"),
        (TEXT.replace("ROOT %r", "/* the result */ ROOT %r"), r"format\.comments"),
        (TEXT.replace("negate", "nagate"), r"format\.valid"),
    ],
)
def test_formatting_loses_nothing(text: str, rule: str) -> None:
    with pytest.raises(HloError, match=rule):
        formatted(text)


def test_formatting_compares_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formatting, "_means", lambda text, meaning: False)
    with pytest.raises(HloError, match=r"format\.exact"):
        formatted(TEXT)


def test_positions_are_utf16() -> None:
    source = Source("ab\nä😀c\n")
    for offset, place in ((0, (0, 0)), (3, (1, 0)), (4, (1, 1)), (5, (1, 3)), (6, (1, 4)), (7, (2, 0))):
        assert source.place(offset) == Place(*place)
        assert source.offset(*place) == offset
    assert source.offset(1, 99) == 6
    assert source.offset(9, 0) == 7


@pytest.mark.parametrize(
    ("old", "new"),
    [("abcdef", "abXdef"), ("abc", "abc"), ("aaa", "aaaaa"), ("aXXb", "ab"), ("", "x"), ("x", "")],
)
def test_offsets_move_with_the_text(old: str, new: str) -> None:
    changes = Changes(old, new)
    assert old[: changes.start] == new[: changes.start]
    assert old[changes.old_end :] == new[changes.old_end + changes.shift :]
    for offset in range(len(old) + 1):
        if offset < changes.start or offset > changes.old_end:
            moved = changes.forward(offset)
            assert old[offset:] == new[moved:] or old[:offset] == new[:moved]
            assert changes.backward(moved) == offset


def test_the_server_needs_pygls(monkeypatch: pytest.MonkeyPatch) -> None:
    from hloom.tools.commands.lsp import lsp

    monkeypatch.setitem(sys.modules, "pygls", None)
    monkeypatch.setitem(sys.modules, "lsprotocol", None)
    monkeypatch.delitem(sys.modules, "hloom.tools.language_server.server", raising=False)
    with pytest.raises(HloError, match=r"pip install 'hloom\[lsp\]'"):
        assert lsp.callback is not None
        lsp.callback(stdio=True)
