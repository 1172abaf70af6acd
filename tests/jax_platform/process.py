"""Run JAX programs in another process, on hloom or on JAX's own CPU client."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Literal

Platform = Literal["cpu", "hloom", "stock"]
"""hloom as ``cpu``; hloom as ``hloom``; JAX's own ``cpu``."""


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


def run_program(program: str, platform: Platform, **environment: str) -> str:
    """Return what a program prints; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", registration(platform) + program],
        env={**environment_of(platform), **environment},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
