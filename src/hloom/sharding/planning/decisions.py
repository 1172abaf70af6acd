"""Records of the partitioner's decisions, from which `reporting/explanations.py` writes reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TypeAlias

from hloom.ir.instruction import HloInstruction
from hloom.ir.sharding_rule import Factor
from hloom.records import dataclass
from hloom.shape.shape import Shape
from hloom.sharding.planning.value_classes import Leaf, ValueClasses
from hloom.sharding.tiling.tiling import Tiling

ShardedFactor: TypeAlias = "tuple[Factor, Tiling]"
"""A factor of an operation, and its tiling, of rank 1."""

Decisions: TypeAlias = "Decision | tuple[Decisions, ...]"
"""How an array or a token is sharded and why; for a tuple, the same for each element, nested."""


@dataclass(frozen=True, slots=True)
class FactorAssignment:
    """The choice of how an operation is divided among devices: which of its factors are sharded, and how.

    Factors are the indices of an operation, such as its batch and contracting dimensions.

    Attributes:
        sharded: the sharded factors, each with its tiling of rank 1.
        bytes: the bytes that a device sends with this choice, by the cost model.
        runner_up: the sharded factors and the bytes of the second cheapest choice; None if there is only one.
        unmoved: the indices of the operands that are not resharded first: devices fetch the elements that
            they need directly from the current tiles.
    """

    sharded: Sequence[ShardedFactor]
    bytes: float
    runner_up: tuple[Sequence[ShardedFactor], float] | None = None
    unmoved: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class PropagationStep:
    """One step of sharding propagation: a dimension of an array takes over the sharding of another dimension.

    Attributes:
        through: the instruction that relates the two dimensions: one index of it ranges over both.
        value, dimension: the array and the dimension from which the sharding comes. The array stands for all
            arrays that must share its tiling.
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
        value_classes: the program's value classes, sets of arrays that must share one tiling.
        last: the step that sharded a dimension, by (representative of a value class, dimension number).
        annotated: the instruction with the annotation, by representative of each annotated value class.
    """

    value_classes: ValueClasses
    last: dict[tuple[Leaf, int], PropagationStep] = field(
        default_factory=dict[tuple[Leaf, int], PropagationStep]
    )
    annotated: dict[Leaf, HloInstruction] = field(default_factory=dict[Leaf, HloInstruction])

    def is_propagated(self, i: HloInstruction, d: int) -> bool:
        """Return true if propagation, not an annotation, sharded dimension ``d`` of the array ``i``."""
        return (self.value_classes.class_of(i), d) in self.last

    def source(self, i: HloInstruction, d: int) -> tuple[HloInstruction, Sequence[PropagationStep]]:
        """Return the annotated array from which propagation carried a sharding to dimension ``d`` of ``i``.

        The second result has the steps from that array to ``i``, in order; empty if propagation did not
        shard the dimension.
        """
        at = (self.value_classes.class_of(i), d)
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
        operands: the same for each operand.
        operand_tilings: the tilings of the operands before resharding; None for operands that are not arrays.
        assignment: the factors (indices of the operation) that are sharded, chosen by cost; None if nothing
            was chosen, as for parameters and loops.
        target: the annotated or else propagated tiling of the result, which influenced that choice; None if
            the result has neither.
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
        kind: what requires the new tiling: "operand" (an operation, of its operand), "annotation", "result"
            (the result of the program), "loop" (a loop, of its state), "branches" (a conditional), "region"
            (the border of a manual region), or "device" (a call that runs on one device).
        by: the sharding of the instruction that requires it; None for the program's result.
        operand: the index of the operand that is resharded.
    """

    kind: str
    by: Decision | None = None
    operand: int = 0


@dataclass(frozen=True, slots=True)
class Cause:
    """The reason for which the partitioner emitted a collective.

    Attributes:
        purpose: what needs the collective; its kind may also be "reduction" (of partial results) or "halo"
            (exchange of neighboring elements).
        value: how the resharded array is sharded, and why; None for reductions and halos.
        before, after: the tilings of the array before and after resharding; None for reductions and halos.
    """

    purpose: Purpose
    value: Decisions | None = None
    before: Tiling | None = None
    after: Tiling | None = None
