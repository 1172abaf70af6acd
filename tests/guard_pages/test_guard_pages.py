"""A sample of programs next to unmapped pages, and that an access beyond an array is found there."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from guard_pages.__main__ import run

READS_BEYOND = """
from guard_pages.memory import END, guarded
from guard_pages.programs import products
from hloom.codegen import elements

(program,) = [p for p in products() if p.name == "products/f32-3x64x33-01"]
with guarded(END):
    program.run()
print("fine", flush=True)
# views of unknown size are taken for large arrays, whose last row may be read as a whole
elements.UNKNOWN_EXTENT = 1 << 62
with guarded(END):
    program.run()
print("not found")
"""


def test_a_sample_of_programs() -> None:
    count, findings = run([])
    assert count > 20
    assert not findings


def test_a_read_beyond_an_argument_ends_the_process() -> None:
    command = [sys.executable, "-c", READS_BEYOND]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    assert done.stdout == "fine\n", done.stderr
    assert done.returncode == -signal.SIGSEGV
