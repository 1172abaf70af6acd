"""The number of escapes from the type checker is bounded between the data model and the machine code."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TypeGuard

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "hloom"
ROOMS = ("passes", "plan", "codegen", "cpu")
MOST = 5
"""Functions of ctypes, and modules that register themselves."""
IGNORED = re.compile(r"#.*\b(type|pyright): ignore")


def escapes(code: str) -> list[int]:
    """Return the line of every use of `Any`, also in quotes, and of comments that silence the checker."""
    silenced = [number for number, line in enumerate(code.splitlines(), 1) if IGNORED.search(line)]
    return sorted([*silenced, *(node.lineno for node in ast.walk(ast.parse(code)) if is_any(node))])


def is_any(node: ast.AST) -> TypeGuard[ast.expr]:
    match node:
        case ast.Name(id="Any") | ast.Attribute(attr="Any"):
            return True
        case ast.Constant(value=str() as text) if "Any" in text:
            try:
                return any(map(is_any, ast.walk(ast.parse(text, mode="eval"))))
            except SyntaxError:
                return False
        case _:
            return False


def test_few_values_escape_the_type_checker() -> None:
    found = [
        f"{file.relative_to(SOURCE)}:{line}"
        for room in ROOMS
        for file in sorted((SOURCE / room).rglob("*.py"))
        for line in escapes(file.read_text())
    ]
    assert len(found) <= MOST, "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "x: Any = f()",
        "x: dict[str, Any] = {}",
        "x: typing.Any",
        "x = cast('Any', y)",
        "x = cast('dict[str, Any]', y)",
        "x = f()  # type: ignore",
        "x = f()  # noqa: F401  # pyright: ignore[reportUnusedImport]",
    ],
)
def test_an_escape_is_counted(code: str) -> None:
    assert escapes(code) == [1]


def test_other_code_is_not_counted() -> None:
    assert not escapes('from typing import Any\n"""Any number of names."""')
