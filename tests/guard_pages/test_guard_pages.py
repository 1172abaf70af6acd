"""A sample of programs next to unmapped pages, and that an access beyond an array is found there."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from hloom.buffers.buffers import Buffer
from tests.guard_pages.__main__ import run
from tests.guard_pages.memory import END, PAGE, GuardedOffsets

READS_BEYOND = """
from tests.guard_pages.memory import END, guarded
from tests.guard_pages.programs import products
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


def test_products_with_parts_of_tiles() -> None:
    """Factors in rows and in columns, which are packed in different ways."""
    count, findings = run(["--only", "products/f32-5x33x7"])
    assert count == 4
    assert not findings


def test_a_read_beyond_an_argument_ends_the_process() -> None:
    command = [sys.executable, "-c", READS_BEYOND]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.stdout == "fine\n", done.stderr
    assert done.returncode == -signal.SIGSEGV


READS_BEYOND_A_CONSTANT = """
import ctypes
import numpy as np
import hloom
from tests.guard_pages.memory import END, guarded

text = (
    f"HloModule m\\nENTRY e {{ x = u8[333] parameter(0)\\n"
    f" c = u8[333] constant({{{', '.join(str(n % 256) for n in range(333))}}})\\n"
    " ROOT r = u8[333] add(x, c) }"
)
with guarded(END):
    executable = hloom.compile(hloom.HloModule.from_text(text), "cpu")
    assert (executable(np.zeros(333, np.uint8)) == np.arange(333) % 256).all()
    symbols = executable._programs[0].native.loaded.symbols
    (address,) = [a for name, a in symbols.items() if name.startswith("constant")]
    assert ctypes.string_at(address, 333) == bytes(n % 256 for n in range(333))
    print("fine", flush=True)
    ctypes.string_at(address + 333, 1)
print("not found")
"""


def test_the_first_byte_behind_a_constant_is_guarded() -> None:
    command = [sys.executable, "-c", READS_BEYOND_A_CONSTANT]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.stdout == "fine\n", done.stderr
    assert done.returncode == -signal.SIGSEGV


def test_the_first_byte_behind_a_temporary_is_guarded() -> None:
    offsets = GuardedOffsets(END)
    buffers = [Buffer(size) for size in (1, 63, 333, PAGE, PAGE + 5)]
    total = offsets(buffers)
    unused = {at for start, size in offsets.unused[total] for at in range(start, start + size)}
    for buffer in buffers:
        assert buffer.offset + buffer.size in unused
        assert not unused & {buffer.offset, buffer.offset + buffer.size - 1}


def test_devices_that_run_together_have_guarded_memory() -> None:
    count, findings = run(["--only", "hlo/collectives/collectives.hlo:0"])
    assert count and not findings
