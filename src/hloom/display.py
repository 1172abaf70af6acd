"""Values with an HTML form in notebooks; `hloom/__init__.py` sets the function that writes it."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

_writer: Callable[[object], str] | None = None


class Displayed:
    """A class whose values notebooks show as pictures and tables."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the value as HTML; its repr if no function is set."""
        return _writer(self) if _writer is not None else f"<code>{escape(repr(self))}</code>"


def write_with(function: Callable[[object], str]) -> None:
    """Set the function that returns a value as HTML."""
    global _writer
    _writer = function
