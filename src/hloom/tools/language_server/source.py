"""A text with its lines: conversion between offsets and the positions of the protocol."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from typing import Final, NamedTuple

_LINE_END: Final = re.compile(r"\n")
_CODECS: Final = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
"""The codec of each encoding of positions, and the bytes of a code unit."""


class Place(NamedTuple):
    """A position of the protocol: a line and a number of code units, both from 0."""

    line: int
    character: int


class Span(NamedTuple):
    """A range of offsets."""

    start: int
    end: int


class Source:
    """One state of a document; ``encoding`` is that in whose code units the protocol counts characters."""

    def __init__(self, text: str, version: int = 0, encoding: str = "utf-16") -> None:
        self.text = text
        self.version = version
        self.encoding = encoding

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(line_end.end() for line_end in _LINE_END.finditer(self.text))]

    def edited(self, start: Place, end: Place, new: str, version: int) -> Source:
        """Return the text with a part replaced; the lines around it are not read again."""
        first, last = self.offset(*start), self.offset(*end)
        source = Source(self.text[:first] + new + self.text[last:], version, self.encoding)
        before, behind = bisect_right(self._starts, first), bisect_right(self._starts, last)
        shift = first + len(new) - last
        inside = [first + line_end.end() for line_end in _LINE_END.finditer(new)]
        after = self._starts[behind:]
        source._starts = [*self._starts[:before], *inside, *([x + shift for x in after] if shift else after)]
        return source

    def place(self, offset: int) -> Place:
        """Return the position of an offset."""
        line = bisect_right(self._starts, offset) - 1
        before = self.text[self._starts[line] : offset]
        if before.isascii():
            return Place(line, len(before))
        codec, width = _CODECS[self.encoding]
        return Place(line, len(before.encode(codec)) // width)

    def start_of(self, line: int) -> int:
        """Return the offset at which a line begins; the end of the text if it has no such line."""
        return self._starts[line] if line < len(self._starts) else len(self.text)

    def offset(self, line: int, character: int) -> int:
        """Return the offset of a position; one behind the end of its line is that end."""
        if line >= len(self._starts):
            return len(self.text)
        start = self._starts[line]
        end = self._starts[line + 1] - 1 if line + 1 < len(self._starts) else len(self.text)
        text = self.text[start:end]
        if text.isascii():
            return min(start + character, end)
        codec, width = _CODECS[self.encoding]
        return start + len(text.encode(codec)[: width * character].decode(codec, "ignore"))


class Changes:
    """The difference between two texts as one replaced range, to find offsets of one in the other."""

    def __init__(self, old: str, new: str) -> None:
        self.start = _common(old, new)
        self.old_end = len(old) - _common_end(old, new, min(len(old), len(new)) - self.start)
        self.shift = len(new) - len(old)

    def forward(self, offset: int) -> int:
        """Return the offset in the new text of one in the old; one in the replaced range moves to its end."""
        return offset if offset <= self.start else max(offset, self.old_end) + self.shift

    def backward(self, offset: int) -> int:
        """Return the offset in the old text of one in the new; one in the replaced range moves to its end."""
        return offset if offset <= self.start else max(offset - self.shift, self.old_end)


def _common(left: str, right: str) -> int:
    """Return the length of the common prefix of two texts."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_end(left: str, right: str, most: int) -> int:
    """Return the length of the common suffix of two texts, at most ``most``."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if left[len(left) - middle : len(left) - low] == right[len(right) - middle : len(right) - low]:
            low = middle
        else:
            high = middle - 1
    return low
