"""The outline of a document: its computations and their instructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from hloom.errors import plural
from hloom.shape.shape import Shape
from hloom.tools.language_server.source import Span
from hloom.tools.language_server.view import DocumentView

MOST_ENTRIES: Final = 5000
"""Limit of the entries; of larger programs only parameters, roots and calls are listed."""


class OutlineEntry(NamedTuple):
    """An entry of the outline: a name, a detail beside it, its kind, its range, and the range of its name."""

    name: str
    detail: str
    kind: str
    span: Span
    name_span: Span
    children: Sequence[OutlineEntry] = ()


def outline(view: DocumentView) -> list[OutlineEntry]:
    """Return the computations with their instructions, in the order of the text."""
    scopes = [scope for scope in view.analysis.scopes if scope.name]
    total = sum(len(scope.instructions) for scope in scopes)
    brief = total + len(scopes) > MOST_ENTRIES
    entries: list[OutlineEntry] = []
    shapes: dict[Shape, str] = {}
    budget = MOST_ENTRIES - len(scopes)
    for scope in scopes[:MOST_ENTRIES]:
        children: list[OutlineEntry] = []
        for instruction in scope.instructions:
            important = (
                instruction.is_root or instruction.called_computations or instruction.opcode == "parameter"
            )
            if budget <= 0 or (brief and not important):
                continue
            budget -= 1
            name = view.analysis.name_of(instruction)
            at = view.changes.forward(instruction.position)
            span = Span(at, at + len(name) + 1)
            shape = shapes.get(instruction.shape)
            if shape is None:
                shape = shapes[instruction.shape] = instruction.shape.to_string(layout=False)
            detail = f"{instruction.opcode} {shape}"
            children.append(OutlineEntry(name, detail, instruction.opcode, span, span))
        scope_span = view.span_of(scope)
        name_span = Span(scope_span.start, scope_span.start + len(scope.name) + 1)
        detail = f"{'ENTRY, ' if scope.is_entry else ''}{plural(len(scope.instructions), 'instruction')}"
        entries.append(OutlineEntry(scope.name, detail, "computation", scope_span, name_span, children))
    return entries
