"""Fingerprints of reads and updates at positions that depend on the program's arguments.

The fingerprint of an element that is read is a function of the array and of the element's row-major position.
A position is a sum of start indices, which are clamped to the array, and of known offsets. So slices of
slices, gathers of one slice, and reads from a reshaped array have equal fingerprints where they read equal
elements.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from hloom.ir.affine import row_major_strides
from hloom.operations.gather_scatter import Gather, Scatter
from hloom.proofs import field
from hloom.proofs.field import Residues, salt_of
from hloom.proofs.prints import Prints

MOST_PLACES: Final = 1 << 12
"""Maximum number of places at which an updated slice may be."""
MOST_UPDATES: Final = 1 << 24
"""Maximum number of elements of the slice at all these places."""


def limited(start: Residues, limit: int) -> Residues:
    """Return the fingerprints of start indices clamped to [0, limit].

    A residue in this range is a known number, and is kept. Any other residue is an index that depends on the
    arguments: its clamped value is a random function of it and of the limit, or 0 if that is the limit.
    """
    if not limit:
        return np.zeros_like(start)
    return np.where(start <= np.uint64(limit), start, field.mix(salt_of("limited", limit), start))


def elements_at(array: Prints, linear: Residues) -> Prints:
    """Return the elements of an array at row-major positions that depend on the program's arguments."""
    if array.residues.size and (array.residues == array.residues.flat[0]).all():
        return array.moved(lambda elements: np.broadcast_to(elements.reshape(-1)[0], linear.shape))
    flat = field.sequence(salt_of("array"), array.residues.reshape(-1))
    return Prints(np.asarray(field.mix(salt_of("element"), np.broadcast_to(flat, linear.shape), linear)))


def dynamic_slice(array: Prints, starts: Sequence[Prints], sizes: Sequence[int]) -> Prints:
    """Return the slice of some sizes at start indices that depend on the program's arguments."""
    firsts = dict(enumerate(_firsts(array.shape, starts, sizes)))
    offsets = {d: (d, size) for d, size in enumerate(sizes)}
    return elements_at(array, _linear(array.shape, firsts, (), offsets, tuple(sizes)))


def dynamic_update_slice(array: Prints, update: Prints, starts: Sequence[Prints]) -> Prints | None:
    """Return an array of which a slice, at start indices that depend on the arguments, is replaced.

    An element is a polynomial: for each place at which the slice replaces it, its change there times an
    unknown predicate for each dimension, whether the slice begins there. None: there are too many places.
    """
    firsts = _firsts(array.shape, starts, update.shape)
    limits = [n - size for n, size in zip(array.shape, update.shape, strict=True)]
    is_known = [int(first) <= limit for first, limit in zip(firsts, limits, strict=True)]
    count = math.prod(limit + 1 for limit, known in zip(limits, is_known, strict=True) if not known)
    if count > MOST_PLACES or count * update.residues.size > MOST_UPDATES:
        return None
    places = [
        [(int(first), field.ONE)]
        if known
        else [(n, field.mix(salt_of("begins at"), first, field.number(n))) for n in range(limit + 1)]
        for first, limit, known in zip(firsts, limits, is_known, strict=True)
    ]
    residues = array.residues.copy()
    for place in itertools.product(*places):
        window = tuple([slice(n, n + size) for (n, _), size in zip(place, update.shape, strict=True)])
        change = field.subtract(update.residues, array.residues[window])
        is_there = field.product(np.asarray([predicate for _, predicate in place], np.uint64))
        residues[window] = field.add(residues[window], field.multiply(change, is_there))
    return Prints(residues)


def _firsts(sizes: Sequence[int], starts: Sequence[Prints], window: Sequence[int]) -> list[Residues]:
    """Return the clamped start index of a slice in each dimension of an array."""
    if len(starts) == 1 and starts[0].residues.ndim == 1:
        starts = [Prints(np.asarray(residue)) for residue in starts[0].residues]
    return [limited(s.residues, n - size) for s, n, size in zip(starts, sizes, window, strict=True)]


def gather(operation: Gather, operand: Prints, indices: Prints, sizes: tuple[int, ...]) -> Prints:
    """Return the result of a gather, of some sizes, whose indices depend on the program's arguments."""
    batching = dict(zip(operation.operand_batching_dims, operation.start_indices_batching_dims, strict=True))
    starts = starts_of(indices.residues, operation.index_vector_dim, operation.start_index_map, batching)
    for d in operation.start_index_map:
        starts[d] = limited(starts[d], operand.shape[d] - operation.slice_sizes[d])
    window = others(len(operand.shape), (*operation.collapsed_slice_dims, *operation.operand_batching_dims))
    offsets = {d: (axis, sizes[axis]) for d, axis in zip(window, sorted(operation.offset_dims), strict=True)}
    batch = others(len(sizes), operation.offset_dims)
    return elements_at(operand, _linear(operand.shape, starts, batch, offsets, sizes))


