"""Folders of dumps: the programs that XLA or hloom wrote after each pass (`--xla_dump_hlo_pass_re=.*`)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from hloom.errors import HloError
from hloom.files import load
from hloom.tools.viewer.program import Stage, stage_of

_NAME: Final = re.compile(r"(?:\d+\.)?(module_\d+\..+?)\.(.+?)\.(?:txt|hlo|hlo\.pb|hlo\.pb\.gz|hlo\.pbtxt)")
_PASS: Final = re.compile(r"(\d{4})\.(.+)\.after_(.+)\.before_(.+)")


def folder_stages(folder: Path, wanted: str = "") -> list[Stage]:
    """Return the stages of one program of a folder, without those that equal their predecessor.

    Args:
        folder: holds files named as `--xla_dump_to` writes them.
        wanted: expression that finds the program's name; by default the program with the most files is taken.

    Raises:
        HloError: by the rule ``view.dump-folder`` if the folder holds no such program.
    """
    programs: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match is not None and _place(match[2]) is not None and re.search(wanted, match[1]):
            programs.setdefault(match[1], {}).setdefault(match[2], path)
    if not programs:
        message = f"{folder} holds no programs as --xla_dump_to writes them" + (
            f" whose name matches {wanted!r}" if wanted else ""
        )
        raise HloError(message, rule="view.dump-folder")
    chosen = max(programs.values(), key=len)
    stages: list[Stage] = []
    for form, path in sorted(chosen.items(), key=lambda item: _place(item[0]) or (0, 0)):
        stage = stage_of(load(path), _title(form))
        if not stages or stage.data["text"] != stages[-1].data["text"]:
            stages.append(stage)
    return stages


def _place(form: str) -> tuple[int, int] | None:
    """Return the place of a file in the order of compilation; None for files that hold no program."""
    match = _PASS.fullmatch(form)
    if match is not None:
        return 1, int(match[1])
    if form == "before_optimizations":
        return 0, 0
    return (2, 0) if form.endswith("after_optimizations") else None


def _title(form: str) -> str:
    match = _PASS.fullmatch(form)
    if match is None:
        return form.replace("_", " ")
    pipeline, item = match[2], match[3]
    return f"start of {pipeline}" if item == "pipeline-start" else f"after {item} ({pipeline})"
