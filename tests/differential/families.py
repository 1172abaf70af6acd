"""Generators of cases, by family: functions from a `Draw` to a `Case`."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

import numpy as np

from hloom.shape.element_type import ElementType

from . import (
    collectives,
    contraction,
    control,
    conversion,
    elementwise,
    gather_scatter,
    linear_algebra,
    movement,
    programs,
    reduction,
    sorting,
)
from .case import Case, Generator
from .draw import Draw

FAMILIES: dict[str, Generator] = {
    **elementwise.FAMILIES,
    **conversion.FAMILIES,
    **movement.FAMILIES,
    **gather_scatter.FAMILIES,
    **contraction.FAMILIES,
    **reduction.FAMILIES,
    **sorting.FAMILIES,
    **linear_algebra.FAMILIES,
    **control.FAMILIES,
    **collectives.FAMILIES,
    **programs.FAMILIES,
}

EXCLUDED = ("bitcast", "divide", "remainder", "convert c")
FOLDED = 0.12
"""Fraction of the cases that have constants as arguments."""
WEIGHTS = {"unary": 6, "binary": 6, "convert": 4, "compare": 2, "programs": 4, "gather": 2, "scatter": 2,
           "dot": 2, "convolution": 3, "reduce": 2, "reduce-window": 2, "sort": 2}  # fmt: skip
"""Number of cases of a family per round, if not one."""


def round_robin(families: Sequence[str], count: int, first: int = 0) -> list[tuple[str, int]]:
    """Return family and number of `count` cases after the first ones, each family by its weight per round."""
    round_ = [family for family in families for _ in range(WEIGHTS.get(family, 1))]
    numbers: Counter[str] = Counter()
    chosen: list[tuple[str, int]] = []
    for i in range(first + count):
        family = round_[i % len(round_)]
        chosen.append((family, numbers[family]))
        numbers[family] += 1
    return chosen[first:]


def draw_case(family: str, number: int, seed: int) -> Case:
    """Draw the case of a number in a family."""
    draw = Draw(seed, family, number)
    with np.errstate(all="ignore"):
        case = FAMILIES[family](draw)
    return dataclasses.replace(case, name=f"{family}/{number}", folded=draw.chance(FOLDED) and foldable(case))


def foldable(case: Case) -> bool:
    """Return whether arguments may be constants.

    Text does not keep all bits of NaN. XLA parses a complex number with a NaN part as NaN in both and refuses
    the largest number as a part; it parses the smallest f8e8m0fnu as twice its value, and folds the type
    differently from compiled code; its process ends when it divides constants narrower than a byte, and when
    it converts complex ones.
    """
    if case.replicas > 1 or case.dynamic or case.operation.startswith(EXCLUDED):
        return False
    if any(ElementType.from_dtype(a.dtype).name == "f8e8m0fnu" for a in case.arguments):
        return False
    parts = [part for a in case.arguments if a.dtype.kind == "c" for part in (a.real, a.imag)]
    return all(bool((np.abs(part) < 1e38).all()) for part in parts)
