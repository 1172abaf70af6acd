"""Element rules of reductions and of reduce-window: a loop over the terms of each vector of results."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.analysis.instructions import operation_of
from hloom.codegen.accumulators import accumulated, spread
from hloom.codegen.combining import Combiner
from hloom.codegen.elements import LEAF_RULES, Elements, element_rule, leaf_rule
from hloom.codegen.llvm import Value
from hloom.codegen.types import Element
from hloom.ir.affine import Indices
from hloom.ir.indexing import Read
from hloom.ir.instruction import HloInstruction
from hloom.operations.reduction import Reduce
from hloom.operations.structure import GetTupleElement
from hloom.operations.window_reduction import ReduceWindow


@leaf_rule("reduce")
def reduce_leaves(e: Elements, instruction: HloInstruction, indices: Indices) -> list[Element]:
    """Emit the reduced values at a result index: loops over the reduced dimensions, values in registers."""
    accumulation = operation_of(instruction, Reduce).accumulation(e, instruction, indices)
    combiner = Combiner(instruction.called_computations[0])
    types = [o.shape.element_type for o in instruction.operands[: len(accumulation.initial)]]
    start = combiner.starts([spread(e, e.element(i, ())) for i in accumulation.initial], types)

    def step(accumulators: list[Element], terms: Sequence[Read[Value]]) -> list[Element]:
        return combiner.combine(e, accumulators, [e.read(term) for term in terms])

    return combiner.lower(accumulated(e, accumulation, start, step, combiner.blocks(e)), types)


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

    return combiner.lower(accumulated(e, accumulation, start, step, combiner.blocks(e)), types)


@element_rule("reduce", "reduce-window")
def _only_leaf(e: Elements, instruction: HloInstruction, indices: Indices) -> Element:
    return LEAF_RULES[instruction.opcode](e, instruction, indices)[0]


@element_rule("get-tuple-element")
def _get_tuple_element(e: Elements, instruction: HloInstruction, indices: Indices) -> Element:
    return e.leaves(instruction.operands[0], indices)[operation_of(instruction, GetTupleElement).index]
