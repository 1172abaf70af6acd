"""algsimp: apply the rewrite rules that need no analysis beyond a few neighbouring instructions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hloom.passes.registry import register
from hloom.passes.rewriting import RuleFamily, RulePass, RuleTable
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

FAMILIES: Final[tuple[RuleFamily, ...]] = (
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


@register
@dataclass(frozen=True, slots=True)
class AlgebraicSimplifier(RulePass):
    """Apply every rule of `FAMILIES` to a fixed point."""

    name: ClassVar[str] = "algsimp"
    table: ClassVar[RuleTable] = RuleTable(*FAMILIES)
