"""algsimp: apply the rewrite rules that need no analysis beyond a few neighbouring instructions."""

from __future__ import annotations

from typing import Final

from hloom.passes.rewriting import RuleFamily, RulePass
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


class AlgebraicSimplifier(RulePass, name="algsimp", families=FAMILIES):
    """Apply every rule of `FAMILIES` to a fixed point."""
