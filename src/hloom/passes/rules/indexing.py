"""Rules that simplify gather, scatter and sort."""

from __future__ import annotations

import math
from typing import Final

from hloom.analysis.values import number, start_numbers
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import SliceDimension
from hloom.operations.arithmetic import And
from hloom.operations.comparison import Select
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.gather_scatter import Gather, Scatter
from hloom.operations.movement import Broadcast, Slice
from hloom.operations.sorting import Sort
from hloom.operations.structure import Constant, GetTupleElement, Iota, Parameter, Tuple
from hloom.passes.rewriting import RuleFamily
from hloom.passes.writing import Body, Writer
from hloom.shape.element_type import S32
from hloom.shape.shape import Shape

GATHERS: Final = RuleFamily("gather")
SCATTERS: Final = RuleFamily("scatter")


# -- gather


@GATHERS.rewrites(Gather)
def gather_of_empty_slices(i: HloInstruction, gather: Gather) -> HloInstruction | None:
    """``gather(x, indices)`` of slices without elements → ``broadcast(0)``."""
    if 0 not in gather.slice_sizes or not i.shape.is_static:
        return None
    w = Writer(i)
    return w.broadcast(w.scalar(0, i.shape.element_type), i.shape.dimensions, ())


@GATHERS.rewrites(Gather)
def gather_of_one_slice(i: HloInstruction, gather: Gather) -> HloInstruction | None:
    """``gather(x, indices)`` of one index vector → ``reshape(dynamic-slice(x, ...))``."""
    operation = gather
    x, indices = i.operands
    batch = [n for d, n in enumerate(indices.shape.dimensions) if d != operation.index_vector_dim]
    if math.prod(batch) != 1 or 0 in operation.slice_sizes:
        return None
    w = Writer(i)
    starts = index_vector(w, indices, operation.start_index_map, x.shape.rank)
    cut = w.op(DynamicSlice(dynamic_slice_sizes=operation.slice_sizes), x, *starts)
    window = [d for d in range(x.shape.rank) if d not in operation.collapsed_slice_dims]
    window = [d for d in window if d not in operation.operand_batching_dims]
    sizes = [1] * i.shape.rank
    for dimension, d in zip(operation.offset_dims, window, strict=True):
        sizes[dimension] = operation.slice_sizes[d]
    return w.reshape(cut, sizes)


@GATHERS.rewrites(Gather)
def gather_of_everything(i: HloInstruction, gather: Gather) -> HloInstruction | None:
    """``gather(x, indices)`` of slices of the size of x → ``broadcast(x)``."""
    operation = gather
    x, _ = i.operands
    if operation.slice_sizes != x.shape.dimensions or operation.operand_batching_dims:
        return None
    if 0 in operation.slice_sizes:
        return None
    window = [d for d in range(x.shape.rank) if d not in operation.collapsed_slice_dims]
    w = Writer(i)
    inner = w.reshape(x, [x.shape.dimensions[d] for d in window])
    return w.broadcast(inner, i.shape.dimensions, operation.offset_dims)


def index_vector(
    w: Writer, indices: HloInstruction, index_map: tuple[int, ...], rank: int
) -> list[HloInstruction]:
    """Return the only index vector, which may be empty, as one scalar per dimension, 0 if unmapped."""
    kind = indices.shape.element_type
    starts: list[HloInstruction | None] = [None] * rank
    if not index_map:
        kind = S32
    elif isinstance(indices.operation, Constant) and not indices.operation.literal.is_elided:
        numbers: list[int] = indices.operation.literal.array.reshape(-1).tolist()
        starts = [
            w.scalar(numbers[index_map.index(d)], kind) if d in index_map else None for d in range(rank)
        ]
    else:
        flat = w.reshape(indices, [len(index_map)])
        for n, d in enumerate(index_map):
            starts[d] = w.reshape(w.op(Slice(slice=(SliceDimension(n, n + 1),)), flat), ())
    return [s if s is not None else w.scalar(0, kind) for s in starts]


# -- scatter


@SCATTERS.rewrites(Scatter)
def scatter_of_nothing(i: HloInstruction, scatter: Scatter) -> HloInstruction | None:
    """``scatter(x, indices, updates)`` without updates → ``x``."""
    count = len(i.operands) // 2
    if count != 1 or i.operands[-1].shape.element_count:
        return None
    return i.operands[0]


