"""algsimp: apply the rewrite rules that need no analysis beyond a few neighbouring instructions."""

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
    updates,
)

FAMILIES: Final[tuple[Family, ...]] = (
    structure.RULES,
    conversion.RULES,
    reshaping.RULES,
    broadcasting.RULES,
    slicing.RULES,
    joining.RULES,
    updates.RULES,
    comparison.RULES,
    arithmetic.RULES,
    reduction.RULES,
)
"""The families of rules; earlier families take precedence."""

_TABLE: Final = RuleTable(*FAMILIES)


@register
@dataclass(frozen=True, slots=True)
class AlgebraicSimplifier:
    """Apply every rule of `FAMILIES` to a fixed point."""

    name: ClassVar[str] = "algsimp"
    settles: ClassVar[bool] = True

    def run(self, module: HloModule) -> bool:
        """Rewrite every computation."""
        return _TABLE.rewrite_module(module)
