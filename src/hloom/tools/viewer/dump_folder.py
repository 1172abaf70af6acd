"""Folders of dumps as stages of the viewer."""

from __future__ import annotations

from hloom.dumps import DumpedProgram
from hloom.files import load
from hloom.tools.viewer.program import Stage, stage_of


def dumped_stages(program: DumpedProgram) -> list[Stage]:
    """Return the stages of a dumped program, without those that equal their predecessor."""
    stages: list[Stage] = []
    for dumped in program.stages:
        stage = stage_of(load(dumped.path), dumped.title)
        if not stages or stage.data["text"] != stages[-1].data["text"]:
            stages.append(stage)
    return stages
