"""Completion of opcodes, operands, attributes and their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from hloom.errors import plural
from hloom.ir.codec import REQUIRED, DeclaredAttribute, EnumCodec
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import REGISTRY
from hloom.text.annotations import CONTROL_PREDECESSORS, NAMES
from hloom.text.tokens import Kind, Scanner, Token, callee_keys, statement_at, tokens
from hloom.tools.language_server.source import Span
from hloom.tools.language_server.view import DocumentView
from hloom.tools.pages.op_page import signature

MOST_PROPOSALS: Final = 100
"""Limit of the proposals in one answer; the editor asks again after the next letter."""
_WORD: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-%")


class Proposal(NamedTuple):
    """A proposed word, a detail shown beside it, and its kind, such as ``opcode``."""

    text: str
    detail: str
    kind: str


class Completion(NamedTuple):
    """Proposed words, the range that they replace, and whether there are more."""

    span: Span
    proposals: list[Proposal]
    is_incomplete: bool


def complete(view: DocumentView, offset: int) -> Completion:
    """Propose words for an offset, with the typed prefix before it."""
    text = view.source.text
    start = offset
    while start and text[start - 1] in _WORD:
        start -= 1
    written = text[start:offset]
    fitting: list[Proposal] = []
    is_incomplete = False
    for proposal in _proposals(view, start, written.startswith("%")):
        if proposal.text.startswith(written):
            is_incomplete = len(fitting) == MOST_PROPOSALS
            if is_incomplete:
                break
            fitting.append(proposal)
    return Completion(Span(start, offset), fitting, is_incomplete)


def _proposals(view: DocumentView, offset: int, percent: bool) -> Iterator[Proposal]:
    """Yield the words that the syntax allows at an offset, the likeliest first."""
    scanner = Scanner()
    start, _ = statement_at(view.source.text, offset)
    before = list(tokens(view.source.text, start, offset, scanner))
    opcode = next((t.name for t in reversed(before) if t.kind is Kind.OPCODE), "")
    if before and before[-1].kind is Kind.OPAQUE and before[-1].end == offset:
        return  # in a string or a comment
    if scanner.key in callee_keys():
        yield from _computations(view, offset, percent)
    elif scanner.key == CONTROL_PREDECESSORS or scanner.opcodes:
        yield from _operands(view, offset, percent)
    elif scanner.key:
        yield from _values(opcode, scanner.key)
    elif scanner.defined and opcode:
        yield from _attributes(opcode, before)
    elif scanner.defined:
        for name, cls in sorted(REGISTRY.items()):
            yield Proposal(name, signature(cls).replace("\n", ""), "opcode")


def _operands(view: DocumentView, offset: int, percent: bool) -> Iterator[Proposal]:
    scope = view.scope_at(offset)
    if scope is None:
        return
    old = view.changes.backward(statement_at(view.source.text, offset)[0])
    before: Iterable[HloInstruction] = (i for i in reversed(scope.instructions) if i.position < old)
    for instruction in before:
        name = view.analysis.name_of(instruction)
        detail = f"{instruction.shape} {instruction.opcode}"
        yield Proposal("%" * percent + name, detail, "instruction")


def _computations(view: DocumentView, offset: int, percent: bool) -> Iterator[Proposal]:
    old = view.changes.backward(offset)
    for name, scope in reversed(view.analysis.computations.items()):
        if scope.body.end <= old:
            yield Proposal(
                "%" * percent + name, plural(len(scope.instructions), "instruction"), "computation"
            )


def _attributes(opcode: str, before: list[Token]) -> Iterator[Proposal]:
    cls = REGISTRY.get(opcode)
    if cls is None:
        return
    written = {token.name for token in before if token.kind is Kind.KEY}
    declared = [(a.name, "required" if a.default is REQUIRED else "") for a in cls.attributes]
    declared += [(r.name, "computations" if r.many else "computation") for r in cls.roles]
    for name, detail in (*declared, *((name, "") for name in sorted(NAMES))):
        if name not in written:
            yield Proposal(name + "=", detail, "attribute")


def _values(opcode: str, key: str) -> Iterator[Proposal]:
    cls = REGISTRY.get(opcode)
    attribute: DeclaredAttribute | None = (
        next((a for a in cls.attributes if a.name == key), None) if cls else None
    )
    if attribute is None:
        return
    if isinstance(attribute.codec, EnumCodec):
        yield from (Proposal(word, "", "value") for word in attribute.codec.words)
    elif isinstance(attribute.default, bool):
        yield from (Proposal(word, "", "value") for word in ("true", "false"))
