"""Packages whose modules register something by being imported: operations, element rules, kernels."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType


def import_modules(package: str, path: Iterable[str]) -> list[ModuleType]:
    """Import every module below a package, so that a new file registers what it defines by being there.

    Args:
        package: name of the package.
        path: its ``__path__``.
    """
    return [import_module(module.name) for module in walk_packages(path, f"{package}.")]
