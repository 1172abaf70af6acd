"""Text in XML and HTML."""

from __future__ import annotations

from html import escape

from hloom.visible import visible


def markup(text: str) -> str:
    """Return text for elements and attributes: well-formed whatever characters it holds."""
    return escape(visible(text))
