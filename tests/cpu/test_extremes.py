"""Programs at the limits do not end the process; they run in a separate one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cpu import extreme_programs

ROOT = Path(__file__).parents[2]


def test_extreme_programs() -> None:
    command = [sys.executable, "-m", extreme_programs.__name__]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1200)
    ended = [line.removeprefix("end ") for line in done.stdout.splitlines() if line.startswith("end ")]
    assert done.returncode == 0, f"{done.stdout[-200:]}\n{done.stderr[-2000:]}"
    assert ended == [each.name for each in extreme_programs.programs()]
