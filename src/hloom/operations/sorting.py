"""Sorting: sort by any comparator, and topk.

The pages "Sort" and "TopK".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from hloom.error_bounds.bounded import Bounded
from hloom.error_bounds.orders import order_of
from hloom.error_bounds.rules import no_bound
from hloom.errors import ShapeError, plural
from hloom.ir.codec import dims, flag, integer
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, ErrorRun, Operation, ProgramShape, Run, Value, operation
from hloom.ir.sharding_rule import Factor, parallel
from hloom.ir.traits import AppliedTypes, ElementCost, Family, LayoutSource, Roundoff, shape_elements
from hloom.ir.xla_version import V0_11
from hloom.operations.movement import require_array
from hloom.operations.stable_order import Comparator, order_keys, stable_order
from hloom.shape.element_type import PRED, S32, ElementType
from hloom.shape.shape import Shape


@operation("sort", "*operands", computations=["to_apply"])
class Sort(Operation):
    """Sorts arrays along one dimension, all of them by one comparator; always stable.

    Arguments:
        operands: arrays of the same dimensions. Elements of the same index move together.
        dimensions: the one dimension along which each line of elements is sorted.
        is_stable: equal elements keep their order; they do so even if this is not asked for.
        to_apply: the comparator. Takes for each operand the two elements that are compared, (a0, b0, a1, b1,
            ...), and returns whether the first ones precede the second ones; a strict weak order.
    """

    highlighted: ClassVar[str] = "dimensions"
    layout_source: ClassVar[LayoutSource] = LayoutSource.OPERANDS
    family: ClassVar[Family] = Family.COMBINATION
    element_cost: ClassVar[ElementCost] = ElementCost.COMBINED
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    dimensions: tuple[int, ...] = dims()
    is_stable: bool = flag()

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        return parallel(operands[0], operands, self.dimensions)

    def flops(self, shape: Shape, *operands: Shape, applied: float = 0.0) -> float:
        """Compare log2(n) times for each element of a line of n."""
        n = operands[0].dimensions[self.dimensions[0]]
        return max(1.0, applied) * shape_elements(operands[0]) * max(1, n.bit_length())

    def applied_types(self, operands: Sequence[ElementType]) -> Sequence[AppliedTypes]:
        """Return two elements of each operand, side by side."""
        return (AppliedTypes(tuple(t for t in operands for _ in range(2)), is_order=True),)

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """Return the operands' shapes; a tuple of them if there are several."""
        if not operands:
            raise ShapeError("sort takes at least one operand", rule="sort.operands")
        require_array(self.opcode, *operands)
        for operand in operands[1:]:
            if not operand.equal(operands[0], layout=False, element_type=False, dynamic=False):
                message = f"sort takes operands of equal dimensions, got {', '.join(map(str, operands))}"
                raise ShapeError(message, rule="sort.same-dimensions")
        if len(self.dimensions) != 1:
            raise ShapeError(f"sort takes one dimension, got {self.dimensions}", rule="sort.one-dimension")
        if not 0 <= self.dimensions[0] < operands[0].rank:
            message = f"dimension {self.dimensions[0]} is not one of {operands[0]}"
            raise ShapeError(message, rule="sort.dimension-range")
        for comparator in computations:
            _check_comparator(comparator, operands)
        return Shape.maybe_tuple(operands)

    def errors(self, run: ErrorRun) -> Value:
        """Return the errors of sorted keys; values beside keys of undecided order may be any of theirs."""
        (axis,) = self.dimensions
        parameters = run.instruction.called_computations[0].parameters
        keys = [n for n in range(len(run.operands)) if parameters[2 * n].users]
        key, is_single = run.operands[keys[0]], len(run.operands) == 1
        order = order_of(key, axis, run.value if is_single else run.value[keys[0]])
        if order is None or (len(keys) > 1 and key.error is None):
            raise no_bound(run, "orders inexact numbers by another comparison than less or greater")
        errors = [order.key_error(o) if n == keys[0] else order.beside(o) for n, o in enumerate(run.operands)]
        return errors[0] if is_single else tuple(errors)

    def evaluate(self, run: Run, *operands: Array) -> Value:
        """Find the order of each line once, then permute every operand by it."""
        (dimension,) = self.dimensions
        lines = [np.moveaxis(operand, dimension, -1) for operand in operands]
        if operands[0].size == 0:
            return operands[0] if len(operands) == 1 else operands
        flat = [line.reshape(-1, line.shape[-1]) for line in lines]
        order = stable_order(flat, Comparator(run))
        results = [
            np.moveaxis(np.take_along_axis(rows, order, -1).reshape(line.shape), -1, dimension)
            for rows, line in zip(flat, lines, strict=True)
        ]
        return results[0] if len(results) == 1 else tuple(results)


