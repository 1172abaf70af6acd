"""Scan: a computation applied to consecutive slices with carried values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar, cast

import numpy as np

from hloom.error_bounds.bounded import Bounded, Tree, finite, parts_of
from hloom.error_bounds.sums import accumulated, growth
from hloom.errors import ShapeError, plural
from hloom.ir.codec import Message, attribute, dims, flag, integer
from hloom.ir.cursor import Cursor
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import (
    Array,
    ErrorRun,
    Operation,
    ProgramShape,
    Run,
    Value,
    operation,
    require_dynamic,
    rounds_pairs,
)
from hloom.ir.traits import ElementCost, Family, Roundoff
from hloom.operations.arithmetic import Add
from hloom.operations.combined_errors import combiner
from hloom.shape.shape import Shape

T = TypeVar("T")


class _TriStateCodec:
    """``true`` or ``false``; the proto field's third value, "unspecified", means false."""

    def parse(self, cursor: Cursor) -> bool:
        return cursor.boolean()

    def text(self, value: bool) -> str:
        return "true" if value else "false"

    def write(self, message: Message, field: str, value: bool) -> None:
        """Write 1 for true, 2 for false."""
        setattr(message, field, 1 if value else 2)

    def read(self, message: Message, field: str) -> bool:
        return bool(getattr(message, field) == 1)


