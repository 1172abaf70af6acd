"""gather_simplifier, scatter_simplifier, simplify-sorts: the rules of `hloom.passes.rules.indexing`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.passes.registry import register
from hloom.passes.rewriting import RulePass, RuleTable
from hloom.passes.rules import indexing


@register
@dataclass(frozen=True, slots=True)
class GatherSimplifier(RulePass):
    """Replace gathers of one slice, or of a whole array, by simpler operations."""

    name: ClassVar[str] = "gather_simplifier"
    table: ClassVar[RuleTable] = RuleTable(indexing.GATHERS)


@register
@dataclass(frozen=True, slots=True)
class ScatterSimplifier(RulePass):
    """Replace scatters of one window by dynamic-update-slices."""

    name: ClassVar[str] = "scatter_simplifier"
    table: ClassVar[RuleTable] = RuleTable(indexing.SCATTERS)


@register
@dataclass(frozen=True, slots=True)
class SortSimplifier(RulePass):
    """Remove unused operands of sorts."""

    name: ClassVar[str] = "simplify-sorts"
    table: ClassVar[RuleTable] = RuleTable(indexing.SORTS)
