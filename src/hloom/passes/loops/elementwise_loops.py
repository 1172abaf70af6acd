"""Loops whose carried arrays depend on themselves at the same index only, and what may join their kernels."""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence

from hloom.analysis.loops import TupleLoop, element_number, picks
from hloom.analysis.values import is_elementwise_bitcast
from hloom.ir.affine import Index, Indices, Variable
from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import ElementCost, Family
from hloom.operations.gather_scatter import Gather
from hloom.operations.movement import Broadcast, Pad
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Constant, Iota
from hloom.plan.evaluations import Evaluations


def index_in(dimensions: tuple[int, ...]) -> Indices:
    """Return an index of variables."""
    return tuple(Index.of(Variable(size)) for size in dimensions)


def evaluations_of(loop: TupleLoop, index: Indices) -> Evaluations | None:
    """Return the elements that an iteration evaluates for the elements of carried arrays at an index.

    None if elements of the next state do not depend on carried arrays at their own index only.
    """
    body = loop.body.post_order()
    if not all(_may_join(i, loop) for i in body):
        return None
    arrays = loop.carried_arrays
    evaluations = Evaluations()
    for number, following in enumerate(loop.following):
        if number in arrays or not following.shape.rank:
            evaluations.request(following, index if number in arrays else ())
    for i in reversed(body):
        if i is not loop.body.root and i is not loop.state and element_number(i, loop.state) is None:
            evaluations.evaluate(i)
    carried = [pick for number in arrays for pick in picks(loop.state, number)]
    return evaluations if all(evaluations.reads_only(pick, index) for pick in carried) else None


def _may_join(i: HloInstruction, loop: TupleLoop) -> bool:
    """Return whether an instruction of a loop's body may be computed element by element in a kernel."""
    if i.called_computations:
        return False
    if i is loop.state or i is loop.body.root or element_number(i, loop.state) is not None:
        return not i.has_control_dependencies
    return _is_computed_by_element(i)


def _is_computed_by_element(i: HloInstruction) -> bool:
    """Return whether elements follow from those of operands, at their index or others, or are constants."""
    if i.has_control_dependencies or i.has_side_effect or not (i.shape.is_array and i.shape.is_static):
        return False
    operation = i.operation
    movement = operation.family is Family.MOVEMENT and operation.element_cost <= ElementCost.INDEXED
    moves = movement and not operation.updates_operand and not isinstance(operation, Pad)
    return operation.elementwise or moves or is_elementwise_bitcast(i) or isinstance(operation, Constant)


class Surroundings:
    """The instructions around a loop that are fused with it, and the loop.

    Users of the loop join if they read its results at the index of the kernel; gathers among them read arrays
    that do not depend on the loop. Elementwise operands of the loop and of these users join if nothing else
    uses them. Their values stay in registers.

    Attributes:
        members: all instructions, operands first.
        results: the members that others use.
    """

    def __init__(self, loop: TupleLoop, dimensions: tuple[int, ...], most: int) -> None:
        self.loop, self.dimensions = loop, dimensions
        self.index = index_in(dimensions)
        assert loop.instruction.parent is not None
        self.order = loop.instruction.parent.post_order()
        self.later = {loop.instruction}
        for i in self.order:
            if any(o in self.later for o in i.operands):
                self.later.add(i)
        self.picked = [user for number in loop.carried_arrays for user in picks(loop.instruction, number)]
        after = self._after()
        if not self._fits(after, most):
            after = []
        self._assign(after)

    def _assign(self, after: Sequence[HloInstruction]) -> None:
        """Make members of the loop, of what is after it, and of the operands of both."""
        computed = [*self.picked, *after]
        members = {*computed, self.loop.instruction, self.loop.instruction.operands[0]}
        members |= self._operands(members)
        self.members = {i: None for i in self.order if i in members}
        self.results = [i for i in computed if _is_used_outside(i, members)] or self.picked[:1]

    def _fits(self, after: Sequence[HloInstruction], most: int) -> bool:
        """Return whether the kernel reads results of the loop at their own index only, and stores no more."""
        self._assign(after)
        stored = [i for i in self.results if not any(user.is_root for user in i.users)]
        evaluations = Evaluations()
        for result in self.results:
            evaluations.request(result, self.index)
        for i in reversed(self.members):
            if i not in self.picked and i is not self.loop.instruction:
                evaluations.evaluate(i)
        once = all(evaluations.reads_only(pick, self.index) for pick in self.picked)
        return once and len(self.members) <= most and len(stored) <= len(self.picked)

    def _after(self) -> list[HloInstruction]:
        """Return what is computed from the results of the loop."""
        joined = dict.fromkeys(self.picked)
        for i in self.order:
            reads = [o for o in i.operands if o in self.later]
            known = i.operation.elementwise or isinstance(i.operation, Reshape | Gather)
            if reads and all(o in joined for o in reads) and known and _is_computed_by_element(i):
                joined[i] = None
        after = [i for i in joined if i not in self.picked]
        while leaving := [i for i in after if not self._stays(i, joined)]:
            for i in leaving:
                del joined[i]
            after = [i for i in after if i in joined]
        return after

    def _stays(self, i: HloInstruction, joined: Container[HloInstruction]) -> bool:
        """Return whether an instruction reads what has joined, and is a result only if of the loop's size."""
        if any(o in self.later and o not in joined for o in i.operands):
            return False
        return i.shape.dimensions == self.dimensions or not _is_used_outside(i, joined)

    def _operands(self, members: Collection[HloInstruction]) -> set[HloInstruction]:
        """Return the operands of members, transitively, that are computed in the kernel."""
        elsewhere = self._read_elsewhere() | {
            i.operands[0] for i in members if isinstance(i.operation, Gather)
        }
        joined: set[HloInstruction] = set()
        for i in reversed(self.order):
            users = [user in members or user in joined for user in i.users]
            if i in members or not any(users):
                continue
            alone = all(users) and not i.is_root and i not in elsewhere and i not in self.later
            if _is_source(i) or (alone and i.shape.dimensions == self.dimensions and _is_in_place(i)):
                joined.add(i)
        return joined

    def _read_elsewhere(self) -> set[HloInstruction]:
        """Return the invariant arrays that an iteration reads at other indices than its own."""
        loop, evaluations = self.loop, evaluations_of(self.loop, self.index)
        assert evaluations is not None
        carried = loop.carried_arrays
        return {
            loop.initial(number)
            for number in range(loop.count)
            if number not in carried
            and not all(evaluations.reads_only(pick, self.index) for pick in picks(loop.state, number))
        }


def _is_in_place(i: HloInstruction) -> bool:
    """Return whether elements are computed from those of operands at the same index, or are repeated ones."""
    same = i.operation.elementwise or isinstance(i.operation, Broadcast) or is_elementwise_bitcast(i)
    return same and _is_computed_by_element(i)


def _is_source(i: HloInstruction) -> bool:
    """Return whether a value is free to compute again: an iota, a scalar constant, or an array of it."""
    constant = i.operands[0] if isinstance(i.operation, Broadcast) else i
    return isinstance(i.operation, Iota) or (
        isinstance(constant.operation, Constant) and not constant.shape.rank
    )


def _is_used_outside(i: HloInstruction, members: Container[HloInstruction]) -> bool:
    return i.is_root or any(user not in members for user in i.users)
