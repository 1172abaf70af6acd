"""Functions given by the names of their modules, which are imported at the first call."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Generic, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


class EntryPoint(Generic[P, R]):
    """A function named as ``package.module:function``, whose module is imported at the first call.

    The deferred import loads a package such as the parser only if a program needs it, and keeps the import
    graph acyclic: the parser imports the model, and the model holds only the parser's name.
    """

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
