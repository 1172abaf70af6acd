"""Pages of the documentation as programs: their files and commands, run in order in an empty folder.

A block with a title is a file; lines of ``sh`` blocks are commands. ``# exit status N`` states an expected
failure.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [
    page
    for page in (*sorted((ROOT / "docs" / "guides").glob("*.md")), ROOT / "docs" / "gallery.md")
    if "\n```sh\n" in page.read_text()
]
_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.M | re.S)
_STATUS = re.compile(r"\s*# exit status (\d+)$")


def run_page(page: Path, folder: Path, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Write the files of a page and run its commands; yield each with its complaint, if any."""
    for language, title, body in _BLOCK.findall(page.read_text()):
        if title:
            (folder / title).write_text(body)
        for line in body.splitlines() if language == "sh" else ():
            expected = _STATUS.search(line)
            command = _STATUS.sub("", line)
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=1200,
            )
            wrong = done.returncode != (int(expected[1]) if expected else 0)
            output = f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
            yield command, f"exit status {done.returncode}\n{output}" if wrong else ""


def python_blocks(page: Path) -> str:
    """Return the Python blocks of a page as one program."""
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))


def commands() -> list[str]:
    """Return the commands that the README lists."""
    return re.findall(r"^hloom ([a-z]+)", (ROOT / "README.md").read_text(), re.M)
