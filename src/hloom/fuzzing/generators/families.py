"""The table of case generators by family: functions from a `Draw` to a `Case`, and whole modules."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

import numpy as np

from hloom.fuzzing import generators
from hloom.fuzzing.generators.case import FAMILIES, Case
from hloom.fuzzing.generators.draw import Draw
from hloom.fuzzing.generators.modules import draw_module
from hloom.ir.registration import import_modules
from hloom.shape.element_type import ElementType

import_modules(generators.__name__, generators.__path__)

MODULES = "modules"
CORNERS = "corners"
"""The family of programs at which XLA is known to fail."""
FAMILY_NAMES = (*sorted(FAMILIES), MODULES, CORNERS)
"""All families: of single operations and expressions, of whole modules, and the corners."""
CLIENT_FAMILIES = tuple(name for name in FAMILY_NAMES if name not in FAMILIES or FAMILIES[name].client)
"""The families whose programs XLA's client takes."""
PROGRAMS = ("expressions", MODULES)
"""Families whose cases have several operations."""
FOLDED = 0.12
"""Fraction of the cases that have constants as arguments."""
_EXCLUDED = ("bitcast", "divide", "remainder", "convert c", "large")
"""Beginnings of the operations of cases that have none."""
_WEIGHTS = {name: each.weight for name, each in FAMILIES.items()} | {MODULES: 6, CORNERS: 4}


def round_robin(families: Sequence[str], count: int, first: int = 0) -> list[tuple[str, int]]:
    """Return the family and number of `count` cases after the first `first` ones, in turn by weight."""
    round_ = [family for family in families for _ in range(_WEIGHTS[family])]
    numbers: Counter[str] = Counter()
    keys: list[tuple[str, int]] = []
    for i in range(first + count):
        family = round_[i % len(round_)]
        keys.append((family, numbers[family]))
        numbers[family] += 1
    return keys[first:]


def draw_case(
    family: str, number: int, seed: int, *, fusions: bool = True, types: Sequence[str] = ()
) -> Case:
    """Draw case `number` of a family.

    Args:
        family: the name of the family.
        number: the number of the case in the family.
        seed: the seed of all cases.
        fusions: whether modules contain fusions.
        types: the element types of operands, for families that can have them; empty for all types.
    """
    if family == MODULES:
        return draw_module(number, seed, fusions=fusions)
    draw = Draw(seed, family, number, restricted=family != CORNERS, types=types)
    name = draw.one([n for n in sorted(FAMILIES) if FAMILIES[n].corners]) if family == CORNERS else family
    with np.errstate(all="ignore"):
        case = FAMILIES[name].draw(draw)
    folded = draw.chance(0.4 if family == CORNERS else FOLDED) and foldable(case, draw)
    return dataclasses.replace(case, name=f"{family}/{number}", folded=folded)


def foldable(case: Case, draw: Draw) -> bool:
    """Return whether the arguments of a case may be written as constants, which XLA folds.

    Text does not keep all bits of NaN. XLA parses a complex number with a NaN part as NaN in both and refuses
    the largest number as a part; it parses the smallest f8e8m0fnu as twice its value, and folds the type
    differently from compiled code; its process ends when it divides constants narrower than a byte, and when
    it converts complex ones.
    """
    if case.replicas > 1 or case.dynamic or (draw.restricted and case.operation.startswith(_EXCLUDED)):
        return False
    if any(ElementType.from_dtype(a.dtype).name == "f8e8m0fnu" for a in case.arguments):
        return False
    parts = [part for a in case.arguments if a.dtype.kind == "c" for part in (a.real, a.imag)]
    return all(bool((np.abs(part) < 1e38).all()) for part in parts)
