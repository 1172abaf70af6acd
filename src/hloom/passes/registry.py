"""Registry of passes by name: each pass registers itself in the module that defines it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final, TypeVar

import hloom.passes
from hloom.errors import HloError
from hloom.passes.pipeline import Pass

P = TypeVar("P", bound=Pass)

_CLASSES: Final[dict[str, type[Pass]]] = {}


def register(cls: type[P]) -> type[P]:
    """Register a pass under its name; for use as a decorator.

    Raises:
        HloError: by the rule ``pass.name-unique`` if another class has the name.
    """
    other = _CLASSES.get(cls.name)
    if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        message = f"{cls.__qualname__} has the name {cls.name} of {other.__module__}.{other.__qualname__}"
        raise HloError(message, rule="pass.name-unique")
    _CLASSES[cls.name] = cls
    return cls


@cache
def passes() -> Mapping[str, type[Pass]]:
    """Return every pass by name; the modules of all passes are imported on the first call."""
    for module in pkgutil.walk_packages(hloom.passes.__path__, "hloom.passes."):
        importlib.import_module(module.name)
    return MappingProxyType(_CLASSES)


def pass_named(name: str) -> type[Pass]:
    """Return the pass of a name.

    Raises:
        HloError: by the rule ``pass.name`` if there is none.
    """
    found = passes().get(name)
    if found is None:
        known = ", ".join(sorted(passes()))
        raise HloError(f"unknown pass {name}; known are {known}", rule="pass.name")
    return found
