"""A parser that goes on after errors, for editors.

It is the parser of modules with two changes: an error ends only the instruction, the header or the
computation that has it, and instructions that cannot be read are replaced by stand-ins of the shape that they
state. Reading continues at the next text that begins an instruction or a computation or ends one.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Final

from hloom.errors import HloError, ParseError
from hloom.ir.collector import collector_paused
from hloom.ir.computation import HloComputation
from hloom.ir.cursor import Cursor
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.records import dataclass
from hloom.regex import regex
from hloom.shape.shape import Shape
from hloom.text.instruction_parser import NO_SHAPE, ROOT, UNFINISHED, InstructionParser
from hloom.text.parser import ModuleParser

_OPAQUE: Final = r'"(?:[^"\\\n]|\\.)*+"?+|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/'
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_.\-]*+"
_DEFINITION: Final = rf"(?<![\w.\-%])(?:ROOT\s++)?+(?:%{_NAME}\s*+|{_NAME}\s++)=(?!=)"
_NEXT_LINE: Final = regex(
    rf"{_OPAQUE}|(?P<next>{_DEFINITION}|^[ \t]*+\}}|(?<=\s)\}}(?=[ \t]*+(?:\n|\Z))|^[^=\n]*\{{[ \t]*$)", re.M
)
_NEXT_COMPUTATION: Final = regex(
    rf"{_OPAQUE}|(?P<next>^[ \t]*+(?:ENTRY\s++)?+%?{_NAME}[ \t]*+(?:\([^\n]*->[^\n]*)?\{{)", re.M
)
_WORD: Final = regex(_NAME)
_HEAD: Final = regex(rf"(?:ROOT\s++)?+%?({_NAME})\s*+=(?!=)")
_FIRST_NAME: Final = regex(rf"\s*+(?:ENTRY\s++)?+%?({_NAME})")

_RULES_OF_BODIES: Final = frozenset(("computation.parameter-numbers", "computation.result-shape"))
"""Rules that a computation may break only because some of its instructions could not be read."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The text of a computation's body: offsets of its opening brace and behind its closing brace."""

    start: int
    end: int


@dataclass(slots=True)
class Draft:
    """A module as far as its text can be read.

    Attributes:
        module: the program; None if it has no computation.
        errors: the errors of the text, in order.
        stand_ins: instructions that could not be read. Their shape is the stated one.
        extents: where the body of each computation lies in the text.
        is_open: the text ends within a computation, which is lost.
    """

    module: HloModule | None = None
    errors: list[HloError] = field(default_factory=list[HloError])
    stand_ins: set[HloInstruction] = field(default_factory=set[HloInstruction])
    extents: dict[HloComputation, Extent] = field(default_factory=dict[HloComputation, Extent])
    is_open: bool = False


def parse_draft(text: str) -> Draft:
    """Parse the text of a module as far as it can be read."""
    with collector_paused():
        draft = _TolerantModule(text).draft()
        if draft.is_open:
            end = draft.errors[-1]
            draft = _TolerantModule(text + "\n}").draft()
            draft.errors.append(end)
        return draft


class _TolerantInstructions(InstructionParser):
    """Replace an instruction with an error by a stand-in, and go on with the next."""

    def __init__(self, cursor: Cursor) -> None:
        super().__init__(cursor)
        self.draft = Draft()
        self._shapeless: set[str] = set()

    def body(self, name: str) -> HloComputation:
        start = self.cursor.start()
        computation = super().body(name)
        self.draft.extents[computation] = Extent(start, self.cursor.position)
        return computation

    def instruction(
        self, computation: HloComputation, root: HloInstruction | None
    ) -> tuple[HloInstruction, bool]:
        cursor = self.cursor
        cursor.skip()
        start, depth, names = cursor.position, self._depth, self.names
        create_missing = self.create_missing
        try:
            return super().instruction(computation, root)
        except HloError as error:
            self._depth, self.names, self.create_missing = depth, names, create_missing
            cursor.position = start
            return self._stand_in(computation, error, root is not None)

    def _stand_in(
        self, computation: HloComputation, error: HloError, has_root: bool
    ) -> tuple[HloInstruction, bool]:
        """Note the error, add an instruction in place of the text up to the next one, and return it."""
        cursor, draft = self.cursor, self.draft
        start = cursor.position
        head = _HEAD.match(cursor.text, start)
        if head is None and (start >= cursor.end or _is_header(cursor.text, start)):
            draft.is_open |= start >= cursor.end and self._depth > 0
            raise error  # the computation has no end
        cursor.position = _next(_NEXT_LINE, cursor.text, head.end() if head else start, start)
        words = _WORD.findall(cursor.text, start, cursor.position)
        if self._shapeless.isdisjoint(words):  # otherwise the error may follow from another one
            draft.errors.append(error)
        shape = None if head is None else _shape_at(cursor.text, head.end())
        name = head[1] if head is not None else ""
        fresh = bool(name) and name not in self.names
        instruction = HloInstruction(name if fresh else f"_unread_{start}", UNFINISHED, shape or NO_SHAPE)
        draft.stand_ins.add(instruction)
        if shape is None:
            self._shapeless.add(instruction.name)
        if fresh and head is not None:
            instruction.position = head.start(1) - (cursor.text[head.start(1) - 1] == "%")
            self.names[name] = instruction
        is_root = ROOT.match(cursor.text, start) is not None and not has_root
        return computation.add(instruction), is_root


