"""How the values of reducing computations may be grouped; see `hloom.operations.combiners`."""

from __future__ import annotations

from hloom.evaluate.evaluator import Evaluator
from hloom.ir.computation import HloComputation
from hloom.operations import combiners
from hloom.operations.combiners import Grouping


def grouping(computation: HloComputation) -> Grouping:
    """Return in which orders a combiner (accumulators..., values...) → accumulators may combine values."""
    return combiners.grouping(computation, lambda *arrays: Evaluator().map(computation, arrays))
