"""The differences of two programs as text: lines with - and +, with changed words marked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.text.printer import print_instruction
from hloom.tools.reports.differences import ComputationDifference, differences, header_differences

Style = Callable[[str, str], str]


def diff_text(left: HloModule, right: HloModule, style: Style, context: int = 2) -> str:
    """Return the differences as text; empty if the programs differ only in names and annotations.

    Args:
        style: colors a text by its role: title, removed, added, removed-word, added-word, dim.
        context: number of unchanged instructions shown around a change.
    """
    lines: list[str] = []
    for what, ours, theirs in header_differences(left, right):
        lines += [style(what, "title"), *_changed(ours, theirs, style)]
    changes = differences(left, right)
    for difference in changes:
        if not difference.is_equal:
            lines += [*([""] if lines else []), *_computation(difference, style, context)]
    if not lines:
        return ""
    return "\n".join([*lines, "", _summary(changes)]) + "\n"


def _summary(changes: list[ComputationDifference]) -> str:
    changed = sum(len(d.changed) for d in changes)
    removed = sum(len(d.removed) if d.right is not None else len(d.left or ()) for d in changes)
    added = sum(len(d.added) if d.left is not None else len(d.right or ()) for d in changes)
    equal = sum(len(d.pairs) - len(d.changed) for d in changes)
    return f"{changed} changed, {removed} removed, {added} added, {equal} equal instructions"


def _computation(difference: ComputationDifference, style: Style, context: int) -> Iterator[str]:
    left, right = difference.left, difference.right
    if left is None or right is None:
        computation = left or right
        assert computation is not None
        role, sign = ("added", "+") if left is None else ("removed", "-")
        yield style(f"%{computation.name}: computation {role}", "title")
        for instruction in computation.post_order():
            yield style(f"{sign} {_text(instruction)}", role)
        return
    renamed = f" (was %{left.name})" if left.name != right.name else ""
    yield style(f"%{right.name}{renamed}", "title")
    yield from _with_context(_lines(difference, right, style), context, style)


def _lines(
    difference: ComputationDifference, right: HloComputation, style: Style
) -> Iterator[tuple[bool, list[str]]]:
    """Yield (whether changed, lines) for each instruction of the right program and each removed one."""
    changed = {new: old for old, new in difference.changed}
    gone = set(difference.removed)
    assert difference.left is not None
    before = difference.left.post_order()
    position = {instruction: i for i, instruction in enumerate(before)}
    at = 0
    for instruction in right.post_order():
        partner = difference.pairs.get(instruction)
        if partner is not None:
            for old in before[at : position[partner]]:
                if old in gone:
                    gone.discard(old)
                    yield True, [style(f"- {_text(old)}", "removed")]
            at = max(at, position[partner])
        if partner is None:
            yield True, [style(f"+ {_text(instruction)}", "added")]
        elif instruction in changed:
            yield True, list(_changed(_text(partner), _text(instruction), style))
        else:
            yield False, [style(f"  {_text(instruction)}", "dim")]
    for old in before:
        if old in gone:
            yield True, [style(f"- {_text(old)}", "removed")]


def _with_context(entries: Iterator[tuple[bool, list[str]]], context: int, style: Style) -> Iterator[str]:
    items = list(entries)
    differing = [i for i, (differs, _) in enumerate(items) if differs]
    shown = {j for i in differing for j in range(i - context, i + context + 1)}
    skipped = 0
    for i, (_, lines) in enumerate(items):
        if i in shown:
            if skipped:
                yield style(f"  ... {skipped} equal", "dim")
            skipped = 0
            yield from lines
        else:
            skipped += 1
    if skipped:
        yield style(f"  ... {skipped} equal", "dim")


def _text(instruction: HloInstruction) -> str:
    return ("ROOT " if instruction.is_root else "") + print_instruction(instruction)


def _changed(left: str, right: str, style: Style) -> Iterator[str]:
    """Yield an instruction's line in both programs, with the differing words marked."""
    ours, theirs = (re.findall(r"[%\w.\-]+|\W", text) for text in (left, right))
    old, new = [style("- ", "removed")], [style("+ ", "added")]
    for tag, a, b, c, d in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        suffix = "" if tag == "equal" else "-word"
        old.append(style("".join(ours[a:b]), "removed" + suffix) if b > a else "")
        new.append(style("".join(theirs[c:d]), "added" + suffix) if d > c else "")
    yield "".join(old)
    yield "".join(new)
