"""Slices at run-time positions: dynamic-slice and dynamic-update-slice.

The pages "DynamicSlice" and "DynamicUpdateSlice". Start indices are held to the range in which the slice lies
inside the operand; they may be of any integer type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from hloom.error_bounds.rules import indexed, moved, span
from hloom.errors import ShapeError, plural
from hloom.ir.affine import Index, Indices
from hloom.ir.codec import dims
from hloom.ir.indexing import Condition, Element, Indexing, Read, Steps
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, ErrorRun, Run, Value, operation
from hloom.ir.sharding_rule import Factor, same_extents
from hloom.ir.traits import ElementCost, shape_bytes
from hloom.operations.arithmetic import Add
from hloom.operations.elementwise import joint_element_type
from hloom.operations.movement import Movement, filled, require_array
from hloom.shape.shape import Shape

UNBOUNDED = Shape.UNBOUNDED


def _check_start_indices(opcode: str, operand: Shape, start_indices: tuple[Shape, ...]) -> None:
    """Check for one scalar per dimension, all of one integer type; or, in the old form, one vector."""
    require_array(opcode, *start_indices)
    types = {index.element_type for index in start_indices}
    if not all(t.is_integer for t in types):
        message = f"start indices are integers, got {', '.join(map(str, start_indices))}"
        raise ShapeError(message, rule=f"{opcode}.start-indices-integer")
    if len(types) > 1:
        message = f"start indices are of one type, got {', '.join(map(str, start_indices))}"
        raise ShapeError(message, rule=f"{opcode}.start-indices-same-type")
    if len(start_indices) == 1 and start_indices[0].rank == 1:
        if start_indices[0].dimensions != (operand.rank,):
            message = (
                f"{operand} needs {plural(operand.rank, 'start index', 'start indices')}, "
                f"got {start_indices[0]}"
            )
            raise ShapeError(message, rule=f"{opcode}.start-indices-count")
        return
    for index in start_indices:
        if not index.is_scalar:
            raise ShapeError(f"a start index is a scalar, not {index}", rule=f"{opcode}.start-indices-scalar")
    if len(start_indices) != operand.rank:
        message = (
            f"{operand} needs {plural(operand.rank, 'start index', 'start indices')}, "
            f"got {len(start_indices)}"
        )
        raise ShapeError(message, rule=f"{opcode}.start-indices-count")


def _window(operand: Array, start_indices: tuple[Array, ...], sizes: tuple[int, ...]) -> tuple[slice, ...]:
    """Return a slice of these sizes, its starts clamped to [0, dimension - size]."""
    if len(start_indices) == 1 and start_indices[0].ndim == 1:
        start_indices = tuple(start_indices[0])
    starts = [
        min(max(int(index), 0), max(dimension - size, 0))
        for index, dimension, size in zip(start_indices, operand.shape, sizes, strict=True)
    ]
    return tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))


@operation("dynamic-slice", "operand *start_indices")
class DynamicSlice(Movement):
    """A box of fixed sizes out of ``operand``, at a position computed at run time.

    Arguments:
        operand: an array.
        start_indices: for each dimension a scalar integer (the old form: one vector of all), the first index
            of the slice, clamped to between 0 and the dimension's size less the slice's.
        dynamic_slice_sizes: the size of the slice in each dimension.
    """

    element_cost: ClassVar[ElementCost] = ElementCost.INDEXED
    errors = indexed
    fixes_sizes: ClassVar[bool] = True
    dynamic_slice_sizes: tuple[int, ...] = dims()

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        """Return whole dimensions as they are; of others, devices have what lies in their tiles."""
        full = same_extents(operands[0], call.shape)
        factors = [Factor(call.shape.dimensions[d], {0: d}, d) for d in sorted(full)]
        others = [d for d in range(call.shape.rank) if d not in full and len(operands) == call.shape.rank + 1]
        return factors + [
            Factor(operands[0].dimensions[d], {0: d}, None, Add(), kind="indexed") for d in others
        ]

    def traffic(self, shape: Shape, *operands: Shape) -> int:
        """Count the slice, read and written."""
        return 2 * shape_bytes(shape)

    def infer(self, operand: Shape, *start_indices: Shape) -> Shape:
        """Return the slice's sizes."""
        require_array(self.opcode, operand)
        _check_start_indices(self.opcode, operand, start_indices)
        sizes = self.dynamic_slice_sizes
        if len(sizes) != operand.rank:
            message = f"{operand} needs {plural(operand.rank, 'slice size')}, got {len(sizes)}"
            raise ShapeError(message, rule="dynamic-slice.sizes-count")
        for number, (size, bound) in enumerate(zip(sizes, operand.dimensions, strict=True)):
            if size < 0 or size > bound != UNBOUNDED:
                message = f"slice size {size} in dimension {number} of size {bound}"
                raise ShapeError(message, rule="dynamic-slice.sizes-range")
        dynamic = [
            flag and size == bound
            for flag, size, bound in zip(operand.dynamic_dimensions, sizes, operand.dimensions, strict=True)
        ]
        return Shape(operand.element_type, sizes, dynamic)

    def element(
        self, x: Indexing[Condition, Element], i: HloInstruction, indices: Indices
    ) -> Steps[Condition, Element]:
        """Read the operand at start + index."""
        operand, *starts = i.operands
        source: list[Index] = []
        for index, start, bound, size in zip(
            indices, starts, operand.shape.dimensions, self.dynamic_slice_sizes, strict=True
        ):
            first = x.position((yield Read(start, ())), start.shape.element_type, bound - size + 1)
            source.append(index + first)
        return (yield Read(operand, tuple(source)))

    def evaluate(self, run: Run, operand: Array, *start_indices: Array) -> Array:
        return filled(operand[_window(operand, start_indices, self.dynamic_slice_sizes)], run.shape)


