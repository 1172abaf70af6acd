"""Element rules of reduce: a loop over the reduced dimensions for each vector of results."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hloom.analysis.instructions import operation_of
from hloom.codegen.accumulators import nested_reduction, spread
from hloom.codegen.combining import Combiner
from hloom.codegen.elements import Elements, element_rule, leaf_rule
from hloom.codegen.types import Element
from hloom.ir.affine import Index, Indices, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.structure import GetTupleElement
from hloom.plan.index_maps import reduced_operand_indices, reduced_sizes


@leaf_rule("reduce")
def reduce_leaves(e: Elements, instruction: HloInstruction, indices: Indices) -> list[Element]:
    """Emit the reduced values at a result index: loops over the reduced dimensions, values in registers."""
    half = len(instruction.operands) // 2
    operands, initial = instruction.operands[:half], instruction.operands[half:]
    sizes = reduced_sizes(instruction)
    variables = [Variable(size, "r") for size in sizes]
    combiner = Combiner(instruction.called_computations[0])
    types = [o.shape.element_type for o in operands]
    start = combiner.starts([spread(e, e.element(i, ())) for i in initial], types)

    def round_at(accumulators: list[Element], place: Sequence[Index]) -> list[Element]:
        source = reduced_operand_indices(instruction, indices, place)
        return combiner.combine(e, accumulators, [e.element(o, source) for o in operands])

    def round_(accumulators: list[Element]) -> list[Element]:
        return round_at(accumulators, [Index.of(v) for v in variables])

    if e.unrolls:
        made = start
        for place in itertools.product(*map(range, sizes)):
            made = round_at(made, [Index(number) for number in place])
        return combiner.lower(made, types)
    return combiner.lower(nested_reduction(e, variables, start, round_), types)


@element_rule("reduce")
def _reduce(e: Elements, instruction: HloInstruction, indices: Indices) -> Element:
    return reduce_leaves(e, instruction, indices)[0]


@element_rule("get-tuple-element")
def _get_tuple_element(e: Elements, instruction: HloInstruction, indices: Indices) -> Element:
    return e.leaves(instruction.operands[0], indices)[operation_of(instruction, GetTupleElement).index]
