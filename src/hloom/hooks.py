"""Functions that are named where they are called and imported at their first call.

An `EntryPoint` names a module to import later: a heavy one, or one that imports the caller. A `Hook` names no
module: a lower package declares what it calls of a higher one, and `hloom/__init__.py`, which Python imports
before every package, provides it. So the model calls the parser without knowing it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


class EntryPoint(Generic[P, R]):
    """A function named as ``package.module:function``, whose module is imported at the first call."""

    __slots__ = ("_function", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._function: Callable[P, R] | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        return self.resolve()(*args, **kwargs)

    def resolve(self) -> Callable[P, R]:
        """Return the function, importing its module if that has not been done."""
        if self._function is None:
            module, _, function = self.name.partition(":")
            self._function = cast("Callable[P, R]", getattr(import_module(module), function))
        return self._function


class Hook(Generic[P, R]):
    """A function that a package declares by a name and calls, and that a higher package has."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function that was provided."""
        return PROVIDED[self.name](*args, **kwargs)


PROVIDED: Final[dict[str, EntryPoint[..., Any]]] = {}
"""The function of each hook, by its name."""


def provide(**functions: EntryPoint[..., object]) -> None:
    """Set the functions of hooks."""
    PROVIDED.update(functions)
