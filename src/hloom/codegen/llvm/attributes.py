"""Attributes of functions, parameters and calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute: one that LLVM defines (``nounwind``), or a string with an optional value.

    Attributes:
        name: of the attribute.
        value: of a string attribute; None for one that LLVM defines.
    """

    name: str
    value: str | None = None

    def __str__(self) -> str:
        if self.value is None:
            return self.name
        return f'"{self.name}"="{self.value}"' if self.value else f'"{self.name}"'


ALWAYS_INLINE: Final = Attribute("alwaysinline")
SIMPLIFIED: Final = Attribute("hloom-simplified", "")
"""Attribute of functions to optimize before code generation, with ``alwaysinline`` callees inlined."""


def attributes_text(attributes: Iterable[Attribute]) -> str:
    """Return attributes as they are listed, each with a space before it."""
    return "".join([f" {attribute}" for attribute in attributes])