def scatter(
    operation: Scatter, salt: int, ordered: bool, operand: Prints, indices: Prints, updates: Prints
) -> Prints:
    """Return the result of a scatter whose indices depend on the program's arguments.

    Each element is a random function of the operand's element, of its position, and of all updates.

    Args:
        operation: the scatter.
        salt: the fingerprint of the computation that combines an element with an update.
        ordered: whether the order of several updates of one element matters.
        operand: the array that is updated.
        indices: the start indices of the updates.
        updates: the slices that are combined with elements of the operand.
    """
    batching = dict(zip(operation.input_batching_dims, operation.scatter_indices_batching_dims, strict=True))
    components = operation.scatter_dims_to_operand_dims
    starts = starts_of(indices.residues, operation.index_vector_dim, components, batching)
    window = others(len(operand.shape), (*operation.inserted_window_dims, *operation.input_batching_dims))
    axes = sorted(operation.update_window_dims)
    offsets = {d: (axis, updates.shape[axis]) for d, axis in zip(window, axes, strict=True)}
    batch = others(len(updates.shape), axes)
    positions = _linear(operand.shape, starts, batch, offsets, updates.shape)
    strides = row_major_strides(operand.shape)
    outside = np.zeros(updates.shape, np.uint64)
    for d in components:
        limit = operand.shape[d] - (offsets[d][1] if d in offsets else 1)
        is_inside = starts[d] <= np.uint64(max(limit, 0))
        guard = np.where(is_inside, 0, field.mix(salt_of("outside", limit, strides[d]), starts[d]))
        outside = field.add(outside, _spread(guard.astype(np.uint64), batch, len(updates.shape)))
    each = field.mix(salt_of("update"), positions, outside, updates.residues).reshape(-1)
    every = field.sequence(salt, each) if ordered else field.total(each)
    old = operand.residues
    places = np.reshape(np.arange(old.size, dtype=np.uint64), old.shape)
    return Prints(np.asarray(field.mix(salt, old, places, np.broadcast_to(every, old.shape))))


def starts_of(
    indices: Residues, vector_axis: int, components: Sequence[int], batching: Mapping[int, int]
) -> dict[int, Residues]:
    """Return the start indices of all slices, keyed by the operand's dimension.

    Args:
        indices: the start indices of a gather or scatter.
        vector_axis: the dimension of `indices` that runs over the components of one start index.
        components: the operand dimension of each component.
        batching: the dimension of `indices` that a batch dimension of the operand is paired with.
    """
    vectors = indices[..., None] if vector_axis == indices.ndim else np.moveaxis(indices, vector_axis, -1)
    starts: dict[int, Residues] = {d: vectors[..., n] for n, d in enumerate(components)}
    for d, axis in batching.items():
        axis -= axis > vector_axis
        steps = np.arange(vectors.shape[axis], dtype=np.uint64)
        shape = [-1 if e == axis else 1 for e in range(vectors.ndim - 1)]
        starts[d] = np.broadcast_to(steps.reshape(shape), vectors.shape[:-1])
    return starts


def _linear(
    sizes: Sequence[int],
    starts: Mapping[int, Residues],
    batch: Sequence[int],
    offsets: Mapping[int, tuple[int, int]],
    result: tuple[int, ...],
) -> Residues:
    """Return the row-major positions, in an array, of the elements of slices.

    Args:
        sizes: the dimensions of the array.
        starts: the start indices of all slices, keyed by the array's dimension.
        batch: the dimensions of the result that number the slices.
        offsets: for each array dimension that a slice runs through, the dimension of the result that runs
            through it, and the slice's size.
        result: the dimensions of the result: the slices' elements.
    """
    linear: Any = np.zeros(result, np.uint64)
    for d, stride in enumerate(row_major_strides(sizes)):
        if d in starts:
            start = _spread(starts[d], batch, len(result))
            linear = field.add(linear, field.multiply(start, field.number(stride)))
        if d in offsets:
            axis, size = offsets[d]
            linear = field.add(
                linear, _spread(np.arange(size, dtype=np.uint64), (axis,), len(result)) * field.number(stride)
            )
    return linear


def _spread(array: Residues, axes: Sequence[int], rank: int) -> Residues:
    """Return an array reshaped to a rank: its dimensions at the given axes, size 1 at the others."""
    if not array.ndim:
        return array
    return np.expand_dims(array, tuple(others(rank, axes)))


def others(rank: int, dimensions: Sequence[int]) -> list[int]:
    """Return the dimensions of an array that are not in a list."""
    return [d for d in range(rank) if d not in dimensions]
