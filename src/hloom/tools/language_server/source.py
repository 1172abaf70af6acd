"""A text with its line starts: conversion between offsets and positions of the protocol."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import cached_property
from typing import Final, NamedTuple

from hloom.regex import regex

_LINE_END: Final = regex(r"\n")
_CODECS: Final = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
"""The codec of each encoding of positions, and the bytes of a code unit."""


class Place(NamedTuple):
    """A position of the protocol: line number and number of code units in the line, both from 0."""

    line: int
    character: int


class Span(NamedTuple):
    """A half-open range of offsets."""

    start: int
    end: int


class Source:
    """One version of a document; ``encoding`` defines the code units of the protocol's positions."""

    def __init__(self, text: str, version: int = 0, encoding: str = "utf-16") -> None:
        self.text = text
        self.version = version
        self.encoding = encoding

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(line_end.end() for line_end in _LINE_END.finditer(self.text))]

    def edited(self, start: Place, end: Place, new: str, version: int) -> Source:
        """Return the text with a range replaced; only the new part is scanned for line starts."""
        first, last = self.offset(*start), self.offset(*end)
        source = Source(self.text[:first] + new + self.text[last:], version, self.encoding)
        before, behind = bisect_right(self._starts, first), bisect_right(self._starts, last)
        shift = first + len(new) - last
        inside = [first + line_end.end() for line_end in _LINE_END.finditer(new)]
        after = self._starts[behind:]
        source._starts = [*self._starts[:before], *inside, *([x + shift for x in after] if shift else after)]
        return source

    def place(self, offset: int) -> Place:
        line = bisect_right(self._starts, offset) - 1
        before = self.text[self._starts[line] : offset]
        if before.isascii():
            return Place(line, len(before))
        codec, width = _CODECS[self.encoding]
        return Place(line, len(before.encode(codec)) // width)

    def start_of(self, line: int) -> int:
        """Return the offset of a line's start, or the end of the text if there is no such line."""
        return self._starts[line] if line < len(self._starts) else len(self.text)

    def offset(self, line: int, character: int) -> int:
        """Return the offset of a position, which is clamped to the end of its line."""
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
    """The difference between two texts as one replaced range; it maps offsets between them."""

    def __init__(self, old: str, new: str) -> None:
        size, other = len(old), len(new)
        self.start = _longest(min(size, other), lambda n, m: old[n:m] == new[n:m])
        self.old_end = size - _longest(
            min(size, other) - self.start, lambda n, m: old[size - m : size - n] == new[other - m : other - n]
        )
        self.shift = other - size

    def forward(self, offset: int) -> int:
        """Map an offset of the old text to the new one; from inside the replaced range, to its end."""
        return offset if offset <= self.start else max(offset, self.old_end) + self.shift

    def backward(self, offset: int) -> int:
        """Map an offset of the new text to the old one; from inside the replaced range, to its end."""
        return offset if offset <= self.start else max(offset - self.shift, self.old_end)


def _longest(most: int, is_equal: Callable[[int, int], bool]) -> int:
    """Return the length of the longest common part, at most ``most``, by bisection.

    ``is_equal(n, m)`` compares the parts between the lengths n and m.
    """
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if is_equal(low, middle):
            low = middle
        else:
            high = middle - 1
    return low
