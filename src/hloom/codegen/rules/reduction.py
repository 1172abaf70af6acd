"""Element rules of reduce: a loop over the reduced dimensions for each vector of results."""

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
from hloom.operations.reduction import Reduce
from hloom.operations.structure import GetTupleElement


@leaf_rule("reduce")
def reduce_leaves(e: Elements, instruction: HloInstruction, indices: Indices) -> list[Element]:
    """Emit the reduced values at a result index: loops over the reduced dimensions, values in registers."""
    accumulation = operation_of(instruction, Reduce).accumulation(e, instruction, indices)
    combiner = Combiner(instruction.called_computations[0])
    types = [o.shape.element_type for o in instruction.operands[: len(accumulation.initial)]]
    start = combiner.starts([spread(e, e.element(i, ())) for i in accumulation.initial], types)

    def step(accumulators: list[Element], terms: Sequence[Read[Value]]) -> list[Element]:
        return combiner.combine(e, accumulators, [e.read(term) for term in terms])

    return combiner.lower(accumulated(e, accumulation, start, step), types)


@element_rule("reduce")
def _reduce(e: Elements, instruction: HloInstruction, indices: Indices) -> Element:
    return reduce_leaves(e, instruction, indices)[0]


@element_rule("get-tuple-element")
def _get_tuple_element(e: Elements, instruction: HloInstruction, indices: Indices) -> Element:
    return e.leaves(instruction.operands[0], indices)[operation_of(instruction, GetTupleElement).index]
