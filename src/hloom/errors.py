"""Errors of hloom: each has a rule name, a position, the value found and the value wanted."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from hloom.visible import visible

_LONGEST_WORD: Final = 100
_MOST_WORDS: Final = 1000
"""Limit on the number of words searched for a near match."""


class HloError(ValueError):
    """A violated rule: a program, shape, literal or call that hloom refuses.

    Attributes:
        rule: name of the violated rule, such as ``gather.offset-dims-sorted``.
        instruction: name of the offending instruction, if one is known.
        line, column: 1-based position in the text, if the error comes from text.
        source_line: the line of text at that position.
    """

    def __init__(
        self,
        message: str,
        *,
        rule: str = "",
        instruction: str | None = None,
        line: int | None = None,
        column: int | None = None,
        source_line: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.rule = rule
        self.instruction = instruction
        self.line = line
        self.column = column
        self.source_line = source_line

    def __str__(self) -> str:
        head = "" if self.line is None else f"{self.line}:{self.column}: "
        text = head + self.message
        if self.instruction is not None:
            text += f"\n  in instruction %{self.instruction}"
        if self.rule:
            text += f" [{self.rule}]"
        if self.source_line is not None and self.column is not None:
            text += "\n" + _caret(self.source_line, self.column)
        return visible(text)

    def at(
        self,
        *,
        instruction: str | None = None,
        line: int | None = None,
        column: int | None = None,
        source_line: str | None = None,
    ) -> HloError:
        """Add the position to an error raised without one; a known position is kept."""
        if self.instruction is None:
            self.instruction = instruction
        if self.line is None and line is not None:
            self.line, self.column, self.source_line = line, column, source_line
        return self


class ParseError(HloError):
    """Text or bytes that are not a well-formed shape, literal, module or message."""


class ShapeError(HloError):
    """Operand shapes or attributes that an operation's shape rule refuses."""


class VerifyError(HloError):
    """A module whose structure is broken: cycles, dangling names, mismatched computations."""


class EvaluationError(HloError):
    """A program that cannot be evaluated: elided constants, wrong arguments, unknown targets."""


class DeadlockError(EvaluationError):
    """Devices that wait for each other forever; the message lists the instruction at which each one waits."""


def _caret(source_line: str, column: int) -> str:
    """Return the source line with a caret under the 1-based column; long lines are cut around it."""
    start = max(0, column - 1 - 80)
    shown = source_line[start : column - 1 + 40]
    pointer = "".join("\t" if c == "\t" else " " for c in shown[: column - 1 - start])
    return f"  {shown}\n  {pointer}^"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown word: the nearest known word, if there is one."""
    if len(word) > _LONGEST_WORD:
        return ""
    import difflib

    near = difflib.get_close_matches(word, islice(known, _MOST_WORDS), 1, 0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Return a count with its noun, in the plural unless the count is 1; ``nouns`` is a plural without -s."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def rule(name: str, holds: object, message: str, error: type[HloError] = ShapeError) -> None:
    """Raise ``error`` with the rule's name and message unless ``holds`` is true.

    The message is a plain string: where building it costs, test first and call ``broken``.
    """
    if not holds:
        raise error(message, rule=name)


def expect(value: object, kind: Any, wanted: str) -> None:
    """Refuse an argument of a public function that is of another type.

    Args:
        value: the argument.
        kind: its type, or a tuple of types, as for ``isinstance``.
        wanted: the type in words, such as ``an HloModule``.
    """
    if not isinstance(value, kind):
        raise HloError(f"expected {wanted}, got {type(value).__name__}", rule="argument.type")


def broken(name: str, message: str, error: type[HloError] = ShapeError) -> HloError:
    """Return the error for a violated rule, to be raised by the caller."""
    return error(message, rule=name)


class NoBound(HloError):
    """Rounding errors affect a result without limit, or the operation has no rule for them."""

    def __init__(self, message: str) -> None:
        super().__init__(message, rule="check.no-bound")
