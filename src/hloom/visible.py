"""Escape control characters and bidirectional overrides in names from programs."""

from __future__ import annotations

from typing import Final

from hloom.regex import regex

_INVISIBLE: Final = regex(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def visible(text: str) -> str:
    """Return a text with its invisible characters as escapes, such as ``\\x1b``; tabs and line ends stay.

    Names in protos may hold any character: sequences that control terminals, characters that XML forbids,
    and such that reverse the order of what follows.
    """
    return _INVISIBLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def visible_line(text: str) -> str:
    """Return a text as one line: line ends are escaped too."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")
