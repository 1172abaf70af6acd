"""Run JAX programs in another process, on hloom or on JAX's own CPU client."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Literal

Platform = Literal["cpu", "hloom", "stock"]
"""hloom as ``cpu``; hloom as ``hloom``; JAX's own ``cpu``."""


def run_program(program: str, platform: Platform, **environment: str) -> str:
    """Return what a program prints; it must succeed."""
    asked = {
        "cpu": {"HLOOM_AS_CPU": "1", "JAX_PLATFORMS": "cpu"},
        "hloom": {"JAX_PLATFORMS": "hloom,cpu"},
        "stock": {"JAX_PLATFORMS": "cpu"},
    }[platform]
    known = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "HLOOM_AS_CPU", "XLA_FLAGS"))}
    # The entry point belongs to an installed hloom; register by hand so that the tests need none.
    register = "import hloom.jax.plugin; hloom.jax.plugin.initialize()\n" if platform != "stock" else ""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", register + program],
        env={**known, **asked, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
