"""Queries about the latest text of a document, by an analysis that may be of an earlier text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from hloom.errors import broken
from hloom.ir.cursor import KEYWORDS, TYPE_NAMES
from hloom.ir.instruction import HloInstruction
from hloom.ir.naming import sanitized
from hloom.text.tokens import Kind, Token, statement_at, tokens
from hloom.tools.language_server.analysis import Analysis, ComputationScope
from hloom.tools.language_server.source import Changes, Source, Span

_OF_INSTRUCTIONS = (Kind.DEFINITION, Kind.OPERAND, Kind.PARAMETER)
_PARTS_OF_NAMES = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")


class Symbol(NamedTuple):
    """The name of an instruction in its computation's scope, or of a computation if the scope is None."""

    name: str
    scope: ComputationScope | None


class DocumentView:
    """The latest text of a document with its last analysis.

    Offsets are in the latest text, except those of ``analysis``.
    """

    def __init__(self, source: Source, analysis: Analysis) -> None:
        self.source = source
        self.analysis = analysis

    @cached_property
    def changes(self) -> Changes:
        """The difference between the analyzed text and the latest one."""
        return Changes(self.analysis.source.text, self.source.text)

    # -- what is at an offset

    def statement(self, offset: int) -> list[Token]:
        """Return the tokens of the statement at an offset."""
        return list(tokens(self.source.text, *statement_at(self.source.text, offset)))

    def token_at(self, offset: int) -> Token | None:
        """Return the token that contains an offset or ends at it."""
        return next((t for t in self.statement(offset) if t.start <= offset <= t.end), None)

    def scope_at(self, offset: int) -> ComputationScope | None:
        """Return the computation whose body or signature contains an offset."""
        old = self.changes.backward(offset)
        scope = self.analysis.scope_at(old)
        if scope is not None:
            return scope
        headers = (scope for scope in self.analysis.scopes if scope.at <= old < scope.body.start)
        return next(headers, None)

    def span_of(self, scope: ComputationScope) -> Span:
        """Return the range of a computation from its name to its closing brace."""
        start = scope.at if scope.at >= 0 else scope.body.start
        return Span(self.changes.forward(start), self.changes.forward(scope.body.end))

    def symbol_at(self, offset: int) -> Symbol | None:
        """Return the symbol whose definition or use is at an offset."""
        token = self.token_at(offset)
        if token is None:
            return None
        if token.kind is Kind.COMPUTATION:
            return Symbol(token.name, None)
        scope = self.scope_at(token.start) if token.kind in _OF_INSTRUCTIONS else None
        return Symbol(token.name, scope) if scope is not None else None

    def instruction(self, symbol: Symbol) -> HloInstruction | None:
        """Return the instruction of a symbol; None for a computation or an undefined name."""
        return symbol.scope.names.get(symbol.name) if symbol.scope is not None else None

    # -- names

    def definition(self, symbol: Symbol) -> Span | None:
        """Return the range of the name in its definition."""
        position = -1
        if symbol.scope is None:
            scope = self.analysis.computations.get(symbol.name)
            position = scope.at if scope is not None else -1
        elif (instruction := symbol.scope.names.get(symbol.name)) is not None:
            position = instruction.position
        if position >= 0:
            at = self.changes.forward(position)
            name = self.source.text[at : at + len(symbol.name) + 1]
            if name.startswith("%" + symbol.name):
                return Span(at, at + len(symbol.name) + 1)
            if name.startswith(symbol.name):
                return Span(at, at + len(symbol.name))
        for token in self.occurrences(symbol):  # the text has changed here
            if token.kind is Kind.DEFINITION or (token.kind is Kind.COMPUTATION and not token.key):
                return Span(token.start, token.end)
        return None

    def occurrences(self, symbol: Symbol) -> Iterator[Token]:
        """Yield the tokens of a symbol: its definition and uses."""
        text, name = self.source.text, symbol.name
        start, end = (0, len(text)) if symbol.scope is None else self.span_of(symbol.scope)
        kinds = _OF_INSTRUCTIONS if symbol.scope is not None else (Kind.COMPUTATION,)
        at = text.find(name, start, end)
        while at >= 0:
            behind = at + len(name)
            if self._may_be_name(at, behind):
                first, last = statement_at(text, at)
                final = text.rfind(name, at, last)
                for token in tokens(text, first, last):
                    if token.name == name and token.kind in kinds:
                        yield token
                    if token.end > final:
                        break
                behind = max(behind, last)
            at = text.find(name, behind, end)

    def _may_be_name(self, start: int, end: int) -> bool:
        """Return whether a range is a whole word, and neither an opcode nor part of an op_name."""
        text = self.source.text
        before, after = text[start - 1 : start], text[end : end + 1]
        if (
            before in _PARTS_OF_NAMES
            or after in _PARTS_OF_NAMES
            or before in ("/", '"')
            or after in ("/", '"')
        ):
            return False
        return not (after == "(" and before == " " and text[start - 2] in "]})")

    def check_new_name(self, symbol: Symbol, name: str) -> str:
        """Return a new name without its ``%``. Raises HloError if it is malformed or defined already."""
        name = name.removeprefix("%")
        if not name or sanitized(name) != name or name in KEYWORDS or name in TYPE_NAMES:
            raise broken("rename.well-formed", f"{name!r} is not a name; names are words such as add.1")
        names = self.analysis.computations if symbol.scope is None else symbol.scope.names
        if name in names and name != symbol.name:
            kind = "computation" if symbol.scope is None else "instruction"
            raise broken("rename.unique", f"there is another {kind} {name!r}")
        return name
