"""Cursor: the scannerless reader of HLO text, used by attribute codecs and the text parser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from hloom.errors import HloError, ParseError
from hloom.regex import regex
from hloom.shape.element_type import NAMES
from hloom.shape.shape import Shape
from hloom.shape.shape_parser import parse_shape_at

# Blanks are those of XLA's lexer. Patterns are ASCII and possessive, so that matching never backtracks far.
_BLANK: Final = regex(r"(?:[ \t\r\n]++|/\*(?:[^*]++|\*(?!/))*+\*/|//[^\r\n]*+)*+")
_INTEGER: Final = regex(r"-?[0-9]++")
_NAME: Final = regex(r"(%?)([A-Za-z_][A-Za-z0-9_.\-]*+)(:?)")
_ELEMENT: Final = regex(r"#([0-9]{1,18})(?![0-9])")
_WORD: Final = regex(r"[A-Za-z_][A-Za-z0-9_.\-]*+")
_KEY: Final = regex(r"([A-Za-z_][A-Za-z0-9_.\-]*+)=")
_KEYWORD_END: Final = r"(?![A-Za-z0-9_.\-:=])"
_BOOLEAN: Final = regex(rf"(?:true|false){_KEYWORD_END}")
_STRING: Final = regex(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"|\'([^\'\\]*+(?:\\.[^\'\\]*+)*+)\'')
_NUMBER: Final = regex(
    r"-?(?:inf(?![A-Za-z0-9_.\-])|nan(?![A-Za-z0-9_.\-])"
    r"|(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+)"
)
_JSON: Final = regex(r'[{}]|"[^"\\]*+(?:\\.[^"\\]*+)*+"|"', re.S)
_SHAPE_HEAD: Final = regex(r"([A-Za-z][A-Za-z0-9]*+)[ \t\r\n]*+\[|\(|b\(")
_INT64: Final = range(-(1 << 63), 1 << 63)

# fmt: off
KEYWORDS: Final = frozenset((
    "true", "false", "inf", "nan", "HloModule", "ENTRY", "ROOT", "FileLocations", "FileNames",
    "FunctionNames", "StackFrames", "maximal", "replicated", "manual", "last_tile_dim_replicate", "shard_as",
    "shard_like", "unknown", "unreduced",
))
# fmt: on
TYPE_NAMES: Final = frozenset(name for name in NAMES if name not in ("tuple", "buffer"))
"""Words that are names only after a ``%`` or before a colon."""


class Cursor:
    """A position in a text. Readers skip blanks and comments first; errors have line, column and caret."""

    __slots__ = ("end", "position", "text")

    def __init__(self, text: str, position: int = 0) -> None:
        self.text = text
        self.position = position
        self.end = len(text)

    # -- positions and errors

    def place(self, position: int | None = None) -> tuple[int, int, str]:
        """Return the 1-based line and column of a position, and the text of its line."""
        at = min(self.position if position is None else position, self.end)
        start = self.text.rfind("\n", 0, at) + 1
        stop = self.text.find("\n", at)
        line_text = self.text[start : self.end if stop < 0 else stop]
        return self.text.count("\n", 0, at) + 1, at - start + 1, line_text

    def error(self, message: str, *, rule: str = "text.syntax", position: int | None = None) -> ParseError:
        """Return a ParseError at a position (default: the current one)."""
        line, column, source = self.place(position)
        return ParseError(message, rule=rule, line=line, column=column, source_line=source)

    def locate(self, error: HloError, position: int | None = None) -> HloError:
        """Set the position of an error that has none, and return the error."""
        line, column, source = self.place(position)
        return error.at(line=line, column=column, source_line=source)

    def expected(self, what: str) -> ParseError:
        """Return the error for text that does not match the grammar here."""
        self.skip()
        excerpt = self.text[self.position : self.position + 24].split("\n")[0]
        return self.error(
            f"expected {what}, found {excerpt!r}" if excerpt else f"expected {what}, found the end"
        )

    # -- readers

    def skip(self) -> None:
        """Skip blanks and comments."""
        match = _BLANK.match(self.text, self.position)
        if match:
            self.position = match.end()

    def start(self) -> int:
        """Skip blanks and comments; return the position of what follows."""
        self.skip()
        return self.position

    def at_end(self) -> bool:
        """Return whether only blanks and comments are left."""
        self.skip()
        return self.position >= self.end

    def peek(self, literal: str) -> bool:
        """Return whether ``literal`` follows, consuming only blanks."""
        self.skip()
        return self.text.startswith(literal, self.position)

    def accept(self, literal: str) -> bool:
        """Consume ``literal`` if it follows; return whether it did."""
        self.skip()
        if self.text.startswith(literal, self.position):
            self.position += len(literal)
            return True
        return False

    def expect(self, literal: str) -> None:
        """Consume ``literal`` or raise ParseError."""
        if not self.accept(literal):
            raise self.expected(repr(literal))

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Consume and return a match of ``pattern``, or return None."""
        self.skip()
        match = pattern.match(self.text, self.position)
        if match:
            self.position = match.end()
        return match

    def take(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        """Consume and return a match of ``pattern``, or raise ParseError naming ``what`` was expected."""
        match = self.match(pattern)
        if match is None:
            raise self.expected(what)
        return match

    def integer(self) -> int:
        """Parse a decimal integer of 64 bits."""
        start = self.start()
        word = self.take(_INTEGER, "an integer")[0]
        if len(word) > 20 or int(word) not in _INT64:
            raise self.error(
                f"{word[:24]} does not fit a 64-bit integer", rule="text.integer", position=start
            )
        return int(word)

    def integer32(self) -> int:
        """Parse a decimal integer of 32 bits."""
        start = self.start()
        value = self.integer()
        if not -(1 << 31) <= value < 1 << 31:
            raise self.error(f"{value} does not fit a 32-bit integer", rule="text.integer", position=start)
        return value

    def number(self) -> float:
        """Parse a decimal number, inf or nan, as a double."""
        start = self.start()
        word = self.take(_NUMBER, "a number")[0]
        value = float(word)
        if value in (float("inf"), float("-inf")) and "inf" not in word:
            raise self.error(
                f"{word[:24]} is out of the range of doubles", rule="text.number", position=start
            )
        return value

    def boolean(self) -> bool:
        """Parse ``true`` or ``false``."""
        return self.take(_BOOLEAN, "true or false")[0] == "true"

    def word(self) -> str:
        """Parse an identifier."""
        return self.take(_WORD, "a word")[0]

    def key(self, what: str = "an attribute name") -> str:
        """Parse the name of an attribute and the ``=`` directly after it."""
        return self.take(_KEY, what)[1]

    def name(self, what: str = "a name") -> str:
        """Parse the name of an instruction or computation, and return it without its ``%``.

        Without ``%`` (or a colon after it) a name is neither a keyword nor an element type.
        """
        self.skip()
        match = _NAME.match(self.text, self.position)
        if match is None:
            raise self.expected(what)
        percent, word, colon = match.groups()
        if not percent and not colon:
            if word in KEYWORDS or word in TYPE_NAMES:
                raise self.error(f"expected {what}, found {word!r}, which is one only as %{word}")
            if self.text.startswith("=", match.end()):
                raise self.error(f"expected {what} and a blank, found {word + '='!r}")
        elif percent and colon:
            self.position = match.end() - 1
            return word
        self.position = match.end()
        return word

    def element_index(self) -> int | None:
        """Parse ``#1`` directly after a name, which selects an element of a tuple; return None without it."""
        match = _ELEMENT.match(self.text, self.position)
        if match is None:
            return None
        self.position = match.end()
        return int(match[1])

    def string(self) -> str:
        """Parse a quoted string, undoing its C escapes."""
        start = self.start()
        match = self.take(_STRING, "a quoted string")
        try:
            return unescape(match[1] if match[1] is not None else match[2])
        except ValueError as error:
            raise self.error(str(error), rule="text.string-escape", position=start) from None

    def json_dictionary(self) -> str:
        """Return the raw text of ``{...}``, in which braces outside double-quoted strings are balanced."""
        start = self.start()
        if not self.text.startswith("{", start):
            raise self.expected("'{'")
        end = json_end(self.text, start)
        if end < 0:
            raise self.error("unterminated brace", position=start)
        self.position = end
        return self.text[start:end]

    def string_or_json(self) -> str:
        """Parse a quoted string, or return the raw text of a JSON dictionary in braces."""
        return self.json_dictionary() if self.peek("{") else self.string()

    def integers(self, opening: str = "{", closing: str = "}") -> tuple[int, ...]:
        """Parse ``{1,2,3}``."""
        return tuple([self.integer() for _ in self.items(opening, closing)])

    def items(self, opening: str = "{", closing: str = "}", *, last_comma: bool = False) -> Iterator[int]:
        """Parse the brackets and commas of a list; yield the position of each item, which the caller parses.

        Args:
            opening: empty if it has been parsed.
            closing: the end of the list.
            last_comma: whether a comma may follow the last item.
        """
        self.expect(opening)
        if self.accept(closing):
            return
        yield self.start()
        while not self.accept(closing):
            self.expect(",")
            if last_comma and self.accept(closing):
                return
            yield self.start()

    def fields(self) -> Iterator[int]:
        """Parse the braces of ``{a=1 b=2}``; yield the position of each field, before which commas may be."""
        self.expect("{")
        while not self.accept("}"):
            self.accept(",")
            yield self.start()

    def at_shape(self) -> bool:
        """Return whether a shape starts here."""
        self.skip()
        return _SHAPE_HEAD.match(self.text, self.position) is not None

    def shape(self) -> Shape:
        """Parse an array, tuple, token or opaque shape; a layout is ``{`` followed by a digit or a colon."""
        self.skip()
        try:
            shape, self.position = parse_shape_at(self.text, self.position)
        except HloError as error:
            raise self.locate(error) from error.__cause__
        return shape


def json_end(text: str, start: int) -> int:
    """Return the position after the brace that closes the one at ``start``; -1 if none does."""
    depth = 0
    for match in _JSON.finditer(text, start):
        token = match[0]
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
            if not depth:
                return match.end()
        elif token == '"':
            break  # unterminated string
    return -1


def is_json_dictionary(text: str) -> bool:
    """Return whether a text can be printed unquoted: a single pair of outer braces, balanced inside."""
    return text.startswith("{") and json_end(text, 0) == len(text)


_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "\\": "\\",
    '"': '"',
    "'": "'",
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "?": "?",
}
_ESCAPE: Final = regex(
    r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]+)|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.?))", re.S
)


