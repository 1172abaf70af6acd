"""Programs of the corpus that send more than 1.5 times as much as XLA's, and why XLA's figure is no bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason why a program may send more than XLA's.

    Attributes:
        most: the bytes that a device may send.
        why: what makes XLA's program send less.
    """

    most: int
    why: str


REASONS: Final[Mapping[str, Reason]] = {
    "partitioner.PartitionCallMultipleMismatchedCallsites": Reason(
        8,
        "XLA simplifies x * 0 before it partitions; after opt --passes=call-inliner,algsimp,dce "
        "the program sends 0 B here too",
    ),
    "partitioner.SubgroupUnreducedParam": Reason(
        48,
        "XLA's program adds no summands: its only collective is an all-gather, and each device returns what "
        "it holds of the sum",
    ),
    "partitioner.UnreducedParamV3": Reason(
        64,
        "XLA's program has no collective: each device returns what it holds of the sum, not the sum",
    ),
    "propagation.ReduceBackwardWithBarrier": Reason(
        16,
        "XLA's program computes all 8 sums of the annotated reduction on each device; here each device "
        "computes 4 of them, as the annotation says, and gathers the others",
    ),
    "propagation.ParallelScatterFromIndexForwardPass_Variadic": Reason(
        768,
        "the conversion to StableHLO, by which XLA's figure was taken, drops the annotation of the iota, "
        "the only one: XLA's program is that of one device",
    ),
}
"""By the names of programs. A program that sends more than its reason allows has none."""
