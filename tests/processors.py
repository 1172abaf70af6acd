"""Processors for which tests generate code, and whether this machine can run it."""

from __future__ import annotations

from typing import Final

from hloom.codegen.target import Target, host

PROCESSORS: Final = {
    name: Target.named("x86_64-linux-gnu", name) for name in ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
}


def runs_here(name: str) -> bool:
    """Return whether this machine has all features of a processor."""
    machine = host()
    return machine.architecture == "x86_64" and machine.has(*PROCESSORS[name].features)
