"""The key of cached code depends on every package that the compiler imports."""

from __future__ import annotations

from hloom.cpu.jit.cache import PACKAGES_OUTSIDE_KEY
from test_layering import MAY_IMPORT


def reached(rooms: set[str]) -> set[str]:
    found: set[str] = set()
    waiting = set(rooms)
    while waiting:
        room = waiting.pop()
        found.add(room)
        waiting |= MAY_IMPORT[room] - found
    return found


def test_packages_without_effect_are_not_reached_from_the_compiler() -> None:
    compiled = reached({"cpu", "jax", "sharding"})
    assert {"library_calls", "builder", "operations", "codegen"} <= compiled
    assert not compiled & PACKAGES_OUTSIDE_KEY
