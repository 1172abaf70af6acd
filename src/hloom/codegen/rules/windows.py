"""Element rules of reduce-window: a loop over the window for every vector of results."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.analysis.instructions import operation_of
from hloom.codegen.accumulators import accumulated, spread
from hloom.codegen.combining import Combiner
from hloom.codegen.elements import Elements, element_rule, leaf_rule
from hloom.codegen.llvm import Value
from hloom.codegen.types import Element
from hloom.ir.affine import Indices
from hloom.ir.indexing import Read
from hloom.ir.instruction import HloInstruction
from hloom.operations.window_reduction import ReduceWindow


@leaf_rule("reduce-window")
def reduce_window_leaves(e: Elements, instruction: HloInstruction, indices: Indices) -> list[Element]:
    """Emit the reduced window at a result index; positions outside the base count as the initial value."""
    accumulation = operation_of(instruction, ReduceWindow).accumulation(e, instruction, indices)
    combiner = Combiner(instruction.called_computations[0])
    types = [o.shape.element_type for o in accumulation.initial]
    inits = [spread(e, e.element(i, ())) for i in accumulation.initial]
    start, fills = combiner.starts(inits, types), combiner.lift(inits, types)

    def step(accumulators: list[Element], terms: Sequence[Read[Value]]) -> list[Element]:
        if not terms:
            return combiner.combine(e, accumulators, fills)
        kinds = [term.instruction.shape.element_type for term in terms]
        lifted = combiner.lift([e.read(term) for term in terms], kinds)
        inside = terms[0].condition
        if inside is not None:
            lifted = [e.choose(inside, x, fill) for x, fill in zip(lifted, fills, strict=True)]
        return [spread(e, x) for x in combiner.combine(e, accumulators, lifted)]

    return combiner.lower(accumulated(e, accumulation, start, step), types)


@element_rule("reduce-window")
def _reduce_window(e: Elements, instruction: HloInstruction, indices: Indices) -> Element:
    return reduce_window_leaves(e, instruction, indices)[0]