@operation("dynamic-update-slice", "operand update *start_indices")
class DynamicUpdateSlice(Movement):
    """``operand`` with a box of it, at a position computed at run time, replaced by ``update``.

    Arguments:
        operand: an array.
        update: an array of its rank and element type, in no dimension larger.
        start_indices: for each dimension a scalar integer (the old form: one vector of all), the first index
            that is replaced, clamped so that the whole update lies inside the operand.
    """

    copied_operands: ClassVar[tuple[int, ...]] = (0, 1)
    element_cost: ClassVar[ElementCost] = ElementCost.INDEXED
    updates_operand: ClassVar[bool] = True

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        """Return whole dimensions as they are; along others, a tile takes its part of the update."""
        full = same_extents(operands[0], operands[1])
        factors = [Factor(operands[0].dimensions[d], {0: d, 1: d}, d) for d in sorted(full)]
        others = [
            d for d in range(operands[0].rank) if d not in full and len(operands) == operands[0].rank + 2
        ]
        return factors + [Factor(operands[0].dimensions[d], {0: d}, d, kind="indexed") for d in others]

    def traffic(self, shape: Shape, *operands: Shape) -> int:
        """Count the update, read and written; the other elements stay in place."""
        return 2 * shape_bytes(operands[1])

    def infer(self, operand: Shape, update: Shape, *start_indices: Shape) -> Shape:
        """Return the operand's shape."""
        require_array(self.opcode, operand, update)
        _check_start_indices(self.opcode, operand, start_indices)
        if update.rank != operand.rank:
            message = f"the update {update} has another rank than {operand}"
            raise ShapeError(message, rule="dynamic-update-slice.update-rank")
        for number, (size, bound) in enumerate(zip(update.dimensions, operand.dimensions, strict=True)):
            if UNBOUNDED not in (size, bound) and size > bound:
                message = (
                    f"the update has {plural(size, 'element')} in dimension {number}, {operand} only {bound}"
                )
                raise ShapeError(message, rule="dynamic-update-slice.update-size")
        element_type = joint_element_type(self.opcode, (operand, update))
        return operand.with_element_type(element_type)

    def element(
        self, x: Indexing[Condition, Element], i: HloInstruction, indices: Indices
    ) -> Steps[Condition, Element]:
        """Read the update where the index is one of its elements, and the operand."""
        operand, update, *starts = i.operands
        sizes = update.shape.dimensions
        source: list[Index] = []
        inside: Condition | None = None
        for index, start, bound, size in zip(indices, starts, operand.shape.dimensions, sizes, strict=True):
            first = x.position((yield Read(start, ())), start.shape.element_type, bound - size + 1)
            source.append(index - first)
            inside = x.both(inside, x.inside(source[-1], size))
        old = yield Read(operand, indices)
        if 0 in sizes:
            return old
        new = yield Read(update, tuple(source), inside)
        return new if inside is None else x.choose(inside, new, old)

    def errors(self, run: ErrorRun) -> Value:
        """Move the errors; with an undecided position each element may be an old or a new one."""
        array, update, *indices = run.operands
        if all(index.error is None for index in indices):
            return moved(run, 2)
        return np.full(run.value.shape, span(array, update))

    def evaluate(self, run: Run, operand: Array, update: Array, *start_indices: Array) -> Array:
        """Return a copy with the slice replaced."""
        result = np.array(operand, run.dtype)
        fitting = update[tuple(map(slice, operand.shape))]
        result[_window(operand, start_indices, fitting.shape)] = fitting
        return result
