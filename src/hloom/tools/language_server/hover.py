"""Hover: a description of the word under the pointer, in Markdown."""

from __future__ import annotations

import textwrap
from functools import cache

from hloom.errors import HloError, plural
from hloom.ir.codec import REQUIRED
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import REGISTRY
from hloom.shape.shape import Shape
from hloom.text.tokens import Kind, Token
from hloom.tools.language_server.analysis import ComputationScope
from hloom.tools.language_server.source import Span
from hloom.tools.language_server.view import DocumentView
from hloom.tools.pages.op_page import docstring, op_markdown, signature
from hloom.tools.reports.layout import explain_layout

_LONGEST = 400
"""Limit of the characters of an instruction that are shown."""


def hover(view: DocumentView, offset: int) -> tuple[str, Span] | None:
    """Return a description of the word at an offset, and its range; None if there is none."""
    statement = view.statement(offset)
    token = next((t for t in statement if t.start <= offset < t.end), None) or view.token_at(offset)
    if token is None:
        return None
    opcode = next((t.name for t in statement if t.kind is Kind.OPCODE), "")
    match token.kind:
        case Kind.OPCODE:
            text = page(token.name)
        case Kind.TYPE:
            text = _shape_text(token.name)
        case Kind.KEY:
            text = _attribute_text(token, opcode)
        case _:
            text = _name_text(view, offset)
    return (text, Span(token.start, token.end)) if text else None


@cache
def page(opcode: str) -> str:
    """Return the page of an operation with small headings; empty for an unknown opcode."""
    if opcode not in REGISTRY:
        return ""
    return op_markdown(opcode).replace("\n## ", "\n#### ").replace("# ", "### ", 1)


def _name_text(view: DocumentView, offset: int) -> str:
    symbol = view.symbol_at(offset)
    if symbol is None:
        return ""
    if symbol.scope is None:
        scope = view.analysis.computations.get(symbol.name)
        return _computation_text(scope) if scope is not None else ""
    instruction = view.instruction(symbol)
    return _instruction_text(view, instruction) if instruction is not None else ""


def _computation_text(scope: ComputationScope) -> str:
    try:
        shape = str(scope.computation.program_shape)
    except HloError:
        shape = "a signature that cannot be read"
    kind = "ENTRY " if scope.is_entry else ""
    return f"```hlo\n{kind}%{scope.name} {shape}\n```\n{plural(len(scope.instructions), 'instruction')}"


def _instruction_text(view: DocumentView, instruction: HloInstruction) -> str:
    if instruction in view.analysis.unread:
        return f"{instruction.shape}: this instruction has an error"
    operands = ", ".join("%" + view.analysis.name_of(o) for o in instruction.operands)
    name = view.analysis.name_of(instruction)
    line = f"%{name} = {instruction.shape} {instruction.opcode}({operands})"
    parts = [f"```hlo\n{textwrap.shorten(line, _LONGEST)}\n```"]
    facts = [plural(len(instruction.users), "user")]
    if instruction.is_root:
        facts.append("root")
    metadata = instruction.metadata
    if metadata is not None and metadata.op_name:
        facts.append(f"`{metadata.op_name}`")
    if metadata is not None and metadata.source_file:
        facts.append(f"{metadata.source_file}:{metadata.source_line}")
    parts.append(" · ".join(facts))
    parts.append(_shape_text(str(instruction.shape)))
    parts.append(
        f"```\n{signature(type(instruction.operation))}\n```\n{docstring(type(instruction.operation))}"
    )
    return "\n\n".join(part for part in parts if part)


def _shape_text(text: str) -> str:
    try:
        shape = Shape.parse(text)
        return f"```\n{explain_layout(text)}\n```" if shape.is_array else ""
    except HloError:
        return ""


def _attribute_text(token: Token, opcode: str) -> str:
    cls = REGISTRY.get(opcode)
    if cls is None:
        return ""
    for attribute in cls.attributes:
        if attribute.name == token.name:
            if attribute.default is REQUIRED:
                return f"`{attribute.name}`: required by {opcode}"
            default = attribute.default
            words = "none" if default is None else attribute.codec.text(default) or "empty"
            return f"`{attribute.name}`: attribute of {opcode}, by default {words}"
    for role in cls.roles:
        if role.name == token.name:
            return f"`{role.name}`: {'computations' if role.many else 'a computation'} that {opcode} calls"
    return f"`{token.name}`: an attribute that any instruction may have"
