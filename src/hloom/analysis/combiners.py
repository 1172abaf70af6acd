"""Orders in which reducing computations may combine values; see `hloom.operations.combiners`."""

from __future__ import annotations

from hloom.evaluate.evaluator import Evaluator
from hloom.ir.computation import HloComputation
from hloom.operations import combiners
from hloom.operations.combiners import Grouping


def grouping(computation: HloComputation) -> Grouping:
    """Return the orders allowed for a combiner (accumulators..., values...) → accumulators."""
    return combiners.grouping(computation, lambda *arrays: Evaluator().map(computation, arrays))
