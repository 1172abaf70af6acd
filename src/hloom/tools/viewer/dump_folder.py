"""Stages of the viewer from folders of dumps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from hloom.dumps import DumpedProgram
from hloom.errors import HloError, plural
from hloom.files import load
from hloom.tools.viewer.program import Stage, stage_of

Unread: TypeAlias = Callable[[Path, HloError], None]
"""A function that is called with each unreadable file and its error."""
_MOST_INSTRUCTIONS: Final = 400_000
"""Number of instructions of a page above which only the first and last stage of a program are shown."""


def folder_stages(
    programs: Sequence[DumpedProgram], progress: Callable[[str], None], unread: Unread
) -> list[Stage]:
    """Return the stages of all programs of a folder, the largest program first.

    `progress` is called with the name of each program, `unread` with each unreadable file. Raises HloError
    with the rule ``view.unreadable`` if no file can be read.
    """
    stages: list[Stage] = []
    for program in sorted(programs, key=lambda each: -each.byte_size):
        progress(f"{program.name}, {plural(len(program.stages), 'stage')}")
        total = sum(len(stage.data["names"]) for stage in stages)
        stages += dumped_stages(program, unread, ends_only=total > _MOST_INSTRUCTIONS)
    if not stages:
        names = ", ".join(program.name for program in programs)
        raise HloError(f"no file of {names} can be read", rule="view.unreadable")
    return stages


def dumped_stages(program: DumpedProgram, unread: Unread, *, ends_only: bool = False) -> list[Stage]:
    """Return the stages of a dumped program that differ from their predecessors."""
    stages: list[Stage] = []
    for dumped in (program.stages[0], program.stages[-1]) if ends_only else program.stages:
        try:
            stage = stage_of(load(dumped.path), dumped.title, program=program.name)
        except HloError as error:
            unread(dumped.path, error)
            continue
        if not stages or stage.data["text"] != stages[-1].data["text"]:
            stages.append(stage)
    return stages
