"""Parts of the coverage map: what the tests of one file run, recorded together and stored in one file."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Part:
    """The lines that the tests of one file run.

    Attributes:
        seconds: CPU seconds of each test, with all its sets of parameters.
        lines: for each test the lines of each source file that it runs.
        digests: of the source files as they were.
        failed: tests that fail without any mutant; they are left out.
    """

    seconds: dict[str, float]
    lines: dict[str, dict[str, list[int]]]
    digests: dict[str, str]
    failed: list[str]

    def store(self, file: Path) -> None:
        """Write the part to a file, all of it or nothing."""
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(vars(self)))
        partial.rename(file)


def digest(file: Path) -> str:
    """Return the digest of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def part_of(folder: Path, root: Path, test_file: str) -> Path:
    """Return the file of a part: named by the test file and its contents."""
    return folder / f"{test_file.replace('/', '.')}.{digest(root / test_file)[:12]}.json"


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its terminated children."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system
