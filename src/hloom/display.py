"""Values with an HTML form in notebooks."""

from __future__ import annotations

from typing import Final

from hloom.hooks import Hook

HTML_OF: Final[Hook[[object], str]] = Hook("html_of")


class Displayed:
    """A class whose values notebooks show as pictures and tables."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the value as HTML."""
        return HTML_OF(self)