@SCATTERS.rewrites(Scatter)
def scatter_of_one_window(i: HloInstruction, scatter: Scatter) -> HloInstruction | None:
    """``scatter(x, index, u)`` of one window → ``dynamic-update-slice(x, f(slice(x), u))``.

    A scatter drops a window that is partly out of bounds, an update clamps its start: the update then
    writes the existing elements.
    """
    operation = scatter
    if len(i.operands) != 3 or not _is_combiner(i):
        return None
    x, indices, updates = i.operands
    batch = [n for d, n in enumerate(indices.shape.dimensions) if d != operation.index_vector_dim]
    if math.prod(batch) != 1 or not updates.shape.element_count:
        return None
    window = [d for d in range(x.shape.rank) if d not in operation.inserted_window_dims]
    window = [d for d in window if d not in operation.input_batching_dims]
    sizes = [1] * x.shape.rank
    for dimension, d in zip(operation.update_window_dims, window, strict=True):
        sizes[d] = updates.shape.dimensions[dimension]
    if any(size > bound for size, bound in zip(sizes, x.shape.dimensions, strict=True)):
        return x  # no window fits
    moved: tuple[int, ...] = operation.scatter_dims_to_operand_dims
    w = Writer(i)
    starts = index_vector(w, indices, moved, x.shape.rank)
    inside = _constants_inside(starts, sizes, x.shape)
    u = w.reshape(updates, sizes)
    there = w.op(DynamicSlice(dynamic_slice_sizes=tuple(sizes)), x, *starts)
    new = _combined(w, i.called_computations[0], there, u)
    test = None if inside else _all_inside(w, starts, sizes, moved, x.shape)
    if test is not None:
        new = w.op(Select(), test, new, there)
    return w.op(DynamicUpdateSlice(), x, new, *starts)


@SCATTERS.rewrites(Scatter, of=Broadcast)
def scatter_of_one_element_each(
    i: HloInstruction, scatter: Scatter, filled: Broadcast
) -> HloInstruction | None:
    """``scatter(broadcast(c), k, u)`` of one element of each row → ``select(iota == k, f(c, u), c)``.

    The gradient of a choice of one element of each row, as in a cross entropy, is such a scatter. Bitwise; an
    index out of bounds equals no number of an element.
    """
    if len(i.operands) != 3 or not _is_combiner(i) or filled.dimensions:
        return None
    x, indices, updates = i.operands
    sizes, rows = x.shape.dimensions, scatter.input_batching_dims
    if scatter.update_window_dims or math.prod(updates.shape.dimensions) != math.prod(sizes[d] for d in rows):
        return None
    kind, chosen = indices.shape.element_type, scatter.scatter_dims_to_operand_dims
    if len(chosen) != 1 or scatter.inserted_window_dims != chosen or sizes[chosen[0]] - 1 > kind.limits[1]:
        return None
    of_indices = scatter.scatter_indices_batching_dims
    order = [rows[of_indices.index(d)] for d in sorted(of_indices)]
    w = Writer(i)

    def spread(part: HloInstruction) -> HloInstruction:
        return w.broadcast(w.reshape(part, [sizes[d] for d in order]), sizes, order)

    number = w.op(Iota(iota_dimension=chosen[0]), shape=Shape(kind, sizes))
    is_chosen = w.compare(number, "EQ", spread(indices))
    new = _combined(
        w, i.called_computations[0], w.broadcast(x.operands[0], updates.shape.dimensions), updates
    )
    return w.op(Select(), is_chosen, spread(new), x)


def _is_combiner(i: HloInstruction) -> bool:
    """Return whether a scatter's computation consists of scalar elementwise operations of its own type."""
    computation = i.called_computations[0]
    kind = i.shape.element_type
    if any(
        x.shape.element_type is not kind for x in (*computation.parameters, computation.root, i.operands[2])
    ):
        return False
    return all(
        isinstance(s.operation, (Parameter, Constant))
        or (s.operation.elementwise and not s.called_computations)
        for s in computation.instructions
    ) and all(s.shape.is_scalar for s in computation.instructions)


