"""A character scanner that skips blanks and comments."""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

from hloom.errors import ParseError
from hloom.regex import regex

_BLANK: Final = regex(r"(?:\s+|/\*.*?\*/|//[^\n]*)+", re.DOTALL)


class CharacterScanner:
    """Reads `text` from `position` on."""

    form_rule: str
    """Name of the rule of an error about a missing character."""

    def __init__(self, text: str, position: int) -> None:
        self.text = text
        self.position = position

    def fail(self, wanted: str, rule: str, position: int | None = None) -> NoReturn:
        """Refuse the text at a position, by default the current one."""
        at = self.position if position is None else position
        got = self.text[at : at + 12].split("\n")[0] or "the end"
        self.refuse(f"expected {wanted}, got {got!r}", rule, at)

    def refuse(self, message: str, rule: str, position: int) -> NoReturn:
        """Raise ParseError with the place in the text."""
        raise ParseError(message, rule=rule, **place_in_text(self.text, position))

    def peek(self) -> str:
        """Return the next character that is neither blank nor comment; "" at the end."""
        blank = _BLANK.match(self.text, self.position)
        if blank is not None:
            self.position = blank.end()
        return self.text[self.position : self.position + 1]

    def take(self, character: str) -> bool:
        """Consume a character if it comes next; return whether it did."""
        if self.peek() != character:
            return False
        self.position += 1
        return True

    def expect(self, character: str, where: str) -> None:
        """Consume a character that must come next."""
        if not self.take(character):
            self.fail(f"{character!r} {where}", self.form_rule)


def place_in_text(text: str, position: int) -> dict[str, Any]:
    """Return line, column (from 1) and source line of a position as keyword arguments of an error."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return {
        "line": text.count("\n", 0, position) + 1,
        "column": position - start + 1,
        "source_line": text[start : len(text) if end < 0 else end],
    }