@operation("scan", "*operands", computations=["to_apply"])
class Scan(Operation):
    """Applies a computation to consecutive slices of arrays and carries values from step to step.

    ``(outputs..., carries...) = to_apply(slices..., carries...)`` at every step; the result is the outputs
    of all steps, stacked along the same dimension, then the last carries. A single result is an array or a
    tuple of one, and so is that of the computation.

    Arguments:
        operands: the arrays that are sliced, then the initial carries.
        dimensions: the one dimension along which is scanned.
        num_carries: the number of carries.
        is_reverse: the last slice comes first; outputs stand where their slices stood.
        is_associative: a promise that lets devices combine steps in another order.
        to_apply: the computation of a step.
    """

    family: ClassVar[Family] = Family.COMBINATION
    element_cost: ClassVar[ElementCost] = ElementCost.COMBINED
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    dimensions: tuple[int, ...] = dims()
    num_carries: int = integer(always=True)
    is_reverse: bool = flag()
    is_associative: bool = attribute(_TriStateCodec(), default=False, always=True)

    def _split(self, operands: Sequence[T]) -> tuple[tuple[T, ...], tuple[T, ...]]:
        inputs = len(operands) - self.num_carries
        if self.num_carries < 0 or inputs < 0:
            message = (
                f"{plural(self.num_carries, 'carry', 'carries')} among {plural(len(operands), 'operand')}"
            )
            raise ShapeError(message, rule="scan.carry-count")
        return tuple(operands[:inputs]), tuple(operands[inputs:])

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """Return the outputs with the scanned dimension inserted, then the carries."""
        inputs, carries = self._split(operands)
        if not inputs:
            raise ShapeError("without arrays to scan the shape must be stated", rule="scan.inputs")
        axis = self._axis(inputs)
        size, dynamic = inputs[0].dimensions[axis], inputs[0].dynamic_dimensions[axis]
        return self._shape(inputs, carries, size, dynamic, computations[0])

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check the shape: a single result may be an array or a tuple of one.

        Without inputs, the stated outputs give the number of steps.
        """
        inputs, carries = self._split(operands)
        if inputs:
            inferred = self.infer(*operands, computations=computations)
        else:
            inferred = self._from_stated(shape, carries, computations[0])
        if inferred.is_tuple and shape.is_array and len(inferred.tuple_shapes) == 1:
            inferred = inferred.tuple_shapes[0]
        elif inferred.is_array and shape.is_tuple:
            inferred = Shape.tuple_([inferred])
        if not inferred.compatible(shape):
            message = f"the shape is stated as {shape}, but {inferred} follows from the operands"
            raise ShapeError(message, rule="instruction.shape-matches")
        require_dynamic(shape, inferred)

    def _from_stated(self, shape: Shape, carries: Sequence[Shape], step: ProgramShape) -> Shape:
        axis = self._axis(())
        leaves = shape.tuple_shapes if shape.is_tuple else (shape,)
        if len(leaves) <= len(carries) or axis >= leaves[0].rank:
            message = f"a scan without inputs needs an output with dimension {axis}, got {shape}"
            raise ShapeError(message, rule="scan.length")
        return self._shape((), carries, leaves[0].dimensions[axis], False, step)

    def _axis(self, inputs: Sequence[Shape]) -> int:
        if len(self.dimensions) != 1:
            message = f"a scan runs along one dimension, got {self.dimensions}"
            raise ShapeError(message, rule="scan.one-dimension")
        axis = self.dimensions[0]
        if axis < 0 or not all(i.is_array and axis < i.rank for i in inputs):
            message = f"every input needs the dimension {axis}, got {', '.join(map(str, inputs))}"
            raise ShapeError(message, rule="scan.dimension-range")
        if len({i.dimensions[axis] for i in inputs}) > 1:
            message = f"the inputs must be equally long, got {', '.join(map(str, inputs))}"
            raise ShapeError(message, rule="scan.length")
        return axis

    def _shape(
        self, inputs: Sequence[Shape], carries: Sequence[Shape], size: int, dynamic: bool, step: ProgramShape
    ) -> Shape:
        axis = self.dimensions[0]
        slices = [
            Shape(i.element_type, _without(i.dimensions, axis), _without(i.dynamic_dimensions, axis))
            for i in inputs
        ]
        wanted = (*slices, *carries)
        if len(step.parameters) != len(wanted) or not all(
            p.compatible(w) for p, w in zip(step.parameters, wanted)
        ):
            message = f"the computation must take ({', '.join(map(str, wanted))}), it is {step}"
            raise ShapeError(message, rule="scan.computation-parameters")
        results = step.result.tuple_shapes if step.result.is_tuple else (step.result,)
        count = len(results) - len(carries)
        if count < 0 or not all(r.compatible(c) for r, c in zip(results[count:], carries)):
            message = f"the computation must return the carries last, it is {step}"
            raise ShapeError(message, rule="scan.computation-carries")
        if not all(r.is_array and axis <= r.rank for r in results[:count]):
            message = f"outputs of the computation cannot be stacked along dimension {axis}, it is {step}"
            raise ShapeError(message, rule="scan.computation-outputs")
        outputs = [
            Shape(
                r.element_type,
                (*r.dimensions[:axis], size, *r.dimensions[axis:]),
                (*r.dynamic_dimensions[:axis], dynamic, *r.dynamic_dimensions[axis:]),
            )
            for r in results[:count]
        ]
        shapes = [*outputs, *carries]
        return Shape.tuple_(shapes) if step.result.is_tuple else shapes[0]

    def terms(self, *operands: Sequence[int]) -> float:
        """Return the number of steps and the initial carry."""
        return 1 + operands[0][self.dimensions[0]]

    def roundoff_of(self, instruction: HloInstruction) -> Roundoff:
        """Return the roundoff: the steps of an associative scan may be combined in any order."""
        rounds = self.is_associative and any(map(rounds_pairs, instruction.called_computations))
        return Roundoff.ACCUMULATED if rounds else Roundoff.NONE

    def errors(self, run: ErrorRun) -> Value:
        """Bound partial sums, of an associative scan, by the magnitudes of their terms.

        Nothing is known of other functions in any order: an intermediate result may overflow.
        """
        inputs, carries = self._split(run.operands)
        step = run.instruction.called_computations[0]
        if len(inputs) != 1 or len(carries) != 1 or not isinstance(combiner(step), Add):
            unknown = [np.full(np.shape(value), np.inf) for value in parts_of(run.value)]
            return tuple(unknown) if run.instruction.shape.is_tuple else unknown[0]
        (axis,), (x,), (initial,) = self.dimensions, inputs, carries
        order = np.s_[:: -1 if self.is_reverse else 1]

        def partial_sums(terms: Array, first: Array) -> Array:
            lines = np.moveaxis(terms, axis, 0)[order]
            return np.moveaxis((np.cumsum(lines, 0) + first)[order], 0, axis)

        size = partial_sums(finite(x.value) + x.spread, finite(initial.value) + initial.spread)
        error = partial_sums(x.spread, initial.spread)
        rate = growth(partial_sums(np.ones(size.shape), np.ones(())))

        def bound(value: Array) -> Array:
            parts = (size, rate, error)
            if value.ndim < size.ndim:
                parts = tuple([part.take(0 if self.is_reverse else -1, axis) for part in parts])
            return np.asarray(parts[2] + accumulated(value, *parts, in_place=True))

        return tuple(map(bound, run.value)) if run.instruction.shape.is_tuple else bound(run.value)

    def evaluate_bounded(self, run: ErrorRun, *operands: Bounded) -> Tree:
        """Bound the steps in order, except those of associative scans."""
        if self.roundoff_of(run.instruction) is not Roundoff.NONE:
            return run.bounded()
        inputs, carries = self._split(operands)
        (axis,) = self.dimensions
        rows: list[tuple[Bounded, ...]] = []
        for number in range(np.shape(inputs[0].value)[axis])[:: -1 if self.is_reverse else 1]:
            step = run.call(0, *(_slice(x, number, axis) for x in inputs), *carries)
            results = parts_of(step) if isinstance(step, tuple) else (step,)
            count = len(results) - len(carries)
            rows.append(results[:count])
            carries = results[count:]
        columns = zip(*(rows[::-1] if self.is_reverse else rows), strict=True)
        outputs = (*(_stacked(column, axis) for column in columns), *carries)
        return outputs if run.instruction.shape.is_tuple else outputs[0]

    def evaluate(self, run: Run, *operands: Array) -> Value:
        """Run the steps in order."""
        inputs, carries = self._split(operands)
        axis = self.dimensions[0]
        leaves = run.shape.tuple_shapes if run.shape.is_tuple else (run.shape,)
        count = len(leaves) - len(carries)
        length = inputs[0].shape[axis] if inputs else leaves[0].dimensions[axis]
        steps = range(length - 1, -1, -1) if self.is_reverse else range(length)
        outputs: list[list[Array]] = [[] for _ in range(count)]
        for number in steps:
            slices = [i.take(number, axis=axis) for i in inputs]
            value: Any = run.call(0, *slices, *carries)
            values = cast("tuple[Array, ...]", value if isinstance(value, tuple) else (value,))
            carries = values[count:]
            for column, output in zip(outputs, values):
                column.append(output)
        stacked = [
            np.stack(column[::-1] if self.is_reverse else column, axis=axis)
            if column
            else np.zeros(leaf.dimensions, leaf.element_type.numpy_dtype)
            for column, leaf in zip(outputs, leaves)
        ]
        results: tuple[Value, ...] = (*stacked, *carries)
        return results if run.shape.is_tuple else results[0]


def _without(sizes: tuple[T, ...], dimension: int) -> tuple[T, ...]:
    return sizes[:dimension] + sizes[dimension + 1 :]


def _slice(x: Bounded, number: int, axis: int) -> Bounded:
    return Bounded(x.value.take(number, axis), None if x.error is None else x.error.take(number, axis))


def _stacked(slices: Sequence[Bounded], axis: int) -> Bounded:
    error = None if all(s.error is None for s in slices) else np.stack([s.spread for s in slices], axis)
    return Bounded(np.stack([s.value for s in slices], axis), error)
