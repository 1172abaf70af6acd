"""Passes by name."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType

from hloom.errors import HloError, did_you_mean, expect
from hloom.ir.module import HloModule
from hloom.passes.pipeline import PASSES, Pass


@cache
def passes() -> Mapping[str, type[Pass]]:
    """Return every pass by name; the modules of all passes are imported on the first call."""
    for module in pkgutil.walk_packages([str(Path(__file__).parent)], "hloom.passes."):
        importlib.import_module(module.name)
    return MappingProxyType(PASSES)


def pass_named(name: str) -> type[Pass]:
    """Return the pass of a name: XLA's (``algsimp``), or that of its class (``algebraic-simplifier``).

    Raises:
        HloError: by the rule ``pass.name`` if there is none.
    """
    expect(name, str, "the name of a pass")
    pass_class = passes().get(name) or _by_class().get(name)
    if pass_class is None:
        hint = did_you_mean(name, [*passes(), *_by_class()])
        names = ", ".join(sorted(passes()))
        raise HloError(f"unknown pass {name}{hint}; known are {names}", rule="pass.name")
    return pass_class


@cache
def _by_class() -> Mapping[str, type[Pass]]:
    """Return the passes by their classes: ``AlgebraicSimplifier`` as ``algebraic-simplifier``."""
    return {re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", c.__name__).lower(): c for c in passes().values()}


def run(module: HloModule, names: str | Sequence[str]) -> bool:
    """Run passes on a module in place, in the order of their names; return whether anything changed.

    Args:
        names: ``"cse,algsimp,dce"`` or a sequence. A pass with options gets their defaults; for those of a
            backend's pipeline see `hloom.debug.optimized`.

    Raises:
        HloError: by the rule ``pass.name`` for an unknown name, ``pass.options`` for a pass without defaults.
    """
    expect(module, HloModule, "an HloModule")
    expect(names, Sequence, "names of passes")
    split = names.split(",") if isinstance(names, str) else names
    changed = False
    for item in [created(pass_named(name.strip())) for name in split if name.strip()]:
        changed |= item.run(module)
    return changed


def created(cls: type[Pass]) -> Pass:
    """Return a pass with default options; raise HloError by ``pass.options`` if it has none."""
    try:
        return cls()
    except TypeError:
        message = f"{cls.name} has options without defaults; a backend's pipeline states them"
        raise HloError(message, rule="pass.options") from None
