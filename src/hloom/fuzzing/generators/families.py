"""Generators of cases, by family: functions from a `Draw` to a `Case`, and whole modules."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

import numpy as np

from hloom.fuzzing.generators import (
    collectives,
    contraction,
    control,
    conversion,
    elementwise,
    expressions,
    gather_scatter,
    linear_algebra,
    movement,
    reduction,
    sorting,
)
from hloom.fuzzing.generators.case import Case, Generator
from hloom.fuzzing.generators.draw import Draw
from hloom.fuzzing.generators.modules import draw_module
from hloom.shape.element_type import ElementType

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
    **expressions.FAMILIES,
}

MODULES = "modules"
CORNERS = "corners"
"""The family of programs that XLA is known to fail at."""
FAMILY_NAMES = (*sorted(FAMILIES), MODULES, CORNERS)
"""All families: of single operations, of whole modules, and the corners."""
PROGRAMS = ("expressions", MODULES)
"""Families whose cases have several operations."""
CORNERED = (
    "convert", "convolution", "dot", "scatter", "concatenate", "dynamic-slice", "dynamic-update-slice",
    "sort", "calls", "dynamic", "rng-bit-generator", "binary", "unary",
)  # fmt: skip
"""Families with such programs."""
EXCLUDED = ("bitcast", "divide", "remainder", "convert c")
FOLDED = 0.12
"""Fraction of the cases that have constants as arguments."""
WEIGHTS = {"unary": 6, "binary": 6, "convert": 4, "compare": 2, "modules": 6, "gather": 2, "scatter": 2,
           "dot": 2, "convolution": 3, "reduce": 2, "reduce-window": 2, "sort": 2, "corners": 4,
           "expressions": 10}  # fmt: skip
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


def draw_case(family: str, number: int, seed: int, *, fusions: bool = True) -> Case:
    """Draw the case of a number in a family; modules with fusions or without."""
    if family == MODULES:
        return draw_module(number, seed, fusions=fusions)
    draw = Draw(seed, family, number, restricted=family != CORNERS)
    generator = FAMILIES[draw.one(CORNERED) if family == CORNERS else family]
    with np.errstate(all="ignore"):
        case = generator(draw)
    folded = draw.chance(0.4 if family == CORNERS else FOLDED) and foldable(case, draw)
    return dataclasses.replace(case, name=f"{family}/{number}", folded=folded)


def foldable(case: Case, draw: Draw) -> bool:
    """Return whether arguments may be constants.

    Text does not keep all bits of NaN. XLA parses a complex number with a NaN part as NaN in both and refuses
    the largest number as a part; it parses the smallest f8e8m0fnu as twice its value, and folds the type
    differently from compiled code; its process ends when it divides constants narrower than a byte, and when
    it converts complex ones.
    """
    if case.replicas > 1 or case.dynamic or (draw.restricted and case.operation.startswith(EXCLUDED)):
        return False
    if any(ElementType.from_dtype(a.dtype).name == "f8e8m0fnu" for a in case.arguments):
        return False
    parts = [part for a in case.arguments if a.dtype.kind == "c" for part in (a.real, a.imag)]
    return all(bool((np.abs(part) < 1e38).all()) for part in parts)
