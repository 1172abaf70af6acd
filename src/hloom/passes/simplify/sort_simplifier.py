"""simplify-sorts: remove unused operands of sorts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hloom.ir.module import HloModule
from hloom.passes.registry import register
from hloom.passes.rewriting import RuleTable
from hloom.passes.rules import indexing

_TABLE: Final = RuleTable(indexing.SORTS)


@register
@dataclass(frozen=True, slots=True)
class SortSimplifier:
    """Apply the rules of `hloom.passes.rules.indexing.SORTS`."""

    name: ClassVar[str] = "simplify-sorts"
    settles: ClassVar[bool] = True

    def run(self, module: HloModule) -> bool:
        """Rewrite every sort."""
        return _TABLE.rewrite_module(module)
