"""Generators of gather and scatter with random dimension numbers, batching dimensions and indices."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.fuzzing.generators.case import Case, CaseBody, family
from hloom.fuzzing.generators.draw import EVERY, INDEX_TYPES, Array, Draw
from hloom.fuzzing.generators.movement import braces
from hloom.fuzzing.generators.opcodes import arithmetic, rounds
from hloom.records import dataclass


@dataclass(frozen=True)
class Plan:
    """Dimension numbers of a gather or scatter.

    Attributes:
        sizes: the dimensions of the operand.
        window: the sizes of a slice.
        dropped: the operand dimensions that are not in a slice (collapsed or inserted).
        batching, indices_batching: the batching dimensions of the operand, and those of the indices.
        index_map: the operand dimension of each component of an index vector.
        indices: the dimensions of the indices.
        index_vector_dim: the dimension of the index vectors; the indices' rank if these are scalars.
        offset_dims: the dimensions of the gather's result, or of the scatter's updates, that run through a
            slice.
        result: the dimensions of the gather's result, or of the scatter's updates.
    """

    sizes: tuple[int, ...]
    window: tuple[int, ...]
    dropped: tuple[int, ...]
    batching: tuple[int, ...]
    indices_batching: tuple[int, ...]
    index_map: tuple[int, ...]
    indices: tuple[int, ...]
    index_vector_dim: int
    offset_dims: tuple[int, ...]
    result: tuple[int, ...]


def plan(draw: Draw, low: int = 0, windows_last: bool = False) -> Plan:
    """Draw consistent dimension numbers of a gather or scatter.

    Args:
        draw: the random choices.
        low: the least rank of the operand.
        windows_last: whether the window dimensions of the result follow all its batch dimensions.
    """
    sizes = draw.sizes(low=low, high=4, largest=5, most=120)
    rank = len(sizes)
    batching = draw.subset(range(rank), draw.integer(0, min(rank, 2))) if draw.chance(0.35) else []
    others = [d for d in range(rank) if d not in batching]
    index_map = draw.subset(others)
    batch = [draw.size(3) for _ in range(draw.integer(0, 2))]
    places = draw.subset(range(len(batch) + len(batching)), len(batching))
    batch_sizes: list[int] = []
    sizes_left = iter(batch)
    for dimension in range(len(batch) + len(batching)):
        batch_sizes.append(
            sizes[batching[places.index(dimension)]] if dimension in places else next(sizes_left)
        )
    vector = draw.integer(0, len(batch_sizes))
    scalars = len(index_map) == 1 and draw.chance(0.3)
    indices = batch_sizes if scalars else [*batch_sizes[:vector], len(index_map), *batch_sizes[vector:]]
    index_vector_dim = len(indices) if scalars else vector
    indices_batching = [dimension + (dimension >= index_vector_dim) for dimension in places]
    window: list[int] = []
    for d, size in enumerate(sizes):
        least = 0 if draw.chance(0.05) else min(1, size)
        window.append(min(1, size) if d in batching else draw.integer(least, size))
    dropped = [d for d in others if window[d] == 1 and draw.chance(0.6)]
    offset_sizes = [window[d] for d in range(rank) if d not in (*dropped, *batching)]
    offset_dims = sorted(draw.subset(range(len(batch_sizes) + len(offset_sizes)), len(offset_sizes)))
    if windows_last:
        offset_dims = list(range(len(batch_sizes), len(batch_sizes) + len(offset_sizes)))
    offsets, batches = iter(offset_sizes), iter(batch_sizes)
    result = [
        next(offsets) if i in offset_dims else next(batches)
        for i in range(len(batch_sizes) + len(offset_sizes))
    ]
    return Plan(
        sizes, tuple(window), tuple(sorted(dropped)), tuple(sorted(batching)),
        tuple(p for _, p in sorted(zip(batching, indices_batching, strict=True))), tuple(index_map),
        tuple(indices), index_vector_dim, tuple(offset_dims), tuple(result),
    )  # fmt: skip


def index_values(draw: Draw, index_type: str, sizes: Sequence[int]) -> Array:
    """Return indices, most of them near the bounds."""
    if draw.chance(0.25):
        return draw.any_values(index_type, sizes)
    low = -2 if index_type[0] == "s" else 0
    return draw.numbers.integers(low, 7, sizes).astype(draw.small_values(index_type, ()).dtype)


@family("gather", weight=2)
def gather(draw: Draw, body: CaseBody) -> Case:
    """Draw a gather."""
    p = plan(draw)
    index_type = draw.one(INDEX_TYPES)
    operand = body.parameter(draw.values(draw.element_type(EVERY), p.sizes))
    indices = body.parameter(index_values(draw, index_type, p.indices))
    attributes = f"offset_dims={braces(p.offset_dims)}, collapsed_slice_dims={braces(p.dropped)}"
    attributes += f", start_index_map={braces(p.index_map)}"
    if p.batching:
        attributes += f", operand_batching_dims={braces(p.batching)}"
        attributes += f", start_indices_batching_dims={braces(p.indices_batching)}"
    attributes += f", index_vector_dim={p.index_vector_dim}, slice_sizes={braces(p.window)}"
    return body.case(f"gather {index_type}", body.let(f"gather({operand}, {indices}), {attributes}"))


REPLACE = "replace"
"""The combiner that gives the update."""


@family("scatter", weight=2, corners=True)
def scatter(draw: Draw, body: CaseBody) -> Case:
    """Draw a scatter of one operand or of two. XLA miscompiles scatters into scalars.

    Where updates replace each other their order matters: hloom applies them in the order of the updates
    array, XLA window by window. So in these cases window dimensions are last, where both orders are the same.
    """
    index_type, element_type = draw.one(INDEX_TYPES), draw.element_type(EVERY)
    opcode = draw.one([*arithmetic(element_type), REPLACE])
    replaces = opcode == REPLACE
    p = plan(draw, low=int(draw.restricted), windows_last=replaces)
    count = 2 if draw.chance(0.2) else 1
    any_will_do = replaces or not rounds(opcode, element_type)
    values = draw.values if any_will_do else draw.small_values
    operands = [body.parameter(values(element_type, p.sizes)) for _ in range(count)]
    indices = body.parameter(index_values(draw, index_type, p.indices))
    updates = [body.parameter(values(element_type, p.result)) for _ in range(count)]
    function = combiner(body, opcode, element_type, count)
    attributes = f"update_window_dims={braces(p.offset_dims)}, inserted_window_dims={braces(p.dropped)}"
    attributes += f", scatter_dims_to_operand_dims={braces(p.index_map)}"
    if p.batching:
        attributes += f", input_batching_dims={braces(p.batching)}"
        attributes += f", scatter_indices_batching_dims={braces(p.indices_batching)}"
    attributes += f", index_vector_dim={p.index_vector_dim}, to_apply={function}"
    root = body.let(f"scatter({', '.join([*operands, indices, *updates])}), {attributes}")
    roots = body.elements(root, count) if count > 1 else [root]
    label = f"scatter {opcode} {element_type} {index_type}" + (" without index" if not p.index_map else "")
    return body.case(label, *roots)


def combiner(body: CaseBody, opcode: str, element_type: str, count: int) -> str:
    """Add a computation that combines `count` elements with as many updates, and return its name."""
    scalar = f"{element_type}[]"

    def combined(a: str, b: str) -> str:
        return f"copy({b})" if opcode == REPLACE else f"{opcode}({a}, {b})"

    if count == 1:
        return body.computation([scalar, scalar], f"r = {combined('a', 'b')}")
    both = f"r0 = {combined('a', 'c')}", f"r1 = {combined('b', 'd')}"
    return body.computation([scalar] * 4, *both, "r = tuple(r0, r1)")
