"""Orders in which reducing computations may combine values; see `hloom.operations.combiners`."""

from __future__ import annotations

from collections.abc import Container

from hloom.evaluate.evaluator import Evaluator
from hloom.ir.computation import HloComputation
from hloom.operations import combiners
from hloom.operations.combiners import Grouping


def grouping(computation: HloComputation) -> Grouping:
    """Return the orders allowed for a combiner (accumulators..., values...) → accumulators."""
    return combiners.grouping(computation, lambda *arrays: Evaluator().map(computation, arrays))


def is_choice(computation: HloComputation, live: Container[int]) -> bool:
    """Return true if a combiner is associative and returns one of its two arguments, as live results show."""
    return combiners.is_choice(computation, lambda *arrays: Evaluator().map(computation, arrays), live)