def _constants_inside(starts: list[HloInstruction], sizes: list[int], shape: Shape) -> bool:
    """Return whether the start indices are constants and the window is in bounds."""
    exact = start_numbers(starts, [1 << 62] * len(starts))
    below = all(not s.shape.element_type.is_signed or _not_negative(s) for s in starts)
    return (
        exact is not None
        and below
        and all(
            start + size <= extent for start, size, extent in zip(exact, sizes, shape.dimensions, strict=True)
        )
    )


def _not_negative(s: HloInstruction) -> bool:
    value = number(s)
    return value is not None and value >= 0


def _all_inside(
    w: Writer, starts: list[HloInstruction], sizes: list[int], moved: tuple[int, ...], shape: Shape
) -> HloInstruction | None:
    """Return a scalar pred, true if a window at the start indices is in bounds; None if it always is."""
    result: HloInstruction | None = None
    for d in moved:
        index = starts[d]
        kind = index.shape.element_type
        tests: list[HloInstruction] = []
        if kind.is_signed:
            tests.append(w.compare(index, "GE", w.scalar(0, kind)))
        last = shape.dimensions[d] - sizes[d]
        if last < kind.limits[1]:
            tests.append(w.compare(index, "LE", w.scalar(last, kind)))
        for test in tests:
            result = test if result is None else w.op(And(), result, test)
    return result


def _combined(
    w: Writer, computation: HloComputation, there: HloInstruction, u: HloInstruction
) -> HloInstruction:
    """Apply a computation of two scalars to whole arrays."""
    copies: dict[HloInstruction, HloInstruction] = dict(zip(computation.parameters, (there, u), strict=True))
    for step in computation.post_order():
        if step in copies:
            continue
        if isinstance(step.operation, Constant):
            copy = w.computation.add(step.clone(w.module.unique_name("constant")))
            copies[step] = w.broadcast(copy, there.shape.dimensions)
            continue
        combined = step.clone(
            w.module.unique_name(step.opcode),
            operands=[copies[o] for o in step.operands],
            shape=Shape(step.shape.element_type, there.shape.dimensions),
        )
        copies[step] = w.computation.add(combined)
    return copies[computation.root]


# -- sort


SORTS: Final = RuleFamily("sort")


@SORTS.rewrites(Sort)
def sort_of_one(i: HloInstruction, sort: Sort) -> HloInstruction | None:
    """``sort(x)`` along a dimension of size 1 → ``x``, or a tuple of the operands."""
    (dimension,) = sort.dimensions
    if i.operands[0].shape.dimensions[dimension] > 1:
        return None
    return i.operands[0] if len(i.operands) == 1 else Writer(i).op(Tuple(), *i.operands)


@SORTS.rewrites(Sort)
def sort_of_unused(i: HloInstruction, sort: Sort) -> HloInstruction | None:
    """``sort(x, y)`` → ``sort(x)`` where neither the comparator nor a user reads y."""
    if len(i.operands) < 2 or i.is_root:
        return None
    picked = [u.operation.index for u in i.users if isinstance(u.operation, GetTupleElement)]
    if len(picked) < len(i.users):
        return None
    comparator = i.called_computations[0]
    parameters = comparator.parameters
    used = set(picked) | {n // 2 for n, p in enumerate(parameters) if p.users or p.is_root}
    if len(used) == len(i.operands) or not used:
        return None
    w = Writer(i)
    live = sorted(used)
    smaller = _comparator_of(w, comparator, live)
    sorted_ = w.op(sort, *(i.operands[n] for n in live), computations=[smaller])
    elements = list(i.operands)
    for position, n in enumerate(live):
        elements[n] = sorted_ if len(live) == 1 else w.op(GetTupleElement(index=position), sorted_)
    return w.op(Tuple(), *elements)


def _comparator_of(w: Writer, comparator: HloComputation, live: list[int]) -> HloComputation:
    """Copy a comparator with only some pairs of its parameters."""
    body = Body(w.module, comparator.name)
    copies: dict[HloInstruction, HloInstruction] = {}
    for step in comparator.post_order():
        operation = step.operation
        if isinstance(operation, Parameter):
            pair, side = divmod(operation.parameter_number, 2)
            if pair not in live:
                continue
            operation = operation.replace(parameter_number=2 * live.index(pair) + side)
        copies[step] = body.copy(step, [copies[o] for o in step.operands])
        copies[step].operation = operation
    body.computation.root = copies[comparator.root]
    return body.computation
