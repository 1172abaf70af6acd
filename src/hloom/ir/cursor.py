"""A position in HLO text: the scannerless reader that attribute codecs and the text parser share."""

from __future__ import annotations

import re

from hloom.errors import HloError, ParseError
from hloom.shape.shape import Shape

_BLANK = re.compile(r"(?:\s+|/\*.*?\*/|//[^\n]*)*", re.S)
_INTEGER = re.compile(r"-?\d+")
_NAME = re.compile(r"%?([A-Za-z_][\w.\-]*|\d[\w.\-]*)")
_WORD = re.compile(r"[A-Za-z_][\w.\-]*")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'', re.S)
_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F.]+(?:[pP][+-]?\d+)?|inf|nan|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")
_CLOSING = {"(": ")", "{": "}", "[": "]"}
_BRACKET = re.compile(r'[(){}\[\]]|"(?:[^"\\]|\\.)*"|/\*.*?\*/', re.S)
_LAYOUT_AHEAD = re.compile(r"(?:\s|/\*.*?\*/)*\{\s*[\d:]", re.S)
_SHAPE_HEAD = re.compile(r"([A-Za-z]\w*)\s*\[")


class Cursor:
    """A place in a text. Every reader skips blanks and comments first and fails with line, column and caret."""

    __slots__ = ("end", "position", "text")

    def __init__(self, text: str, position: int = 0) -> None:
        self.text = text
        self.position = position
        self.end = len(text)

    # -- places and errors

    def place(self, position: int | None = None) -> tuple[int, int, str]:
        """The 1-based line and column of a position, and the text of its line."""
        at = min(self.position if position is None else position, self.end)
        start = self.text.rfind("\n", 0, at) + 1
        stop = self.text.find("\n", at)
        line_text = self.text[start : self.end if stop < 0 else stop]
        return self.text.count("\n", 0, at) + 1, at - start + 1, line_text

    def error(self, message: str, *, rule: str = "text.syntax", position: int | None = None) -> ParseError:
        """A ParseError at a position (default: here)."""
        line, column, source = self.place(position)
        return ParseError(message, rule=rule, line=line, column=column, source_line=source)

    def locate(self, error: HloError, position: int | None = None) -> HloError:
        """Give an error without a place the place of a position."""
        line, column, source = self.place(position)
        return error.at(line=line, column=column, source_line=source)

    def expected(self, what: str) -> ParseError:
        """The error for text that is not what the grammar wants here."""
        self.skip()
        found = self.text[self.position : self.position + 24].split("\n")[0]
        return self.error(f"expected {what}, found {found!r}" if found else f"expected {what}, found the end")

    # -- readers

    def skip(self) -> None:
        """Move over blanks and comments."""
        match = _BLANK.match(self.text, self.position)
        if match:
            self.position = match.end()

    def at_end(self) -> bool:
        """Whether only blanks and comments are left."""
        self.skip()
        return self.position >= self.end

    def peek(self, literal: str) -> bool:
        """Whether the text goes on with ``literal``; nothing but blanks is consumed."""
        self.skip()
        return self.text.startswith(literal, self.position)

    def accept(self, literal: str) -> bool:
        """Consume ``literal`` if the text goes on with it."""
        self.skip()
        if self.text.startswith(literal, self.position):
            self.position += len(literal)
            return True
        return False

    def expect(self, literal: str) -> None:
        """Consume ``literal`` or fail."""
        if not self.accept(literal):
            raise self.expected(repr(literal))

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Consume a match of ``pattern`` if there is one here."""
        self.skip()
        found = pattern.match(self.text, self.position)
        if found:
            self.position = found.end()
        return found

    def take(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        """Consume a match of ``pattern`` or fail, naming what was expected."""
        found = self.match(pattern)
        if found is None:
            raise self.expected(what)
        return found

    def integer(self) -> int:
        """A decimal integer."""
        return int(self.take(_INTEGER, "an integer")[0])

    def number(self) -> float:
        """A floating point number in any of the spellings of HLO text."""
        word = self.take(_NUMBER, "a number")[0]
        return float.fromhex(word) if "x" in word.lower() else float(word)

    def boolean(self) -> bool:
        """``true`` or ``false`` (also 1 and 0)."""
        word = self.take(re.compile(r"true|false|[01]\b"), "true or false")[0]
        return word in ("true", "1")

    def word(self) -> str:
        """An identifier."""
        return self.take(_WORD, "a word")[0]

    def name(self, what: str = "a name") -> str:
        """The name of an instruction or computation, without its ``%``."""
        return self.take(_NAME, what)[1]

    def string(self) -> str:
        """A quoted string, with its C escapes undone."""
        found = self.take(_STRING, "a quoted string")
        return unescape(found[1] if found[1] is not None else found[2])

    def braced_text(self) -> str:
        """The raw text of a balanced ``{...}``, braces included; quoted strings inside are skipped whole."""
        self.skip()
        start = self.position
        if not self.text.startswith("{", start):
            raise self.expected("'{'")
        self.position = self.balanced_end(start)
        return self.text[start : self.position]

    def balanced_end(self, start: int) -> int:
        """The position after the bracket that closes the one at ``start``."""
        stack: list[str] = []
        for found in _BRACKET.finditer(self.text, start):
            token = found[0]
            if token in _CLOSING:
                stack.append(_CLOSING[token])
            elif len(token) == 1:
                if not stack or stack.pop() != token:
                    raise self.error(f"unbalanced {token!r}", position=found.start())
                if not stack:
                    return found.end()
        raise self.error("a bracket is never closed", position=start)

    def integers(self, opening: str = "{", closing: str = "}") -> tuple[int, ...]:
        """``{1,2,3}``."""
        self.expect(opening)
        values: list[int] = []
        while not self.accept(closing):
            if values:
                self.expect(",")
            values.append(self.integer())
        return tuple(values)

    def at_shape(self) -> bool:
        """Whether a shape starts here."""
        self.skip()
        if self.text.startswith("(", self.position):
            return True
        return _SHAPE_HEAD.match(self.text, self.position) is not None

    def shape(self) -> Shape:
        """An array, tuple, token or opaque shape; ``{`` counts as a layout only before a digit or a colon."""
        self.skip()
        start = self.position
        if self.text.startswith("(", start):
            end = self.balanced_end(start)
        else:
            head = _SHAPE_HEAD.match(self.text, start)
            if head is None:
                raise self.expected("a shape")
            end = self.balanced_end(head.end() - 1)
            if _LAYOUT_AHEAD.match(self.text, end):
                end = self.balanced_end(self.text.index("{", end))
        try:
            shape = Shape.parse(self.text[start:end])
        except ParseError as error:
            offset = (error.column or 1) - 1 if (error.line or 1) == 1 else 0
            error.line = None
            raise self.locate(error, start + offset) from None
        self.position = end
        return shape


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "0": "\0", "a": "\a", "b": "\b",
            "f": "\f", "v": "\v", "?": "?"}
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.S)


def unescape(text: str) -> str:
    """Undo C escapes; bytes above 127 form UTF-8 together, and stay as surrogates where they do not."""
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        octal, hexadecimal, letter = match.groups()
        if octal:
            return chr(0xDC00 + int(octal, 8)) if int(octal, 8) > 127 else chr(int(octal, 8) & 255)
        if hexadecimal:
            code = int(hexadecimal, 16)
            return chr(0xDC00 + code) if code > 127 else chr(code)
        return _ESCAPES.get(letter, letter)

    plain = _ESCAPE.sub(replace, text)
    return plain.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


_SPECIAL = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\U0010ffff\"'\\]")


def escape(text: str) -> str:
    """C escapes as XLA prints them: octal for every byte that is not printable ASCII."""
    if not _UNPRINTABLE.search(text):
        return text

    def replace(match: re.Match[str]) -> str:
        char = match[0]
        if char in _SPECIAL:
            return _SPECIAL[char]
        return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))

    return _UNPRINTABLE.sub(replace, text)
