"""Folders of programs: what `--xla_dump_to` wrote, program by program and stage by stage, or plain files.

XLA and hloom name the files of a program alike::

    module_0006.jit_step.before_optimizations.txt
    module_0006.jit_step.0003.simplification.after_algsimp.before_dce.txt
    module_0006.jit_step.cpu_after_optimizations.txt
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from hloom.errors import HloError
from hloom.records import dataclass
from hloom.regex import regex

_FORMS: Final = r"\.(?:txt|hlo|mlir|hlo\.pb|pb|hlo\.pbtxt|pbtxt|json)(?:\.gz)?"
_DUMP: Final = regex(rf"(?:\d+\.)?(?P<program>module_\d+\..+?)\.(?P<stage>.+?){_FORMS}")
_PASS: Final = regex(r"(?P<number>\d{4,})\.(?P<pipeline>.+)\.after_(?P<after>.+)\.before_(?P<before>.+)")
_PLAIN: Final = regex(rf"(?P<program>[^.].*?){_FORMS}")


@dataclass(frozen=True, slots=True)
class DumpedStage:
    """One state of a program between its passes.

    Attributes:
        path: the file.
        title: "before optimizations", "after algsimp (simplification)", …
        after: the pass that wrote this state; empty for the states at both ends.
        order: the position among the stages of the program.
    """

    path: Path
    title: str
    after: str
    order: tuple[int, int]


@dataclass(frozen=True, slots=True)
class DumpedProgram:
    """A program of a folder: its stages in the order of compilation, at least one."""

    name: str
    stages: tuple[DumpedStage, ...]

    @property
    def passes(self) -> tuple[DumpedStage, ...]:
        """The stages that passes wrote."""
        return tuple(stage for stage in self.stages if stage.after)

    @property
    def byte_size(self) -> int:
        """The size of the first file, which tells large programs from small ones."""
        return self.stages[0].path.stat().st_size


def dumped_programs(folder: str | Path, matching: str = "") -> list[DumpedProgram]:
    """Return the programs of a folder whose names match an expression, in the order of their names.

    A folder without a dump counts as one of plain files: each is a program, named by its file.

    Raises:
        HloError: by ``dump.folder`` if the folder holds no program, by ``dump.program`` if no name matches,
            by ``dump.expression`` for a malformed expression.
    """
    stages: dict[str, dict[str, DumpedStage]] = {}
    paths = sorted(Path(folder).iterdir())
    for path in paths:
        match = _DUMP.fullmatch(path.name)
        stage = _stage(path, match["stage"]) if match is not None else None
        if match is not None and stage is not None:
            stages.setdefault(match["program"], {}).setdefault(match["stage"], stage)
    if not stages:
        plain = [(path, _PLAIN.fullmatch(path.name)) for path in paths if path.is_file()]
        stages = {
            path.name: {"": DumpedStage(path, match["program"], "", (0, 0))} for path, match in plain if match
        }
    if not stages:
        message = (
            f"{folder} holds no programs; XLA_FLAGS=--xla_dump_to={folder} writes those of every compilation"
        )
        raise HloError(message, rule="dump.folder")
    return [
        DumpedProgram(name, tuple(sorted(files.values(), key=lambda stage: stage.order)))
        for name, files in stages.items()
        if name in _matching(stages, matching, folder)
    ]


def largest_program(folder: str | Path, matching: str = "") -> DumpedProgram:
    """Return the program of a folder with the largest first file; raises as `dumped_programs` does."""
    return max(dumped_programs(folder, matching), key=lambda program: program.byte_size)


def _matching(stages: dict[str, dict[str, DumpedStage]], matching: str, folder: str | Path) -> set[str]:
    try:
        names = {name for name in stages if re.search(matching, name)}
    except re.error as error:
        message = f"{matching!r} is no regular expression: {error}"
        raise HloError(message, rule="dump.expression") from None
    if not names:
        message = f"no program of {folder} matches {matching!r}; it has {', '.join(stages)}"
        raise HloError(message, rule="dump.program")
    return names


def _stage(path: Path, text: str) -> DumpedStage | None:
    """Return the stage that a part of a file name states; None for files that hold no program."""
    match = _PASS.fullmatch(text)
    if match is not None:
        after, pipeline = match["after"], match["pipeline"]
        is_start = after == "pipeline-start"
        title = f"start of {pipeline}" if is_start else f"after {after} ({pipeline})"
        return DumpedStage(path, title, after, (1, int(match["number"])))
    if text == "before_optimizations":
        return DumpedStage(path, "before optimizations", "", (0, 0))
    if text.endswith("after_optimizations"):
        return DumpedStage(path, text.replace("_", " "), "", (2, 0))
    return None
