"""Decisions of the partitioner: why values are sharded as they are, and why collectives are needed.

`reporting/explanations.py` puts them into words.
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

ShardedFactor: TypeAlias = "tuple[Factor, Tiling]"
"""A factor of an operation, and the tiling of rank 1 of its index."""

Decisions: TypeAlias = "Decision | tuple[Decisions, ...]"
"""The decision about an array or a token, or the decisions about the elements of a tuple."""


@dataclass(frozen=True, slots=True)
class FactorAssignment:
    """The sharded factors of an operation.

    Attributes:
        sharded: the factors that are sharded.
        bytes: sent by a device, according to the cost model.
        runner_up: factors and bytes of the second cheapest assignment; None if there is only one.
        unmoved: operands whose halos are fetched from their current tiles, without resharding.
    """

    sharded: Sequence[ShardedFactor]
    bytes: float
    runner_up: tuple[Sequence[ShardedFactor], float] | None = None
    unmoved: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class PropagationStep:
    """The propagation of a sharding from one value to another.

    Attributes:
        through: the instruction whose factor connects them.
        value, dimension: the source: the class of an array, and its dimension.
        is_elementwise: made in the first pass, through elementwise operations.
    """

    through: HloInstruction
    value: Leaf
    dimension: int
    is_elementwise: bool


@dataclass(slots=True)
class PropagationTrace:
    """The steps that propagated annotations.

    Attributes:
        flow: the classes of arrays.
        last: the step that sharded each dimension of a class.
        annotated: the instruction with the annotation of a class.
    """

    flow: Flow
    last: dict[tuple[Leaf, int], PropagationStep] = field(
        default_factory=dict[tuple[Leaf, int], PropagationStep]
    )
    annotated: dict[Leaf, HloInstruction] = field(default_factory=dict[Leaf, HloInstruction])

    def reaches(self, i: HloInstruction, d: int) -> bool:
        """Return true if propagation sharded a dimension of an array."""
        return (self.flow.class_of(i), d) in self.last

    def source(self, i: HloInstruction, d: int) -> tuple[HloInstruction, Sequence[PropagationStep]]:
        """Return the annotated array from which a dimension got its sharding, and the steps from there."""
        at = (self.flow.class_of(i), d)
        steps: list[PropagationStep] = []
        while (step := self.last.get(at)) is not None:
            steps.append(step)
            at = (step.value, step.dimension)
        return self.annotated.get(at[0], at[0][0]), steps[::-1]


@dataclass(slots=True, eq=False)
class Decision:
    """How the value of an instruction is sharded, and why.

    Attributes:
        instruction: may have been replaced since.
        shape: the global shape.
        tiling: None for a tuple.
        is_annotated: the program states the tiling.
        operands: the decisions about the operands.
        operand_tilings: before resharding; None for operands that are not arrays.
        assignment: None if the instruction computes nothing.
        target: the preferred tiling of the result; None if any will do.
        factors: all factors of the instruction.
        trace: how annotations propagated through the program.
    """

    instruction: HloInstruction
    shape: Shape
    tiling: Tiling | None
    is_annotated: bool = False
    operands: tuple[Decisions | None, ...] = ()
    operand_tilings: tuple[Tiling | None, ...] = ()
    assignment: FactorAssignment | None = None
    target: Tiling | None = None
    factors: Sequence[Factor] = ()
    trace: PropagationTrace | None = None

    @property
    def sharded(self) -> Sequence[ShardedFactor]:
        """The sharded factors."""
        return self.assignment.sharded if self.assignment is not None else ()


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a value is resharded for.

    Attributes:
        kind: "operand" of an operation; "annotation" of a value; "result" of the program; "loop" or
            "branches", whose values have one tiling; "region", at its border; "device", a call on one device.
        by: the decision about the instruction that needs it; None for the program's result.
        operand: the operand number.
    """

    kind: str
    by: Decision | None = None
    operand: int = 0


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a collective exists.

    Attributes:
        purpose: its kind may also be "reduction" (of partial results) or "halo" (elements of other tiles).
        value: the decision about the resharded array.
        before, after: its tilings; None for reductions and halos.
    """

    purpose: Purpose
    value: Decisions | None = None
    before: Tiling | None = None
    after: Tiling | None = None
