"""Systems without native code: hloom reads, evaluates and shows programs, and refuses the cpu backend."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hloom.codegen.target import require_native_platform
from hloom.errors import HloError
from hloom.jax import plugin

POSIX_ONLY = """
for name in ("register_at_fork", "sched_getaffinity", "sched_yield", "confstr", "uname", "O_NOFOLLOW",
             "O_CLOEXEC", "O_NONBLOCK", "O_DIRECTORY"):
    delattr(os, name)
for name in [name for name in vars(mmap) if name.startswith(("MAP_", "PROT_"))]:
    delattr(mmap, name)
"""
NO_GLIBC = """
def confstr(name): raise ValueError("unrecognized configuration name")
os.confstr = confstr
"""


def machine(name: str) -> str:
    """Return the line that sets the name of the processor."""
    return f"os.uname = lambda: SimpleNamespace(machine={name!r})"


SYSTEMS = {
    "darwin on arm64": "sys.platform, platform.machine = 'darwin', lambda: 'arm64'; del os.sched_getaffinity"
    + NO_GLIBC,
    "win32 on AMD64": "sys.platform, platform.machine = 'win32', lambda: 'AMD64'" + POSIX_ONLY,
    "linux on riscv64 with a Python of 64 bits": machine("riscv64"),
    "linux on x86_64 with a Python of 64 bits and another C library": machine("x86_64") + NO_GLIBC,
}
"""Lines that let Python believe in another system, by hloom's name of it."""
PROGRAM = """
import ctypes, mmap, os, platform, sys
from types import SimpleNamespace
import numpy as np, ml_dtypes, click, google.protobuf.message, rich.console, scipy.special
import html, http.server, json, selectors, shutil, socket, subprocess, tempfile, threading
{system}
import hloom, hloom.errors
from hloom.tools.cli import main
{work}
"""
HLO = """HloModule sum
ENTRY sum {
  p = f32[3] parameter(0)
  ROOT r = f32[3] add(p, p)
}
"""


def run(system: str, work: str) -> str:
    """Return what lines of Python print on a system."""
    program = PROGRAM.format(system=SYSTEMS[system], work=work)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_system_without_native_code(system: str) -> None:
    printed = run(
        system,
        f"""
module = hloom.HloModule.from_text({HLO!r})
module.verify()
assert hloom.HloModule.from_proto(module.to_proto()).to_text() == module.to_text()
x = np.arange(3, dtype=np.float32)
print(hloom.compile(module, backend="evaluator")(x))
for use in (lambda: hloom.compile(module), lambda: hloom.compile(module, backend="cpu")):
    try:
        use()
    except hloom.errors.HloError as error:
        print(error)
""",
    )
    result, *refusals = printed.splitlines()
    assert result == "[0. 2. 4.]"
    assert refusals == 2 * [
        "the cpu backend runs on Linux with the GNU C library, on x86-64 and aarch64; "
        f"this is {system}: use backend='evaluator' [cpu.platform]"
    ]


COMMANDS = (
    "print {file}",
    "verify {file}",
    "run {file} --backend evaluator --random 0",
    "trace {file}",
    "draw {file} --out {folder}/drawing.svg",
    "view {file} -o {folder}/page.html",
    "aot {file} -o {folder}/code.o --target aarch64-linux-gnu",
)
"""Commands that need no native code."""


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_on_windows(command: str, tmp_path: Path) -> None:
    file = tmp_path / "program.hlo"
    file.write_text(HLO)
    arguments = command.format(file=file, folder=tmp_path).split()
    run("win32 on AMD64", f"main({arguments!r}, standalone_mode=False)")


def test_the_error_names_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(HloError, match="this is darwin on") as caught:
        require_native_platform()
    assert caught.value.rule == "cpu.platform"


def test_jax_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(HloError) as caught:
        plugin.register()
    assert caught.value.rule == "cpu.platform"