def _check_comparator(comparator: ProgramShape, operands: tuple[Shape, ...]) -> None:
    if not comparator.result.is_scalar or comparator.result.element_type is not PRED:
        message = f"the comparator makes pred[], not {comparator.result}"
        raise ShapeError(message, rule="sort.comparator-result")
    if len(comparator.parameters) != 2 * len(operands):
        message = (
            f"the comparator takes {plural(2 * len(operands), 'parameter')}, not {len(comparator.parameters)}"
        )
        raise ShapeError(message, rule="sort.comparator-arity")
    for number, parameter in enumerate(comparator.parameters):
        element_type = operands[number // 2].element_type
        floats = parameter.element_type.is_floating and element_type.is_floating
        if not parameter.is_scalar or not (parameter.element_type is element_type or floats):
            message = f"parameter {number} of the comparator is {element_type.name}[], not {parameter}"
            raise ShapeError(message, rule="sort.comparator-parameters")


@operation("topk", "operand")
class TopK(Operation):
    """The ``k`` largest (or smallest) elements along the last dimension, in order, and their indices.

    Floats are in total order, NaN above infinity and -NaN below -infinity. Of equal elements the one with the
    lower index comes first.

    Arguments:
        operand: an array of rank 1 or more.
        k: how many.
        largest: the largest ones, else the smallest ones.
        is_stable: equal elements keep their order; they do so even if this is not asked for.
    """

    family: ClassVar[Family] = Family.COMBINATION
    element_cost: ClassVar[ElementCost] = ElementCost.COMBINED
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    k: int = integer()
    largest: bool = flag(default=True, always=True)
    is_stable: bool = flag(default=True, always=True, since=V0_11)

    def infer(self, operand: Shape) -> Shape:
        """Return (values, indices as s32)."""
        require_array(self.opcode, operand)
        if operand.rank == 0:
            raise ShapeError("topk takes arrays of rank 1 or more, got a scalar", rule="topk.rank")
        if operand.element_type.is_complex:
            message = f"topk does not take {operand}: complex numbers have no order"
            raise ShapeError(message, rule="topk.element-type")
        if self.k < 0 or self.k > operand.dimensions[-1] != Shape.UNBOUNDED:
            raise ShapeError(f"k={self.k} of {operand.dimensions[-1]} elements", rule="topk.k")
        sizes = (*operand.dimensions[:-1], self.k)
        values = Shape(operand.element_type, sizes, (*operand.dynamic_dimensions[:-1], False))
        return Shape.tuple_([values, values.with_element_type(S32)])

    def errors(self, run: ErrorRun) -> Value:
        """Return the errors of the values and of the indices."""
        return errors_of_leading(run, descending=self.largest)

    def evaluate(self, run: Run, operand: Array) -> Value:
        """Return the first k elements of a stable sort."""
        return leading_elements(operand, self.k, largest=self.largest)


def leading_elements(operand: Array, k: int, *, largest: bool) -> tuple[Array, Array]:
    """Return the first ``k`` elements of each line of a stable sort, and their indices as s32."""
    keys = order_keys(operand)
    order = np.argsort(~keys if largest else keys, -1, kind="stable")[..., :k]
    return np.take_along_axis(operand, order, -1), order.astype(np.int32)


def errors_of_leading(run: ErrorRun, *, descending: bool) -> tuple[Array, Array]:
    """Return the errors of the first elements of a sorted array, and of their indices."""
    (x,) = run.operands
    order = order_of(x, x.value.ndim - 1, descending=descending)
    if order is None:
        raise no_bound(run, "orders inexact numbers by another comparison")
    k = run.value[0].shape[-1]
    indices = Bounded(np.argsort(np.zeros(x.value.shape), axis=-1, kind="stable"))
    return order.key_error(x)[..., :k], order.beside(indices)[..., :k]
