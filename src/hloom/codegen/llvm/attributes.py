"""Attributes of functions, parameters and calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hloom.records import dataclass


@dataclass(frozen=True, slots=True)
class Attribute:
    """An enum attribute, such as ``nounwind``, or a string attribute with an optional value.

    Attributes:
        name: LLVM's name.
        value: of a string attribute; None for an enum attribute.
    """

    name: str
    value: str | None = None

    def __str__(self) -> str:
        if self.value is None:
            return self.name
        return f'"{self.name}"="{self.value}"' if self.value else f'"{self.name}"'


ALWAYS_INLINE: Final = Attribute("alwaysinline")
SIMPLIFIED: Final = Attribute("hloom-simplified", "")
"""Marks functions that LLVM optimizes before code generation, after inlining ``alwaysinline`` callees."""


def attributes_text(attributes: Iterable[Attribute]) -> str:
    """Return the text of attributes, each preceded by a space."""
    return "".join([f" {attribute}" for attribute in attributes])
