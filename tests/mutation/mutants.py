"""One-line changes of Python sources: of the statements of functions, where each change can be observed.

Left out, because no behaviour depends on them or Python's own checks make them impossible:

- docstrings, annotations, and ``strict=`` of `zip` (the lengths are known to be equal);
- the texts of messages: strings are not changed, and Python 3.11 has no positions inside f-strings;
- statements outside functions: tables and thresholds. A threshold decides the speed of a program only, and a
  wrong row of a table is no smaller or larger number;
- ``[0]`` to ``[-1]`` and back: the same element of a sequence of one; ``[1]`` and ``[-2]`` are made;
- the order of the arguments of `SYMMETRIC` functions and of `isinstance`, which refuses the other order.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """A change of one line.

    Attributes:
        path: of the file, relative to the root of the tree.
        line: its number, from 1.
        statement: the first line of its statement; coverage does not report all lines of long statements.
        kind: of the change.
        before, after: the line.
    """

    path: str
    line: int
    statement: int
    kind: str
    before: str
    after: str

    def __str__(self) -> str:
        return (
            f"{self.path}:{self.line} ({self.kind})\n    - {self.before.strip()}\n    + {self.after.strip()}"
        )

    def text(self, root: Path) -> str:
        """Return the text of the changed file of a tree."""
        lines = (root / self.path).read_text().split("\n")
        assert lines[self.line - 1] == self.before, f"{self.path} is another version"
        lines[self.line - 1] = self.after
        return "\n".join(lines)

    def compiles(self, root: Path) -> bool:
        """Return whether the changed file is valid Python."""
        try:
            compile(self.text(root), self.path, "exec", dont_inherit=True)
        except SyntaxError:
            return False
        return True


COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"), ast.Mod: ("%", "+"), ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"),
}  # fmt: skip
NEIGHBOURS = {
    "min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum",
}  # fmt: skip

SYMMETRIC = {
    "min", "max", "minimum", "maximum", "gcd", "lcm", "hypot", "isclose", "fma", "array_equal",
    "logical_and", "logical_or", "logical_xor", "clip", "add", "two_product", "two_sum",
}  # fmt: skip
"""Functions whose value does not depend on the order of their first two arguments."""


def mutants_of(root: Path, path: str) -> list[Mutant]:
    """Return all mutants of a file, including some that are not valid Python."""
    text = (root / path).read_text()
    lines = text.split("\n")
    made: dict[tuple[int, str], Mutant] = {}
    for function in functions(ast.parse(text)):
        for line, statement, start, end, kind, new in changes(function, lines):
            source = lines[line - 1].encode()
            after = (source[:start] + new.encode() + source[end:]).decode()
            if after != lines[line - 1]:
                made.setdefault((line, after), Mutant(path, line, statement, kind, lines[line - 1], after))
    return sorted(made.values(), key=lambda m: (m.line, m.after))


def functions(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of functions, without docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                    yield statement


def walk(node: ast.AST, statement: int) -> Iterator[tuple[ast.AST, int]]:
    """Yield nodes with the first lines of their statements, but none in annotations, in ``strict=`` of zip
    (where lengths are known to be equal), and in f-strings (for which Python 3.11 has no positions)."""
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return
    statement = node.lineno if isinstance(node, ast.stmt) else statement
    yield node, statement
    for name, child in ast.iter_fields(node):
        for part in child if isinstance(child, list) else [child]:
            if isinstance(part, ast.AST) and not isinstance(part, ast.JoinedStr) and name != "annotation":
                yield from walk(part, statement)


Change = tuple[int, int, int, int, str, str]


def changes(statement: ast.stmt, lines: list[str]) -> Iterator[Change]:
    """Yield (line, first line of the statement, first byte, end, kind, new text) of every change."""
    returns = [n for n in ast.walk(statement) if isinstance(n, ast.Return) and n.value is not None]
    for node, first in walk(statement, statement.lineno):
        line = getattr(node, "lineno", None)
        if line is None or node.end_lineno != line:  # type: ignore[attr-defined]
            continue
        for start, end, kind, new in _changes_of(node, lines[line - 1], returns):
            yield line, first, start, end, kind, new


def _changes_of(node: ast.AST, line: str, returns: list[ast.Return]) -> Iterator[tuple[int, int, str, str]]:
    def text(part: ast.AST) -> str:
        return line.encode()[part.col_offset : part.end_col_offset].decode()  # type: ignore[attr-defined]

    start, end = node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
    if isinstance(node, ast.Compare):
        yield from _between(
            node.left, node.comparators[0], "comparison", COMPARISONS[type(node.ops[0])], line
        )
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        yield from _between(node.left, node.right, "arithmetic", ARITHMETIC[type(node.op)], line)
    elif isinstance(node, ast.BoolOp):
        words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        yield from _between(node.values[0], node.values[1], "boolean", words, line)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield start, end, "removed not", f"bool({text(node.operand)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield start, end, "constant", str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield start, end, "constant", str(node.value + 1)
        if line.encode()[start - 1 : end + 1] != b"[0]" and line.encode()[start - 2 : end + 1] != b"[-1]":
            yield start, end, "constant", f"({node.value - 1})"
    elif isinstance(node, ast.Call):
        yield from _changes_of_call(node, text)
    elif isinstance(node, ast.IfExp):
        yield (
            start,
            end,
            "branches swapped",
            f"({text(node.orelse)} if {text(node.test)} else {text(node.body)})",
        )
    elif isinstance(node, ast.Return) and node.value is not None:
        others = [r for r in returns if r is not node and r.end_lineno == r.lineno and r.value is not None]
        if not (isinstance(node.value, ast.Constant) and node.value.value is False):
            yield start, end, "return", "return None"
        for other in others[:2]:
            yield start, end, "return of a neighbour", f"return {ast.unparse(other.value)}"  # type: ignore[arg-type]
    elif isinstance(node, ast.Expr | ast.AugAssign | ast.Raise | ast.Continue | ast.Break | ast.Delete):
        yield start, end, "statement deleted", "pass"


def _between(
    left: ast.AST, right: ast.AST, kind: str, words: tuple[str, str], line: str
) -> Iterator[tuple[int, int, str, str]]:
    """Yield the change of the operator between two operands of one line."""
    old, new = words
    first, last = left.end_col_offset, right.col_offset  # type: ignore[attr-defined]
    place = line.encode()[first:last].find(old.encode())
    if place >= 0:
        yield first + place, first + place + len(old), kind, new


def _changes_of_call(node: ast.Call, text: object) -> Iterator[tuple[int, int, str, str]]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in NEIGHBOURS and node.func.end_col_offset is not None:
        end = node.func.end_col_offset
        yield end - len(name), end, "neighbour", NEIGHBOURS[name]
    plain = [a for a in node.args[:2] if not isinstance(a, ast.Starred)]
    if len(plain) == 2 and name not in SYMMETRIC | {"isinstance"}:
        first, second = plain
        whole = f"{text(second)}, {text(first)}"  # type: ignore[operator]
        yield first.col_offset, second.end_col_offset, "arguments swapped", whole  # type: ignore[misc]
