"""gather_simplifier: replace gathers of one slice, or of a whole array, by simpler operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hloom.ir.module import HloModule
from hloom.passes.registry import register
from hloom.passes.rewriting import RuleTable
from hloom.passes.rules import indexing

_TABLE: Final = RuleTable(indexing.GATHERS)


@register
@dataclass(frozen=True, slots=True)
class GatherSimplifier:
    """Apply the rules of `hloom.passes.rules.indexing.GATHERS`."""

    name: ClassVar[str] = "gather_simplifier"
    settles: ClassVar[bool] = True

    def run(self, module: HloModule) -> bool:
        """Rewrite every gather."""
        return _TABLE.rewrite_module(module)
