"""while-loop-gather-code-motion: compute functions of a table's elements before a loop looks them up.

A binary search compares, in every step, a number with an element of a sorted table, in a total order: NaNs
become one NaN, -0 becomes 0, and bits become integers of the same order. All this is a function of the
elements of the table alone. The loop then looks up integers and compares them.
"""

from __future__ import annotations

from dataclasses import field

from hloom.analysis.instructions import operation_of
from hloom.analysis.loops import TupleLoop
from hloom.analysis.values import is_elementwise_bitcast
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.arithmetic import ShiftRightArithmetic, ShiftRightLogical, Xor
from hloom.operations.comparison import Compare
from hloom.operations.control_flow import While
from hloom.operations.conversion import BitcastConvert
from hloom.operations.gather_scatter import Gather
from hloom.operations.movement import Broadcast
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Constant
from hloom.passes.facts import FLAT
from hloom.passes.fuel import consume
from hloom.passes.loops.while_loop_invariant_code_motion import invariants
from hloom.passes.loops.while_loops import loops_of
from hloom.passes.pipeline import Pass
from hloom.passes.simplify.dead_code import remove_dead
from hloom.passes.writing import Inserter, Writer
from hloom.records import dataclass
from hloom.shape import element_type as et
from hloom.shape.shape import Shape

ORDERED = {et.F16: et.S16, et.BF16: et.S16, et.F32: et.S32, et.F64: et.S64}
"""Floats with integers of the same width."""


class WhileLoopGatherCodeMotion(Pass, name="while-loop-gather-code-motion", of=While, needs={FLAT}):
    """``f(gather(table, i))`` in a loop, with an invariant table → ``gather(f(table), i)``.

    The table has at most as many elements as are gathered. Loop-invariant code motion hoists ``f(table)``.
    """

    def run(self, module: HloModule) -> bool:
        """Move functions to the tables of every loop."""
        changed = False
        for loop in loops_of(module):
            invariant = invariants(loop)
            moved = [self.move(i, invariant) for i in _lookups(loop, invariant)]
            if any(moved):
                remove_dead(loop.body)
                changed = True
        return changed

    def move(self, gather: HloInstruction, invariant: set[HloInstruction]) -> bool:
        """Compute what depends on the elements of one gather alone before it is gathered."""
        function = TableFunction(gather, invariant)
        for comparison in function.ordered_comparisons():
            if consume(f"%{comparison.name}"):
                _compare_keys(comparison)
                function = TableFunction(gather, invariant)
        last = function.last
        if last is None or last is gather or not consume(f"%{gather.name}"):
            return False
        w = Writer(last)
        table = function.of_table(w)
        looked_up = w.op(gather.operation, table, gather.operands[1])
        w.replace(w.reshape(looked_up, last.shape.dimensions))
        return True


def _lookups(loop: TupleLoop, invariant: set[HloInstruction]) -> list[HloInstruction]:
    """Return the gathers of a loop that read an invariant table with fewer elements."""
    return [
        i
        for i in loop.body.post_order()
        if isinstance(i.operation, Gather)
        and i not in invariant
        and i.operands[0] in invariant
        and i.operands[0].shape.element_count <= i.shape.element_count
        and not i.has_control_dependencies
        and i.shape.is_static
    ]


@dataclass(slots=True, eq=False)
class TableFunction:
    """The instructions of a loop's body whose elements are functions of one gathered element.

    Attributes:
        gather: the gather.
        invariant: the loop-invariant instructions; members may read scalars among them.
        members: the gather, then the instructions, operands first.
    """

    gather: HloInstruction
    invariant: set[HloInstruction]
    members: dict[HloInstruction, None] = field(default_factory=dict[HloInstruction, None])

    def __post_init__(self) -> None:
        self.members[self.gather] = None
        assert self.gather.parent is not None
        for i in self.gather.parent.post_order():
            if any(o in self.members for o in i.operands) and self._joins(i):
                self.members[i] = None

    def _joins(self, i: HloInstruction) -> bool:
        if i.has_control_dependencies or i.is_root:
            return False
        if not (i.operation.elementwise or isinstance(i.operation, Reshape) or is_elementwise_bitcast(i)):
            return False
        return all(o in self.members or self._is_scalar(o) for o in i.operands)

    def _is_scalar(self, o: HloInstruction) -> bool:
        scalar = o.operands[0] if isinstance(o.operation, Broadcast) else o
        return not scalar.shape.rank and (scalar in self.invariant or isinstance(scalar.operation, Constant))

    @property
    def last(self) -> HloInstruction | None:
        """The only member that others use; None if there are several."""
        used = [m for m in self.members if any(user not in self.members for user in m.users)]
        return used[0] if len(used) == 1 else None

    def ordered_comparisons(self) -> list[HloInstruction]:
        """Return the comparisons, in the total order of floats, of a member with something else."""
        users = dict.fromkeys(u for m in self.members for u in m.users if u not in self.members)
        return [
            u
            for u in users
            if isinstance(u.operation, Compare)
            and u.operation.comparison_type == "TOTALORDER"
            and u.operands[0].shape.element_type in ORDERED
        ]

    def of_table(self, w: Inserter) -> HloInstruction:
        """Add the function of the table's elements."""
        dimensions = self.gather.operands[0].shape.dimensions
        copies = {self.gather: self.gather.operands[0]}
        for i in self.members:
            if isinstance(i.operation, Reshape):
                copies[i] = copies[i.operands[0]]
            elif i is not self.gather:
                operands = [copies.get(o) or self._wide(w, o, dimensions) for o in i.operands]
                shape = Shape(i.shape.element_type, dimensions)
                copies[i] = w.copy(i, operands, shape)
        assert self.last is not None
        return copies[self.last]

    def _wide(self, w: Inserter, scalar: HloInstruction, dimensions: tuple[int, ...]) -> HloInstruction:
        return w.broadcast(scalar.operands[0], dimensions) if scalar.shape.rank else scalar


def _compare_keys(comparison: HloInstruction) -> None:
    """Compare integers in place of floats in their total order."""
    w = Writer(comparison)
    a, b = (_total_order_key(w, o) for o in comparison.operands)
    w.replace(w.compare(a, operation_of(comparison, Compare).direction, b))


def _total_order_key(w: Inserter, x: HloInstruction) -> HloInstruction:
    """Add the integers in the total order of floats: of negative ones all bits but the sign are flipped."""
    kind = ORDERED[x.shape.element_type]
    bits = w.op(BitcastConvert(), x, shape=Shape(kind, x.shape.dimensions))
    signs = w.op(ShiftRightArithmetic(), bits, w.full(kind.bits - 1, bits.shape))
    flipped = w.op(ShiftRightLogical(), signs, w.full(1, bits.shape))
    return w.op(Xor(), bits, flipped)
