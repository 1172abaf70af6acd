"""Escapes for XML and HTML."""

from __future__ import annotations

from html import escape

from hloom.visible import visible


def markup(text: str) -> str:
    """Escape text for elements and attributes, control characters included."""
    return escape(visible(text))
