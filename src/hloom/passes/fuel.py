"""Fuel: the number of rewrites that passes may make, to find the one that is wrong; XLA's ``--xla_fuel``.

A pass calls `consume` before every rewrite. Without a limit it may always go on::

    with limited(3) as fuel:
        AlgebraicSimplifier().run(module)
    print(fuel.used, fuel.last)
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from hloom.records import dataclass


@dataclass
class Fuel:
    """A limit on the number of rewrites.

    Attributes:
        limit: the number of rewrites allowed.
        used: the number of rewrites made so far.
        last: the last rewrite: the name of a rule, or the rewritten instruction; empty if not known.
        log: all rewrites in order, as `last` has them; None if they are not recorded.
    """

    limit: int
    used: int = 0
    last: str = ""
    log: list[str] | None = None


_UNLIMITED: Final = 1 << 62
_FUEL: Final[ContextVar[Fuel | None]] = ContextVar("fuel", default=None)


@contextmanager
def limited(limit: int) -> Generator[Fuel]:
    """Allow at most ``limit`` rewrites by the passes that run in a ``with`` block; yield the fuel."""
    fuel = Fuel(limit)
    token = _FUEL.set(fuel)
    try:
        yield fuel
    finally:
        _FUEL.reset(token)


@contextmanager
def recorded() -> Generator[list[str]]:
    """Record the rewrites by the passes that run in a ``with`` block.

    Yield the list of them, in `Fuel.last`'s form.
    """
    log: list[str] = []
    token = _FUEL.set(Fuel(_UNLIMITED, log=log))
    try:
        yield log
    finally:
        _FUEL.reset(token)


def exhausted() -> bool:
    """Return whether no further rewrite is allowed."""
    fuel = _FUEL.get()
    return fuel is not None and fuel.used >= fuel.limit


def consume(what: str = "") -> bool:
    """Return whether a pass may make one more rewrite; if so, count it and record ``what``."""
    fuel = _FUEL.get()
    if fuel is None:
        return True
    if fuel.used >= fuel.limit:
        return False
    fuel.used += 1
    fuel.last = what
    if fuel.log is not None:
        fuel.log.append(what)
    return True
