"""algsimp: applies the rewrite rules that need to know nothing but a few instructions around."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hloom.ir.module import HloModule
from hloom.passes.registry import register
from hloom.passes.rewriting import Family, RuleTable
from hloom.passes.rules import (
    arithmetic,
    broadcasting,
    comparison,
    conversion,
    joining,
    reduction,
    reshaping,
    slicing,
    structure,
)

FAMILIES: Final[tuple[Family, ...]] = (
    structure.RULES,
    conversion.RULES,
    reshaping.RULES,
    broadcasting.RULES,
    slicing.RULES,
    joining.RULES,
    comparison.RULES,
    arithmetic.RULES,
    reduction.RULES,
)
"""The rules' families; of several rules that fit, that of the first family is taken."""

_TABLE: Final = RuleTable(*FAMILIES)


@register
@dataclass(frozen=True, slots=True)
class AlgebraicSimplifier:
    """Every rule of `FAMILIES`, until none fits any more."""

    name: ClassVar[str] = "algsimp"
    settles: ClassVar[bool] = True

    def run(self, module: HloModule) -> bool:
        """Rewrite every computation."""
        return _TABLE.rewrite_module(module)
