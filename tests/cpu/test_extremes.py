"""Programs at the limits do not end the process; they run in a separate one."""

from __future__ import annotations

import subprocess
import sys

from cpu import extreme_programs


def test_extreme_programs() -> None:
    done = subprocess.run(
        [sys.executable, extreme_programs.__file__], capture_output=True, text=True, check=False, timeout=1200
    )
    ended = [line.removeprefix("end ") for line in done.stdout.splitlines() if line.startswith("end ")]
    assert done.returncode == 0, f"{done.stdout[-200:]}\n{done.stderr[-2000:]}"
    assert ended == [each.name for each in extreme_programs.programs()]
