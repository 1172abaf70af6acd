"""Run JAX programs in other processes, on hloom or on JAX's own CPU client."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Literal

Platform = Literal["cpu", "hloom", "stock"]
"""hloom as ``cpu``; hloom as ``hloom``; JAX's own ``cpu``."""
SECONDS = 1200


def environment_of(platform: Platform) -> dict[str, str]:
    """Return the environment in which JAX uses a platform."""
    asked = {
        "cpu": {"HLOOM_AS_CPU": "1", "JAX_PLATFORMS": "cpu"},
        "hloom": {"JAX_PLATFORMS": "hloom,cpu"},
        "stock": {"JAX_PLATFORMS": "cpu"},
    }[platform]
    known = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "HLOOM_AS_CPU", "XLA_FLAGS"))}
    return {**known, **asked}


def registration(platform: Platform) -> str:
    """Return the lines that register hloom: the entry point belongs to an installed one."""
    return "" if platform == "stock" else "import hloom.jax.plugin; hloom.jax.plugin.initialize()\n"


class ForkedPrograms:
    """Runs the programs of a platform in forks of one process, which imports JAX once."""

    def __init__(self, platform: Platform) -> None:
        script = str(Path(__file__).with_name("forked_programs.py"))
        command = [sys.executable, "-X", "faulthandler", script, platform]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, env=environment_of(platform), stdin=pipe, stdout=pipe, text=True
        )
        atexit.register(self._process.communicate)

    def begin(
        self, program: str, outputs: Sequence[Path], arguments: Sequence[str] = (), **environment: str
    ) -> int:
        """Begin a program; return the number of its process."""
        files = list(map(str, outputs))
        return self._answer(program=program, outputs=files, arguments=arguments, environment=environment)

    def wait(self, child: int, seconds: float) -> int:
        """Return the exit code of a process; kill it after some seconds."""
        timer = Timer(seconds, os.kill, (child, 9))
        timer.start()
        try:
            return self._answer(child=child)
        finally:
            timer.cancel()

    def _answer(self, **request: object) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


forked_programs = cache(ForkedPrograms)


def run_program(program: str, platform: Platform, **environment: str) -> str:
    """Return what a program prints; it must succeed.

    It runs in a fork of a process that has imported JAX, unless variables matter already to the import.
    """
    if any(name.startswith("JAX_") for name in environment):
        return run_alone(program, platform, **environment)
    programs = forked_programs(platform)
    with TemporaryDirectory() as folder:
        outputs = Path(folder) / "out", Path(folder) / "err"
        code = programs.wait(programs.begin(program, outputs, **environment), SECONDS)
        out, err = (path.read_text() for path in outputs)
    assert code == 0, err[-4000:]
    return out


def run_alone(program: str, platform: Platform, **environment: str) -> str:
    """Return what a program prints in a new process; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", registration(platform) + program],
        env={**environment_of(platform), **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
