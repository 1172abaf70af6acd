"""Scalar computations that combine values: of windows, scans and scatters.

A computation may take and return other float types than those of the arrays; values are converted at its
parameters and results. Sums and products of narrow floats are formed in f32 and rounded at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from hloom.analysis.combiners import grouping
from hloom.codegen.accumulators import Blocks
from hloom.codegen.elements import Elements
from hloom.codegen.llvm import F32, F64, Value
from hloom.codegen.types import Element, constant, round_to
from hloom.operations.combiners import Grouping
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType

if TYPE_CHECKING:
    from hloom.ir.computation import HloComputation


def as_type(value: Element, source: ElementType, target: ElementType) -> Element:
    """Convert a value between float types, rounding once; other types are unchanged."""
    if source is target or isinstance(value, tuple) or not (source.is_floating and target.is_floating):
        return value
    if target is et.F64:
        return value.cast("fpext", F64)
    if source is et.F64:
        value = value.cast("fptrunc", F32)
    return round_to(value, target) if target.bits < 32 else value


class Combiner:
    """A computation (accumulators..., values...) → accumulators.

    Attributes:
        computation: the called computation.
        accumulators, values: types of its parameters.
        plain: the opcode, if the computation is one operation on its two parameters.
    """

    def __init__(self, computation: HloComputation) -> None:
        self.computation = computation
        types = [p.shape.element_type for p in computation.parameters]
        half = len(types) // 2
        self.accumulators, self.values = types[:half], types[half:]
        self.plain = self._plain_opcode()

    def _plain_opcode(self) -> str:
        root = self.computation.root
        same = {root.shape.element_type, *self.accumulators, *self.values}
        plain = len(self.accumulators) == 1 and len(same) == 1 and len(root.operands) == 2
        return root.opcode if plain and set(root.operands) == set(self.computation.parameters) else ""

    @property
    def free(self) -> bool:
        """Whether values may be combined in any order."""
        return grouping(self.computation) is Grouping.FREE

    @property
    def uniform(self) -> bool:
        """Whether the results have the types of the values, so that parts can be combined separately."""
        return self.accumulators == self.values

    def starts(self, inits: Sequence[Element], sources: Sequence[ElementType]) -> list[Element]:
        """Return the initial values in the accumulators' types."""
        return [as_type(x, s, t) for x, s, t in zip(inits, sources, self.accumulators, strict=True)]

    def lift(self, values: Sequence[Element], sources: Sequence[ElementType]) -> list[Element]:
        """Convert elements of the operands to the types of the computation's values."""
        return [as_type(x, s, t) for x, s, t in zip(values, sources, self.values, strict=True)]

    def combine(
        self, e: Elements, accumulators: Sequence[Element], values: Sequence[Element]
    ) -> list[Element]:
        """Return the new accumulators."""
        if self.plain in ("add", "multiply") and self.accumulators[0].is_floating:
            a, b = e.together([accumulators[0], values[0]])
            assert isinstance(a, Value) and isinstance(b, Value)
            return [a + b if self.plain == "add" else a * b]
        combined = e.apply(self.computation, [*accumulators, *values])
        root = self.computation.root.shape
        results = root.tuple_shapes if root.is_tuple else (root,)
        return [
            as_type(x, r.element_type, t)
            for x, r, t in zip(combined, results, self.accumulators, strict=True)
        ]

    def blocks(self, e: Elements) -> Blocks | None:
        """Return how sums of blocks are added; None for a combiner that is no rounded sum."""
        kind = self.accumulators[0]
        if self.plain != "add" or not (kind.is_floating or kind.is_complex):
            return None
        zero = complex(-0.0, -0.0) if kind.is_complex else -0.0
        return Blocks([constant(e.function, kind, zero, e.lanes)], partial(self.combine, e))

    def lower(self, accumulators: Sequence[Element], targets: Sequence[ElementType]) -> list[Element]:
        """Round accumulators to the types of the results."""
        lowered: list[Element] = []
        for value, source, target in zip(accumulators, self.accumulators, targets, strict=True):
            if self.plain in ("add", "multiply") and source.is_floating and isinstance(value, Value):
                lowered.append(round_to(value, target) if target.bits < 32 else value)
            else:
                lowered.append(as_type(value, source, target))
        return lowered


def neutral_element(computation: HloComputation, element_type: ElementType) -> float | None:
    """Return the neutral element of a combiner that is one commutative operation; None for others."""
    root = computation.root
    if (
        sorted(o.opcode for o in root.operands) != ["parameter", "parameter"]
        or root.operands[0] is root.operands[1]
    ):
        return None
    if root.shape.element_type is not element_type or not root.operation.commutative:
        return None
    return root.operation.neutral_element(element_type)
