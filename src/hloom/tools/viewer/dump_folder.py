"""Folders of dumps as stages of the viewer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hloom.dumps import DumpedProgram
from hloom.files import load
from hloom.tools.viewer.program import Stage, stage_of

_MOST_INSTRUCTIONS: Final = 400_000
"""Number of instructions in all stages of a page beyond which programs are shown at their ends only."""


def folder_stages(programs: Sequence[DumpedProgram], progress: Callable[[str], None]) -> list[Stage]:
    """Return the stages of the programs of a folder, the largest program first.

    `progress` is called with the name of each program. Beyond `_MOST_INSTRUCTIONS` of a page only the first
    and the last stage of a program are read.
    """
    stages: list[Stage] = []
    for program in sorted(programs, key=lambda each: -each.byte_size):
        progress(f"{program.name}, {len(program.stages)} stages")
        total = sum(len(stage.data["names"]) for stage in stages)
        stages += dumped_stages(program, ends_only=total > _MOST_INSTRUCTIONS)
    return stages


def dumped_stages(program: DumpedProgram, *, ends_only: bool = False) -> list[Stage]:
    """Return the stages of a dumped program, without those that equal their predecessor."""
    stages: list[Stage] = []
    for dumped in (program.stages[0], program.stages[-1]) if ends_only else program.stages:
        stage = stage_of(load(dumped.path), dumped.title, program=program.name)
        if not stages or stage.data["text"] != stages[-1].data["text"]:
            stages.append(stage)
    return stages
