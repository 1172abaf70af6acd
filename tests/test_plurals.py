"""Messages count by `plural`, which knows that one operand is no operands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hloom.errors import plural

SOURCES = Path(__file__).parents[1] / "src" / "hloom"
NOUN = re.compile(r" (?!(?:as|has|is|takes|this)\b)(?:[a-z]+ )?[a-z]+s\b(?<!ss)")


def counted(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the noun of each length before a plural in an f-string, except after `of`."""
    for text in ast.walk(tree):
        if not isinstance(text, ast.JoinedStr):
            continue
        for before, value, after in zip([None, *text.values], text.values, text.values[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(after, ast.Constant):
                continue
            call, is_part = (
                value.value,
                isinstance(before, ast.Constant) and str(before.value) == " of ",
            )
            is_length = (
                isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "len"
            )
            noun = NOUN.match(str(after.value))
            if is_length and noun and not is_part:
                yield value.lineno, noun[0].strip()


def test_lengths_before_nouns_are_counted_by_plural() -> None:
    files = sorted(SOURCES.rglob("*.py"))
    wrong = [f"{f.relative_to(SOURCES)}:{line}: {noun}" for f in files for line, noun in counted(parsed(f))]
    assert not wrong, "\n".join(wrong)


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


@pytest.mark.parametrize("text", ["f'{len(x)} operands'", "f'takes {len(x)} layout constraints, not'"])
def test_the_search_sees_a_plural(text: str) -> None:
    assert list(counted(ast.parse(text)))


def test_one_is_no_plural() -> None:
    assert [plural(n, "operand") for n in (0, 1, 2, 1000)] == [
        "0 operands",
        "1 operand",
        "2 operands",
        "1,000 operands",
    ]
    assert [plural(n, "start index", "start indices") for n in (1, 2)] == ["1 start index", "2 start indices"]
