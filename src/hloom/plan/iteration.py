"""The choice of a kernel's iteration space by its accesses."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.ir.affine import Index, Indices, linearize
from hloom.ir.indexing import Relocation
from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import ElementCost, Family
from hloom.plan.accesses import Accesses
from hloom.plan.space import Space, merge_loops, split_space
from hloom.shape.shape import Shape


def is_nested(i: HloInstruction) -> bool:
    """Return true if computing an element takes a loop over operand elements, as in reductions and dots."""
    return i.operation.element_cost is ElementCost.COMBINED and i.operation.family is not Family.CONTROL


def result_shapes(roots: Sequence[HloInstruction]) -> list[Shape]:
    """Return the shapes of the results: of several roots, or of the leaves of a tuple-shaped root."""
    if roots[0].shape.is_tuple:
        return list(roots[0].shape.tuple_shapes)
    return [root.shape for root in roots]


def accesses_of(
    inputs: Sequence[HloInstruction], roots: Sequence[HloInstruction], indices: Indices
) -> Accesses:
    """Return the accesses of a kernel for the elements of its results at an index."""
    accesses = Accesses([i for i in inputs if i.shape.is_array])
    accesses.results(roots, indices)
    return accesses


def unmerged_space(
    inputs: Sequence[HloInstruction], roots: Sequence[HloInstruction], members: Sequence[HloInstruction]
) -> Space:
    """Return the iteration space of a kernel, split where its members require, without merged loops."""
    arrays = [i for i in (*members, *inputs) if i.shape.is_array]
    shapes = [i.operation.loop_dimensions(i.shape) for i in arrays]
    return split_space(result_shapes(roots)[0].dimensions, shapes)


def planned_space(
    inputs: Sequence[HloInstruction],
    roots: Sequence[HloInstruction],
    members: Sequence[HloInstruction],
    of_rows: Sequence[HloInstruction] = (),
) -> Space:
    """Return the iteration space of a kernel, its loops merged where all accesses permit.

    ``of_rows``: results that have one element for each row of the others.
    """
    space = unmerged_space(inputs, roots, members)
    accesses = accesses_of(inputs, roots, space.indices)
    for root in of_rows:
        accesses.element(root, (*space.indices[:-1], Index(0))[: root.shape.rank])
    written = linearize(space.indices, result_shapes(roots)[0].dimensions)
    return merge_loops(space, [*accesses.linear, written], accesses.pinned)


def steady_elements(accesses: Accesses, space: Space) -> list[tuple[HloInstruction, Indices]]:
    """Return the elements, as (instruction, indices), that are invariant in the innermost loop."""
    return [
        (instruction, indices)
        for instruction, indices in accesses.requests
        if instruction.shape.is_array
        and not is_nested(instruction)
        and all(_is_steady(index, space) for index in indices)
    ]


def steady_relocations(accesses: Accesses, space: Space) -> list[Relocation]:
    """Return the relocated indices that are invariant in the innermost loop."""
    return [relocation for relocation in accesses.relocations if _is_steady(relocation[0], space)]


def _is_steady(index: Index, space: Space) -> bool:
    return all(variable in space.variables[:-1] for variable, _ in index.terms)


def read_where_written(inputs: Sequence[HloInstruction], root: HloInstruction) -> set[HloInstruction]:
    """Return the inputs that a kernel reads only at the index of the element that it writes."""
    space = unmerged_space(inputs, [root], [root])
    accesses = accesses_of(inputs, [root], space.indices)
    written = linearize(space.indices, root.shape.dimensions)
    return {
        i
        for i in inputs
        if i.shape.element_count == root.shape.element_count and accesses.reads.get(i, set()) <= {written}
    }
