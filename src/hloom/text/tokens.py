"""Tokens of HLO text with their meaning, for editors: where names, opcodes and attributes stand.

The scanner reads any text, well formed or not. It tells the tokens of one statement apart (the header of a
module or computation, or an instruction) by the characters around them, and does not look names up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto
from functools import cache
from typing import Final, NamedTuple

import hloom.operations  # noqa: F401  # pyright: ignore[reportUnusedImport]  (declares the operations)
from hloom.ir.operation import REGISTRY
from hloom.regex import regex
from hloom.text.annotations import CONTROL_PREDECESSORS


class Kind(Enum):
    """The meaning of a token."""

    DEFINITION = auto()
    """The name of an instruction before its ``=``."""
    OPERAND = auto()
    """The name of an instruction that is used: an operand or a control predecessor."""
    COMPUTATION = auto()
    """The name of a computation, before its body or as the value of an attribute."""
    PARAMETER = auto()
    """The name of a parameter in the signature of a computation."""
    OPCODE = auto()
    TYPE = auto()
    KEY = auto()
    """The name of an attribute."""
    VALUE = auto()
    KEYWORD = auto()
    OPAQUE = auto()
    """A quoted string or a comment."""


class Token(NamedTuple):
    """A part of a text; ``name`` is without ``%``, ``key`` the attribute whose value it belongs to."""

    kind: Kind
    start: int
    end: int
    name: str
    key: str


_NAME: Final = r"[A-Za-z_][A-Za-z0-9_.\-]*+"
_LEXEME: Final = regex(
    r'(?P<opaque>"(?:[^"\\\n]|\\.)*+(?:"|(?=\n)|\Z)|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z))'
    r"|(?P<type>[A-Za-z][A-Za-z0-9]*+\[[^\]\n(){}]*+\]?(?:\{[^{}\n=]*+\})?+)"
    rf"|(?P<word>%?{_NAME})(?P<after>[ \t]*+[=({{:]?)"
    r"|(?P<mark>[(){},])"
)
STATEMENT: Final = regex(
    rf"^[ \t]*+(?:HloModule\b|ENTRY\b|(?:ROOT[ \t]++)?+(?:%{_NAME}[ \t]*+=|{_NAME}[ \t]++=)"
    rf"|%?{_NAME}[^=\n]*\{{[ \t]*$|\}})",
    re.M,
)
"""The beginning of a statement at the beginning of a line."""
_KEYWORDS: Final = frozenset(
    ("ENTRY", "HloModule", "ROOT", "FileNames", "FunctionNames", "FileLocations", "StackFrames")
)


@cache
def callee_keys() -> frozenset[str]:
    """Return the attributes whose values are names of computations."""
    return frozenset(role.name for cls in REGISTRY.values() for role in cls.roles) | {"calls"}


class Scanner:
    """The state between two tokens.

    Attributes:
        depth: number of parentheses and braces that are open in the statement.
        key: the attribute whose value is being read, and the depth of its name.
        defined: the name of an instruction has been read, and its end has not.
        opcodes: the opcodes whose operands are being read, with the depths of their names, outer ones first.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.key, self.key_depth = "", 0
        self.defined = False
        self.opcodes: list[tuple[str, int]] = []

    def mark(self, sign: str) -> None:
        """Read a parenthesis, brace or comma."""
        if sign in "({":
            self.depth += 1
        elif sign in ")}":
            self.depth -= 1
            if self.opcodes and self.depth <= self.opcodes[-1][1]:
                self.opcodes.pop()
            if sign == "}" and self.depth < 0:  # the end of a body
                self.__init__()
        if self.depth < self.key_depth or (sign == "," and self.depth == self.key_depth):
            self.key = ""

    @property
    def in_braces(self) -> bool:
        """Return true inside an open brace of an attribute's value: ``backend_config={side = 76``."""
        return bool(self.key) and self.depth > self.key_depth

    def word(self, word: str, after: str, *, begins_line: bool) -> Kind:
        """Return the kind of a word from the state and the characters after it."""
        sign = after[-1:]
        if word in _KEYWORDS:
            self.key, self.key_depth = ("HloModule", 0) if word == "HloModule" else ("", 0)
            self.defined = False
            return Kind.KEYWORD
        if sign == "=" and (word[0] == "%" or after != "=") and (begins_line or not self.in_braces):
            self.__init__()
            self.defined = True
            return Kind.DEFINITION
        if sign == "=" and after != "=" and self.in_braces:
            return Kind.VALUE
        if sign == "=":
            self.key, self.key_depth = word, self.depth
            return Kind.KEY
        if self.key == "HloModule":  # the name of the module
            self.key = ""
            return Kind.VALUE
        if self.key and (sign == "{" or after == " ("):  # a computation after the header of the module
            self.__init__()
        if self.key:
            used = Kind.OPERAND if self.key == CONTROL_PREDECESSORS else Kind.VALUE
            return Kind.COMPUTATION if self.key in callee_keys() else used
        if self.defined and sign == "(" and word[0] != "%":
            self.opcodes.append((word, self.depth))
            return Kind.OPCODE
        if self.defined:
            return Kind.OPERAND if self.opcodes and self.opcodes[-1][0] != "constant" else Kind.VALUE
        return Kind.PARAMETER if sign == ":" else Kind.COMPUTATION


def tokens(text: str, start: int, end: int, scanner: Scanner | None = None) -> Iterator[Token]:
    """Yield the tokens of ``text[start:end]``, which begins with a statement; ``scanner`` keeps the state."""
    scanner = scanner or Scanner()
    for match in _LEXEME.finditer(text, start, end):
        at = match.start()
        match match.lastgroup:
            case "opaque":
                yield Token(Kind.OPAQUE, at, match.end(), match[0], scanner.key)
            case "type":
                yield Token(Kind.TYPE, at, match.end(), match[0], scanner.key)
            case "mark":
                scanner.mark(match[0])
            case _:
                word, after = match["word"], match["after"]
                begins_line = (
                    after.endswith("=")
                    and not text[text.rfind("\n", 0, at) + 1 : at].replace("ROOT", "").strip()
                )
                kind = scanner.word(word, after, begins_line=begins_line)
                key = "" if kind is Kind.KEY else scanner.key
                yield Token(kind, at, at + len(word), word.removeprefix("%"), key)
                if kind is not Kind.KEY and after[-1:] in ("(", "{"):
                    scanner.mark(after[-1])


def statement_at(text: str, offset: int) -> tuple[int, int]:
    """Return the range of the lines of the statement around an offset."""
    start = text.rfind("\n", 0, offset) + 1
    while start and STATEMENT.match(text, start) is None:
        start = text.rfind("\n", 0, start - 1) + 1
    line_end = text.find("\n", offset)
    match = STATEMENT.search(text, line_end + 1) if line_end >= 0 else None
    return start, match.start() if match else len(text)
