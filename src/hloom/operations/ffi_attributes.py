"""Attributes of typed custom calls: the MLIR dictionary that XLA keeps as their backend config.

::

    {uplo = 76 : ui8, scale = 5.0e-01 : f32, name = "x", sizes = array<i64: 1, 2>, nested = {flag = true}}
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

import numpy as np

from hloom.errors import ParseError
from hloom.ir.cursor import unescape
from hloom.regex import regex

Attributes: TypeAlias = dict[str, Any]
"""Values by name: numpy scalars, one-dimensional numpy arrays, strings, and nested dictionaries."""

_NAME: Final = regex(r'[A-Za-z_][A-Za-z0-9_$.]*|"(?:[^"\\]|\\.)*"')
_STRING: Final = regex(r'"((?:[^"\\]|\\.)*)"')
_NUMBER: Final = regex(r"[-+]?(?:0x[0-9A-Fa-f]+|[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)")
_TYPE: Final = regex(r"\s*:\s*([a-z]+[0-9]*)")
_ARRAY: Final = regex(r"array<\s*([a-z]+[0-9]*)\s*(?::([^>]*))?>")
_SPACE: Final = regex(r"\s*")
_SIGNED: Final = {"8": np.int8, "16": np.int16, "32": np.int32, "64": np.int64}
_UNSIGNED: Final = {"8": np.uint8, "16": np.uint16, "32": np.uint32, "64": np.uint64}
_TYPES: Final[dict[str, type[np.generic]]] = {
    "i1": np.bool_,
    **{f"{sign}i{bits}": integer for sign in ("", "s") for bits, integer in _SIGNED.items()},
    **{f"ui{bits}": integer for bits, integer in _UNSIGNED.items()},
    "index": np.int64,
    "f32": np.float32,
    "f64": np.float64,
}


def parse_attributes(text: str) -> Attributes:
    """Read the attributes of a typed custom call; an empty text has none.

    Raises ParseError (``ffi.attributes``) for invalid text and for types that the FFI lacks.
    """
    reader = _Reader(text)
    reader.skip()
    attributes = reader.dictionary() if reader.position < len(text) else {}
    reader.skip()
    if reader.position < len(text):
        raise reader.refused("the end")
    return attributes


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.position = text, 0

    def refused(self, wanted: str) -> ParseError:
        excerpt = self.text[self.position : self.position + 24]
        message = f"the backend config is no dictionary of attributes: expected {wanted}, found {excerpt!r}"
        return ParseError(message, rule="ffi.attributes")

    def skip(self) -> None:
        match = _SPACE.match(self.text, self.position)
        self.position = match.end() if match is not None else self.position

    def accept(self, literal: str) -> bool:
        self.skip()
        accepted = self.text.startswith(literal, self.position)
        self.position += len(literal) if accepted else 0
        return accepted

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.skip()
        match = pattern.match(self.text, self.position)
        self.position = match.end() if match is not None else self.position
        return match

    def dictionary(self) -> Attributes:
        if not self.accept("{"):
            raise self.refused("{")
        values: Attributes = {}
        while not self.accept("}"):
            if values and not self.accept(","):
                raise self.refused(", or }")
            name = self.match(_NAME)
            if name is None:
                raise self.refused("a name")
            key = unescape(name[0][1:-1]) if name[0].startswith('"') else name[0]
            values[key] = self.value() if self.accept("=") else {}  # a unit attribute has no value
        return values

    def value(self) -> Any:
        self.skip()
        if self.text.startswith("{", self.position):
            return self.dictionary()
        string = self.match(_STRING)
        if string is not None:
            return unescape(string[1])
        for word, flag in (("true", np.True_), ("false", np.False_)):
            if self.accept(word):
                return flag
        array = self.match(_ARRAY)
        if array is not None:
            words = [word.strip() for word in (array[2] or "").split(",")]
            return self.typed([self.number(word, array[1]) for word in words if word], array[1])
        number = self.match(_NUMBER)
        if number is None:
            raise self.refused("a number, a string, true, false, an array or a dictionary")
        kind = self.match(_TYPE)
        name = kind[1] if kind is not None else "f64" if re.search("[.eE]", number[0]) else "i64"
        return self.typed(self.number(number[0], name), name)[()]

    def type(self, name: str) -> type[np.generic]:
        if name not in _TYPES:
            raise self.refused(f"one of the types {', '.join(_TYPES)}")
        return _TYPES[name]

    def typed(self, value: object, name: str) -> np.ndarray:
        try:
            return np.array(value, self.type(name))
        except OverflowError:
            raise self.refused(f"numbers of type {name}") from None

    def number(self, word: str, kind: str) -> Any:
        try:
            if word in ("true", "false"):
                return word == "true"
            if not kind.startswith("f"):
                return int(word, 0)
            if word.lower().startswith("0x"):  # the bits of a NaN or an infinity
                octets = int(word, 16).to_bytes(4 if kind == "f32" else 8, "little")
                return np.frombuffer(octets, _TYPES[kind])[0]
            return float(word)
        except (ValueError, OverflowError):
            raise self.refused(f"numbers of type {kind}") from None
