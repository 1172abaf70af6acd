"""The quick reader of lines reads what the general reader reads: the same program, or an error for both."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import hloom.operations  # noqa: F401  (declares the operations)
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.text.parser import parse_module
from tests.text.texts import LOOP, TEXTS
from tests.work import bytecodes

PRINTED = sorted({parse_module(text).to_text() for text in TEXTS.values()})
PIECES = [
    *"{}()[],=%-0é:ax", '"', "'", "\\", "/*", "*/", "//", "\n", " ", "f32[2]", "ROOT ", "inf", "->", "...",
    ", metadata={}", ", sharding={replicated}", ", calls=p", "constant(1)", ", control-predecessors={%p}",
    "token[]", "99999999999999999999",
]  # fmt: skip


def outcome(text: str, *, quick: bool) -> str:
    """The print of a text; empty if it is refused, which must be with a place and a rule."""
    try:
        return parse_module(text, quick=quick).to_text()
    except HloError as error:
        assert error.rule and error.line and error.column
        return ""


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A printed program with something cut out of it or put into it."""
    text = draw(st.sampled_from(PRINTED))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from([0, 0, 1, 5, 30])))
        text = text[:start] + draw(st.sampled_from(["", *PIECES])) + text[end:]
    return text


@given(damaged())
def test_both_readers_agree_on_damaged_programs(text: str) -> None:
    assert outcome(text, quick=True) == outcome(text, quick=False)


def test_an_abandoned_line_leaves_no_trace() -> None:
    # The quick reader gives this line up only after it has taken the control dependency.
    text = """ENTRY e {
  p = f32[] parameter(0)
  q = f32[] negate(p), control-predecessors={p}, statistics={visualizing_index=0,a=1 }, origin={ {"x"}}
  ROOT r = f32[] negate(q), control-predecessors={q}, origin={{ }}
}
"""
    p, q, r = parse_module(text).entry.instructions
    assert list(p.users) == [q] and p.control_successors == (q,)
    assert list(q.users) == [r] and q.control_successors == (r,)


def test_large_modules_take_few_steps_a_line() -> None:
    head, tail = LOOP.split("ENTRY")
    lines = [
        f"  %v{i} = f32[12]{{0}} multiply(%{f'v{i - 1}' if i else 'q'}, %q), "
        f'metadata={{op_name="jit(step)/layer_{i % 50}/mul" source_file="model.py" source_line={i % 900}}}'
        for i in range(2_000)
    ]
    at = tail.index("\n  %zero")
    text = head + "ENTRY" + tail[:at] + "\n" + "\n".join(lines) + tail[at:]
    HloModule.from_text(head + "ENTRY" + tail).to_text()  # loads what reading and writing need
    assert bytecodes(lambda: HloModule.from_text(text)) < 1000 * len(lines)
    module = HloModule.from_text(text)
    assert bytecodes(module.to_text) < 1000 * len(lines)
    assert module.to_text().count("\n") > len(lines)
