"""Amounts as text: counts with nouns, numbers with decimal prefixes."""

from __future__ import annotations


def quantity(number: float, unit: str = "") -> str:
    """Return a number with a decimal prefix, such as ``12.3 MB``."""
    for factor, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= factor:
            return f"{number / factor:.3g} {letter}{unit}"
    return f"{number:.3g} {unit}".rstrip()