class _TolerantModule(ModuleParser):
    """Note errors and go on with the next computation."""

    def __init__(self, text: str) -> None:
        super().__init__(text, quick=True, instructions=_TolerantInstructions)
        assert isinstance(self.parser, _TolerantInstructions)
        self._draft = self.parser.draft
        self._lost: set[str] = set()

    def draft(self) -> Draft:
        """Parse the whole text and return what was read."""
        draft = self._draft
        try:
            draft.module = self.module()
        except HloError as error:
            if error.line is not None:
                draft.errors.append(error)
        if draft.errors and draft.module is not None:
            _forget_unfinished(draft.module)
        draft.errors.sort(key=lambda error: (error.line or 0, error.column or 0))
        return draft

    def refuse(self, error: ParseError) -> None:
        damaged = self.parser.computations and self.parser.computations[-1] in {
            instruction.parent for instruction in self._draft.stand_ins
        }
        if not damaged or error.rule not in _RULES_OF_BODIES:
            self._draft.errors.append(error)

    def header(self, module: HloModule) -> None:
        start = self.cursor.position
        try:
            super().header(module)
        except HloError as error:
            self._draft.errors.append(error)
            self.cursor.position = _next(_NEXT_COMPUTATION, self.cursor.text, start, start)

    def computation(self) -> None:
        """Parse a computation; after an error outside its body go on with the next one."""
        cursor = self.cursor
        start = cursor.start()
        try:
            super().computation()
        except HloError as error:
            self._draft.errors.append(error)
            match = _FIRST_NAME.match(cursor.text, start)
            if match:
                self._lost.add(match[1])
            cursor.position = _next(_NEXT_COMPUTATION, cursor.text, max(cursor.position, start + 1), start)
            if cursor.position >= cursor.end and not self.parser.computations:
                raise ParseError(error.message) from error  # nothing can be assembled

    def all_computations(self) -> None:
        super().all_computations()
        self._draft.errors = [error for error in self._draft.errors if not self._names_lost(error)]

    def _names_lost(self, error: HloError) -> bool:
        """Return whether an error only says that a computation is missing that could not be read."""
        return error.rule == "text.computation" and any(repr(name) in error.message for name in self._lost)


def _next(pattern: re.Pattern[str], text: str, position: int, start: int) -> int:
    """Return the position of the pattern's next group ``next``, without blanks; the end if there is none."""
    for match in pattern.finditer(text, position):
        if match["next"] is not None:
            at = match.end() - len(match[0].lstrip())
            if at > start or text[at] == "}":
                return at
    return len(text)


def _is_header(text: str, position: int) -> bool:
    """Return whether a computation begins here, so that the one before it has no closing brace."""
    start = text.rfind("\n", 0, position) + 1
    match = _NEXT_COMPUTATION.match(text, start)
    return match is not None and match["next"] is not None and not text[start:position].strip()


def _shape_at(text: str, position: int) -> Shape | None:
    cursor = Cursor(text, position)
    try:
        return cursor.shape() if cursor.at_shape() else None
    except HloError:
        return None


def _forget_unfinished(module: HloModule) -> None:
    """Drop users and control successors that were never added to the module."""
    for instruction in module.instructions():
        for other in [user for user in instruction.users if user.parent is None]:
            del instruction.users[other]
        instruction.control_successors = tuple(
            other for other in instruction.control_successors if other.parent is not None
        )
