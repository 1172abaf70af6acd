"""Decisions: how values came to be cut and which operations need collectives, recorded by the partitioner.

`hloom.sharding.reporting.explanations` puts them into words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from hloom.ir.instruction import HloInstruction
from hloom.ir.sharding_rule import Factor
from hloom.shape.shape import Shape
from hloom.sharding.planning.flow import Flow, Leaf
from hloom.sharding.tiling.tiling import Tiling

Cut: TypeAlias = "tuple[Factor, Tiling]"
"""A factor, and the tiling of its index."""

Decided: TypeAlias = "Decision | tuple[Decided, ...]"
"""The decision about an array or a token, or those about the elements of a tuple."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An assignment that was chosen.

    Attributes:
        cuts: the factors that are cut.
        bytes: what a device sends, by the model.
        other: the cuts and bytes of the next cheapest assignment; None if there is no other.
        staying: the operands whose halos are fetched from the tiles in which they are.
    """

    cuts: Sequence[Cut]
    bytes: float
    other: tuple[Sequence[Cut], float] | None = None
    staying: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a cut from value to value.

    Attributes:
        through: the instruction along whose factor it went.
        value, dimension: the class of the array that had the cut.
        is_elementwise: it was made in the first round, through operations that compute element by element.
    """

    through: HloInstruction
    value: Leaf
    dimension: int
    is_elementwise: bool


@dataclass(slots=True)
class Steps:
    """The spread of stated tilings.

    Attributes:
        flow: the classes of arrays.
        last: the last step of a cut to each dimension of a class.
        stated: the instruction that states the tiling of a class.
    """

    flow: Flow
    last: dict[tuple[Leaf, int], Step] = field(default_factory=dict[tuple[Leaf, int], Step])
    stated: dict[Leaf, HloInstruction] = field(default_factory=dict[Leaf, HloInstruction])

    def reach(self, i: HloInstruction, d: int) -> bool:
        """Return true if a dimension of an array was cut by propagation."""
        return (self.flow.class_of(i), d) in self.last

    def back(self, i: HloInstruction, d: int) -> tuple[HloInstruction, Sequence[Step]]:
        """Return the array that states a cut, and the steps from there to a dimension of an array."""
        at = (self.flow.class_of(i), d)
        steps: list[Step] = []
        while (step := self.last.get(at)) is not None:
            steps.append(step)
            at = (step.value, step.dimension)
        return self.stated.get(at[0], at[0][0]), steps[::-1]


@dataclass(slots=True, eq=False)
class Decision:
    """The cut of the value of an instruction.

    Attributes:
        instruction: the instruction, which may have been replaced since.
        shape: the shape of its whole value.
        tiling: the tiles of its value; None for a tuple.
        is_stated: the program states the tiling.
        operands: the decisions about its operands.
        have: the tiles of the operands before they were made to fit; None for those that are no arrays.
        choice: the factors that are cut; None for what computes nothing.
        target: the wanted tiles of its result; None if any will do.
        factors: all factors of the instruction.
        steps: how stated tilings spread in the program.
    """

    instruction: HloInstruction
    shape: Shape
    tiling: Tiling | None
    is_stated: bool = False
    operands: tuple[Decided | None, ...] = ()
    have: tuple[Tiling | None, ...] = ()
    choice: Choice | None = None
    target: Tiling | None = None
    factors: Sequence[Factor] = ()
    steps: Steps | None = None


@dataclass(frozen=True, slots=True)
class Purpose:
    """Why a value must have other tiles.

    Attributes:
        kind: "operand" of an operation; "annotation" of a value; "result" of the program; "loop" or
            "branches", whose results are cut in a given way; "region", at its border; "device", of a call on
            one device.
        by: the decision about the instruction that wants it; None for the program.
        operand: the number of the operand.
    """

    kind: str
    by: Decision | None = None
    operand: int = 0


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a collective exists.

    Attributes:
        purpose: see there; further kinds are "reduction" (of what devices have summed up, each of its tiles)
            and "halo" (elements of neighbors' tiles).
        value: the decision about the array that is resharded.
        have, want: its tiles before and after; None for reductions and halos.
    """

    purpose: Purpose
    value: Decided | None = None
    have: Tiling | None = None
    want: Tiling | None = None
