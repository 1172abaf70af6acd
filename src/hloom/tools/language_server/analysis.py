"""Analysis of a text: its instructions, errors, and definitions of names."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import field
from typing import Final

from hloom.errors import HloError
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.verifier import violations
from hloom.records import dataclass
from hloom.regex import regex
from hloom.text.tolerant import Extent, parse_draft
from hloom.tools.language_server.source import Source, Span

MOST_PROBLEMS: Final = 200
"""Limit of the errors that are reported."""
_NAME: Final = regex(r"%?([A-Za-z_][A-Za-z0-9_.\-]*+)")
_PART: Final = regex(r"%?[A-Za-z0-9_.\-]+|\S?")


@dataclass(frozen=True, slots=True)
class Problem:
    """An error with its range in the text."""

    span: Span
    message: str
    rule: str


@dataclass(slots=True)
class ComputationScope:
    """A computation in the text.

    Attributes:
        name: in the text; empty if it has none.
        at: offset of the name, or -1.
        body: range of the body.
        names, instructions: its instructions by name, and in the order of the text.
    """

    name: str
    computation: HloComputation
    at: int
    body: Extent
    is_entry: bool
    names: dict[str, HloInstruction] = field(default_factory=dict[str, HloInstruction])
    instructions: list[HloInstruction] = field(default_factory=list[HloInstruction])

    @property
    def root(self) -> HloInstruction:
        return self.computation.root


class Analysis:
    """The analysis of one version of a document.

    Attributes:
        source: the version.
        problems: violated rules, in the order of the text.
        scopes: the computations with bodies, in the order of the text.
        computations: the scopes with names, by name.
        unread: stand-ins for instructions that do not parse.
        is_valid: whether the text is a program without errors.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        draft = parse_draft(source.text)
        errors = list(draft.errors)
        self.unread = draft.stand_ins
        if draft.module is not None:
            errors += violations(draft.module, draft.stand_ins)
        self.module = draft.module
        self.is_valid = draft.module is not None and not errors
        entry = draft.module.entry if draft.module is not None else None
        self.scopes: list[ComputationScope] = []
        for computation, extent in sorted(draft.extents.items(), key=lambda item: item[1].start):
            self.scopes.append(self._scope(computation, extent, computation is entry))
        self.computations = {scope.name: scope for scope in self.scopes if scope.name}
        self._starts = [scope.body.start for scope in self.scopes]
        self.problems = self._problems(errors)

    def _scope(self, computation: HloComputation, extent: Extent, is_entry: bool) -> ComputationScope:
        scope = ComputationScope(
            self.name_at(computation.position), computation, computation.position, extent, is_entry
        )
        for instruction in computation.instructions:
            if instruction.position >= 0:
                scope.instructions.append(instruction)
                scope.names.setdefault(self.name_at(instruction.position), instruction)
        scope.instructions.sort(key=lambda instruction: instruction.position)
        return scope

    def name_at(self, offset: int) -> str:
        """Return the name at an offset without its ``%``; empty if there is none."""
        name = _NAME.match(self.source.text, offset) if offset >= 0 else None
        return name[1] if name else ""

    def name_of(self, instruction: HloInstruction) -> str:
        """Return the name of an instruction in the text, which modules change to be unique."""
        return self.name_at(instruction.position) or instruction.name

    def scope_at(self, offset: int) -> ComputationScope | None:
        """Return the innermost computation whose body or name is at an offset."""
        number = bisect_right(self._starts, offset) - 1
        while number >= 0:
            scope = self.scopes[number]
            if scope.body.start <= offset <= scope.body.end:
                return scope
            number -= 1
            if scope.name and scope.body.end < offset:
                break  # the bodies before end even earlier
        return None

    def _problems(self, errors: list[HloError]) -> list[Problem]:
        places = {i.name: i.position for scope in self.scopes for i in scope.instructions} if errors else {}
        problems: list[Problem] = []
        for error in errors[:MOST_PROBLEMS]:
            if error.line is not None and error.column is not None:
                at = self.source.start_of(error.line - 1) + error.column - 1
            else:
                at = max(places.get(error.instruction or "", 0), 0)
            end = _PART.match(self.source.text, at)
            problems.append(Problem(Span(at, end.end() if end else at), error.message, error.rule))
        return sorted(problems, key=lambda problem: problem.span)