def unescape(text: str) -> str:
    """Undo C escapes; bytes above 127 are decoded as UTF-8, and kept as surrogates if they are invalid.

    Raise ValueError for an escape that C does not have.
    """
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        octal, hexadecimal, short, long, letter = match.groups()
        if octal or hexadecimal:
            code = int(octal, 8) if octal else int(hexadecimal, 16)
            if code > 255:
                raise ValueError(f"the escape {match[0][:12]} exceeds one byte")
            return chr(0xDC00 + code) if code > 127 else chr(code)
        if short or long:
            code = int(short or long, 16)
            if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                raise ValueError(f"the escape {match[0]} is not a Unicode character")
            return chr(code)
        if letter not in _ESCAPES:
            raise ValueError(f"unknown escape {match[0]!r}")
        return _ESCAPES[letter]

    plain = _ESCAPE.sub(replace, text)
    return plain.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


_SPECIAL = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}
_UNPRINTABLE = regex(r"[^ -~]|[\"'\\]")


def escape(text: str) -> str:
    """Return a text with C escapes as XLA prints them: octal for every byte that is not printable ASCII."""
    if not _UNPRINTABLE.search(text):
        return text

    def replace(match: re.Match[str]) -> str:
        char = match[0]
        if char in _SPECIAL:
            return _SPECIAL[char]
        return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))

    return _UNPRINTABLE.sub(replace, text)
