"""Scatters on terms: an element is combined with the updates whose position is its index.

If updates may be combined in any order without rounding, an element is combined with their total. Otherwise
it is a function of itself and of the sequence of all updates, in which those of other elements are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.gather_scatter import Scatter
from hloom.proofs.relations.elements import ElementTerms
from hloom.proofs.relations.terms import Term, by_cases
from hloom.records import dataclass

SKIPPED: Final = ("skipped",)
"""The head of an update that is none of an element."""


@dataclass(frozen=True)
class ScatteredUpdate:
    """The updates of an element: a term for all values of variables, neutral for those of other elements.

    Attributes:
        variables: the variables on which the updates of an element depend, in the order of the updates.
        term: the update.
    """

    variables: Sequence[Variable]
    term: Term


def joined_updates(elements: ElementTerms, i: HloInstruction, operation: Scatter) -> ScatteredUpdate:
    """Return the updates of each element of one or several arrays; those of other elements are skipped."""
    skipped = elements.terms.close(SKIPPED, ())
    return scattered_update(elements, i, operation, skipped)


def scattered_update(
    elements: ElementTerms, i: HloInstruction, operation: Scatter, neutral: Term
) -> ScatteredUpdate:
    """Return the updates of each element of a scatter; those of several arrays are one term."""
    count = len(i.operands) // 2
    operand, indices, updates = (i.operands[n].shape for n in (0, count, count + 1))
    axes = elements.terms.axes(operand.dimensions)
    window = sorted(operation.update_window_dims)
    without = (*operation.inserted_window_dims, *operation.input_batching_dims)
    offset_of = dict(zip([d for d in range(operand.rank) if d not in without], window, strict=True))
    variables = [Variable(size, "b") for size in updates.dimensions]
    update = list(map(Index.of, variables))
    conditions: list[Index] = []
    for d, u in offset_of.items():
        if d not in operation.scatter_dims_to_operand_dims:
            update[u] = axes[d]
            conditions.append(axes[d] * -1 + (updates.dimensions[u] - 1))
    batch = [update[u] for u in range(updates.rank) if u not in window]
    for d, axis in zip(operation.input_batching_dims, operation.scatter_indices_batching_dims, strict=True):
        place = batch[axis - (axis > operation.index_vector_dim)]
        conditions += [axes[d] - place, place - axes[d]]
    starts: list[Term] = []
    for number in range(len(operation.scatter_dims_to_operand_dims)):
        vector = list(batch)
        if operation.index_vector_dim < indices.rank:
            vector.insert(operation.index_vector_dim, Index(number))
        starts.append(elements.element_at(i.operands[count], tuple(vector)))
    parts = [elements.element_at(o, tuple(update)) for o in i.operands[count + 1 :]]
    term = parts[0] if count == 1 else elements.terms.close(("updates",), parts)

    def placed(values: Sequence[Term]) -> Term:
        inside = list(conditions)
        for value, d in zip(values, operation.scatter_dims_to_operand_dims, strict=True):
            start = elements.laws.index_of(value, indices.element_type)
            size = updates.dimensions[offset_of[d]] if d in offset_of else 1
            position = start + update[offset_of[d]] if d in offset_of else start
            inside += [
                start,
                start * -1 + (operand.dimensions[d] - size),
                axes[d] - position,
                position - axes[d],
            ]
        return elements.terms.every(inside, term, neutral)

    used = [v for v in variables if any(v is term[0] for index in update for term in index.terms)]
    return ScatteredUpdate(used, by_cases(elements.terms, starts, placed))
