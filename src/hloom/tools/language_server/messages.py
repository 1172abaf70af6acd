"""Long answers as plain dictionaries, which are sent without conversion.

Converting lsprotocol's classes would take 20 times as long as computing the answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from hloom.text.tokens import Token
from hloom.tools.language_server.outline import OutlineEntry
from hloom.tools.language_server.source import Source, Span

_SYMBOL_KINDS: Final = {
    "computation": 12,
    "parameter": 26,
    "constant": 14,
}  # Function, TypeParameter, Constant
_VARIABLE: Final = 13

Message = dict[str, Any]


def range_of(source: Source, span: Span) -> Message:
    """Return the ``Range`` of a span of the text."""
    line, character = source.place(span.start)
    end_line, end_character = source.place(span.end)
    return {
        "start": {"line": line, "character": character},
        "end": {"line": end_line, "character": end_character},
    }


def locations(source: Source, uri: str, found: Iterable[Token]) -> list[Message]:
    """Return a ``Location`` for each token."""
    return [{"uri": uri, "range": range_of(source, Span(t.start, t.end))} for t in found]


def renaming(source: Source, uri: str, found: Iterable[Token], name: str) -> Message:
    """Return the ``WorkspaceEdit`` that renames tokens, without their ``%``."""
    edits = [{"range": range_of(source, Span(t.end - len(t.name), t.end)), "newText": name} for t in found]
    return {"changes": {uri: edits}}


def symbols(source: Source, entries: Iterable[OutlineEntry]) -> list[Message]:
    """Return a ``DocumentSymbol`` for each entry of the outline."""
    messages: list[Message] = []
    for entry in entries:
        full_range = range_of(source, entry.span)
        named = full_range if entry.name_span is entry.span else range_of(source, entry.name_span)
        message: Message = {
            "name": entry.name,
            "detail": entry.detail,
            "kind": _SYMBOL_KINDS.get(entry.kind, _VARIABLE),
            "range": full_range,
            "selectionRange": named,
        }
        if entry.children:
            message["children"] = symbols(source, entry.children)
        messages.append(message)
    return messages
