"""Records of the partitioner's decisions, from which `reporting/explanations.py` writes reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TypeAlias

from hloom.ir.instruction import HloInstruction
from hloom.ir.sharding_rule import Factor
from hloom.records import dataclass
from hloom.shape.shape import Shape
from hloom.sharding.planning.flow import Flow, Leaf
from hloom.sharding.tiling.tiling import Tiling

ShardedFactor: TypeAlias = "tuple[Factor, Tiling]"
"""A factor of an operation, and its tiling, of rank 1."""

Decisions: TypeAlias = "Decision | tuple[Decisions, ...]"
"""The decision about an array or a token, or those about the elements of a tuple, nested."""


@dataclass(frozen=True, slots=True)
class FactorAssignment:
    """The choice of how devices share the work of an operation: which of its factors are sharded, and how.

    Factors are the indices of an operation, such as its batch and contracting dimensions.

    Attributes:
        sharded: the sharded factors, each with its tiling of rank 1.
        bytes: the bytes that a device sends with this choice, by the cost model.
        runner_up: the sharded factors and the bytes of the second cheapest choice; None if there is only one.
        unmoved: the numbers of the operands that are not resharded first: devices fetch the elements that
            they need directly from the current tiles.
    """

    sharded: Sequence[ShardedFactor]
    bytes: float
    runner_up: tuple[Sequence[ShardedFactor], float] | None = None
    unmoved: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class PropagationStep:
    """One step of sharding propagation: an instruction carries the sharding of one dimension to another.

    Attributes:
        through: the instruction, of which one index ranges over both dimensions.
        value, dimension: the dimension from which the sharding comes, as value class (a set of arrays that
            share one tiling) and dimension number.
        is_elementwise: True if the step belongs to the first pass, through elementwise operations only.
    """

    through: HloInstruction
    value: Leaf
    dimension: int
    is_elementwise: bool


@dataclass(slots=True)
class PropagationTrace:
    """The steps of sharding propagation in a program.

    Attributes:
        flow: the value classes, sets of arrays that share one tiling.
        last: the step that sharded a dimension, by (value class, dimension number).
        annotated: for each annotated value class, the instruction that has the annotation.
    """

    flow: Flow
    last: dict[tuple[Leaf, int], PropagationStep] = field(
        default_factory=dict[tuple[Leaf, int], PropagationStep]
    )
    annotated: dict[Leaf, HloInstruction] = field(default_factory=dict[Leaf, HloInstruction])

    def reaches(self, i: HloInstruction, d: int) -> bool:
        """Return true if propagation, not an annotation, sharded dimension ``d`` of the array ``i``."""
        return (self.flow.class_of(i), d) in self.last

    def source(self, i: HloInstruction, d: int) -> tuple[HloInstruction, Sequence[PropagationStep]]:
        """Return the annotated array from which propagation carried a sharding to dimension ``d`` of ``i``.

        Also returns the steps from that array to ``i``, in order; none if the dimension was not sharded by
        propagation.
        """
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
        instruction: the instruction, which partitioning may have replaced.
        shape: the global shape of the value.
        tiling: the tiling of the value; None for a tuple.
        is_annotated: True if the program states the tiling.
        operands: the decisions about the operands.
        operand_tilings: the tilings of the operands before resharding; None for operands that are not arrays.
        assignment: the factors (indices of the operation) that are sharded; None if the instruction computes
            nothing.
        target: the preferred tiling of the result; None for no preference.
        factors: all factors of the instruction.
        trace: the propagation steps of the program.
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
        return self.assignment.sharded if self.assignment is not None else ()


@dataclass(frozen=True, slots=True)
class Purpose:
    """The reason for which a value is resharded.

    Attributes:
        kind: "operand" of an operation; "annotation" of a value; "result" of the program; "loop", state of a
            loop; "branches" of a conditional; "region", the border of a manual region; "device", a call on
            one device.
        by: the decision about the instruction that uses the value; None for the program's result.
        operand: the number of the operand that is resharded.
    """

    kind: str
    by: Decision | None = None
    operand: int = 0


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of a collective that the partitioner wrote.

    Attributes:
        purpose: what needs the collective; besides the kinds of resharding, "reduction" (of partial results)
            and "halo" (exchange of neighboring elements).
        value: the decision about the resharded array.
        before, after: the tilings of the array before and after resharding; None for reductions and halos.
    """

    purpose: Purpose
    value: Decisions | None = None
    before: Tiling | None = None
    after: Tiling | None = None
