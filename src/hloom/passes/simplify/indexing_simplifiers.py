"""gather_simplifier, scatter_simplifier, simplify-sorts: the rules of `hloom.passes.rules.indexing`."""

from __future__ import annotations

from hloom.passes.rewriting import RulePass
from hloom.passes.rules import indexing


class GatherSimplifier(RulePass, name="gather_simplifier", families=[indexing.GATHERS]):
    """Replace gathers of one slice, or of a whole array, by simpler operations."""


class ScatterSimplifier(RulePass, name="scatter_simplifier", families=[indexing.SCATTERS]):
    """Replace scatters of one window by dynamic-update-slices."""


class SortSimplifier(RulePass, name="simplify-sorts", families=[indexing.SORTS]):
    """Remove unused operands of sorts."""
