"""scatter_simplifier: replace scatters of one window by dynamic-update-slices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hloom.ir.module import HloModule
from hloom.passes.registry import register
from hloom.passes.rewriting import RuleTable
from hloom.passes.rules import indexing

_TABLE: Final = RuleTable(indexing.SCATTERS)


@register
@dataclass(frozen=True, slots=True)
class ScatterSimplifier:
    """Apply the rules of `hloom.passes.rules.indexing.SCATTERS`."""

    name: ClassVar[str] = "scatter_simplifier"
    settles: ClassVar[bool] = True

    def run(self, module: HloModule) -> bool:
        """Rewrite every scatter."""
        return _TABLE.rewrite_module(module)
