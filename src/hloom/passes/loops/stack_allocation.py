"""stack-allocation: omit the fill of arrays in which a loop writes every row before any row is read.

A scan stacks its outputs in an array of zeros. The loop overwrites all of them, so that only the memory is
needed. The zeros would be written once, and copied for each other output of the same shape.
"""

from __future__ import annotations

from hloom.analysis.instructions import splat
from hloom.analysis.loops import TupleLoop
from hloom.analysis.stacks import Stacks
from hloom.analysis.trip_count import trip_count
from hloom.ir.module import HloModule
from hloom.operations.control_flow import While
from hloom.operations.custom_call import ALLOCATION, CustomCall
from hloom.passes.facts import FLAT
from hloom.passes.fuel import consume
from hloom.passes.loops.while_loops import loops_of
from hloom.passes.pipeline import Pass
from hloom.passes.writing import Writer


class StackAllocation(Pass, name="stack-allocation", of=While, needs={FLAT}, settles=True):
    """``while (...) { a[t] = x }`` from ``a = broadcast(0)`` → from an ``AllocateBuffer``.

    Attributes:
        least: minimum size in bytes of an array.
    """

    least: int = 4096

    def run(self, module: HloModule) -> bool:
        """Replace the initial values of the stacks of every loop."""
        changed = False
        for loop in loops_of(module):
            changed |= self.allocate(loop)
        return changed

    def allocate(self, loop: TupleLoop) -> bool:
        """Replace the fills of arrays that one loop overwrites; return whether there were any."""
        count, state = trip_count(loop), loop.instruction.operands[0]
        if count is None or len(state.users) != 1:
            return False
        stacks = Stacks(loop, count)
        changed = False
        for element in range(loop.count):
            initial = loop.initial(element)
            is_fill = initial.shape.is_array and initial.shape.rank and splat(initial) is not None
            if not is_fill or initial.shape.byte_size < self.least or stacks.part_written(element) is None:
                continue
            if consume(f"%{loop.instruction.name}"):
                call = CustomCall(custom_call_target=ALLOCATION, custom_call_has_side_effect=False)
                state.replace_operand(element, Writer(loop.instruction).op(call, shape=initial.shape))
                changed = True
        return changed
