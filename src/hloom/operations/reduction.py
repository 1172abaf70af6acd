"""Reductions and windows: reduce, map, reduce-window, select-and-scatter, scan.

Sums, products and the like may be computed in any order, and computations that are proven associative
(`hloom.operations.combiners`) may be regrouped: many values are combined pairwise in order. All others are
folded sequentially from the initial value. Sums and products of more than `SHORT_SUM` floats (or complex
numbers) are formed in f64 (c128), shorter ones in at least f32, and rounded at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar, cast

import numpy as np

from hloom.error_bounds.bounded import Bounded, finite
from hloom.error_bounds.floating import ulp
from hloom.errors import ShapeError, plural
from hloom.ir.affine import Indices
from hloom.ir.codec import dims
from hloom.ir.computation import HloComputation
from hloom.ir.indexing import Accumulation, Addressing, Condition, Read
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, ErrorRun, Operation, ProgramShape, Run, Value, operation
from hloom.ir.sharding_rule import Factor
from hloom.ir.traits import AppliedTypes, ElementCost, Family, Roundoff, shape_elements
from hloom.operations.combined_errors import reduction_errors
from hloom.operations.combiners import Grouping, commutative_combiner, grouping
from hloom.operations.contraction import SHORT_SUM, accumulation_type
from hloom.operations.rounding import convert
from hloom.shape.element_type import ElementType
from hloom.shape.shape import Shape

T = TypeVar("T")
Arrays = tuple[Array, ...]
Combine = Callable[[Arrays, Arrays], Arrays]


# -- rules


def same_type(a: Shape, b: Shape) -> bool:
    """Return whether types are equal or both real floats, between which called computations convert."""
    return a.element_type is b.element_type or (a.element_type.is_floating and b.element_type.is_floating)


def check_reducer(
    opcode: str, reducer: ProgramShape, inputs: Sequence[Shape], inits: Sequence[Shape]
) -> tuple[Shape, ...]:
    """Refuse a computation that cannot reduce these arrays; return the scalar shapes of its results."""
    count = len(inputs)
    results = reducer.result.tuple_shapes if reducer.result.is_tuple else (reducer.result,)
    if len(reducer.parameters) != 2 * count:
        message = f"the computation needs {plural(2 * count, 'parameter')}, it is {reducer}"
        raise ShapeError(message, rule=f"{opcode}.computation-parameters")
    if len(results) != count or not all(r.is_array and r.is_scalar for r in results):
        message = f"the computation must return {plural(count, 'scalar')}, it is {reducer}"
        raise ShapeError(message, rule=f"{opcode}.computation-result")
    for i, (result, init, array) in enumerate(zip(results, inits, inputs)):
        accumulator, value = reducer.parameters[i], reducer.parameters[count + i]
        if not (accumulator.is_array and accumulator.is_scalar and value.is_array and value.is_scalar):
            message = f"the parameters of the computation must be scalars, it is {reducer}"
            raise ShapeError(message, rule=f"{opcode}.computation-scalars")
        if not (init.is_array and init.is_scalar and same_type(init, accumulator)):
            message = f"initial value {i} is {init}, the computation {reducer}"
            raise ShapeError(message, rule=f"{opcode}.init-value")
        if not (same_type(accumulator, result) and same_type(value, result) and same_type(value, array)):
            message = f"operand {i} is {array}, the computation {reducer}"
            raise ShapeError(message, rule=f"{opcode}.computation-types")
    return results


def split_operands(opcode: str, operands: Sequence[T]) -> tuple[tuple[T, ...], tuple[T, ...]]:
    """Split operands into arrays and an equal number of initial values."""
    count = len(operands) // 2
    if not operands or len(operands) % 2:
        message = f"{opcode} takes arrays and as many initial values, got {plural(len(operands), 'operand')}"
        raise ShapeError(message, rule=f"{opcode}.operand-count")
    return tuple(operands[:count]), tuple(operands[count:])


def same_arrays(opcode: str, inputs: Sequence[Shape]) -> None:
    """Refuse operands that are not arrays of the same dimensions."""
    first = inputs[0]
    for shape in inputs:
        if (
            not shape.is_array
            or not first.is_array
            or not shape.with_element_type(first.element_type).compatible(first)
        ):
            message = f"{opcode} takes arrays of equal dimensions, got {', '.join(map(str, inputs))}"
            raise ShapeError(message, rule=f"{opcode}.same-dimensions")


class ReductionResult(Operation):
    """Common to the reductions of one or several arrays, each with an initial value."""

    family: ClassVar[Family] = Family.COMBINATION
    element_cost: ClassVar[ElementCost] = ElementCost.COMBINED
    roundoff: ClassVar[Roundoff] = Roundoff.COMBINED

    def applied_types(self, operands: Sequence[ElementType]) -> Sequence[AppliedTypes]:
        """Return (accumulators..., values...) of the reducer."""
        half = len(operands) // 2
        return (AppliedTypes((*operands[half:], *operands[:half])),)

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check the shape; like XLA, accept a single array stated as a tuple of one."""
        if shape.is_tuple and len(shape.tuple_shapes) == 1:
            shape = shape.tuple_shapes[0]
        super().check(shape, *operands, computations=computations)


# -- combining values


class Reducer:
    """A called reducing computation, applied to whole arrays.

    Values are held in the type of accumulation between `lift` and `lower`: for plain float sums and
    products that of `accumulation_type`, else the computation's own types.

    Args:
        run: the evaluation of the calling instruction.
        index: number of the reducing computation among its called ones.
        terms: the number of values that are combined for one result.
    """

    def __init__(self, run: Run, index: int, terms: int) -> None:
        self.run = run
        self.terms = terms
        self.index = index
        computation = run.instruction.called_computations[index]
        signature = computation.program_shape
        self.count = len(signature.parameters) // 2
        self.types = [p.element_type for p in signature.parameters]
        self.plain = plain_combiner(computation) if self.count == 1 else None
        """numpy's function if the computation is a sum or product of floats, else None."""
        mixed = self.types[: self.count] != self.types[self.count :]
        self.grouping = Grouping.SEQUENTIAL
        """The orders in which values may be combined."""
        if not mixed and terms > SHORT_SUM:
            self.grouping = grouping(computation, lambda *arrays: run.map(index, *arrays))

    def lift(self, arrays: Sequence[Array], *, values: bool = True) -> Arrays:
        """Convert operands (or initial values) to the types of accumulation."""
        types = self.types[self.count :] if values else self.types[: self.count]
        converted = tuple(convert(a, t.numpy_dtype) for a, t in zip(arrays, types))
        if self.plain is None:
            return converted
        return tuple(a.astype(accumulation_type(t, self.terms)) for a, t in zip(converted, types))

    def combine(self, left: Arrays, right: Arrays) -> Arrays:
        """Apply the computation at every index."""
        if self.plain is not None:
            with np.errstate(all="ignore"):
                return (np.asarray(self.plain(left[0], right[0])),)  # numpy gives scalars for rank 0
        result: object = self.run.map(self.index, *left, *right)
        return cast(Arrays, result if isinstance(result, tuple) else (result,))

    def may_group(self, arrays: Arrays) -> bool:
        """Return true if adjacent values among these may be combined first."""
        if self.grouping is Grouping.ASSOCIATIVE_WITHOUT_NAN:
            return all(bool(np.all(a == a)) for a in arrays)
        return self.grouping > Grouping.SEQUENTIAL

    def lower(self, arrays: Arrays, shape: Shape) -> Value:
        """Convert combined values to the types of the result."""
        shapes = shape.tuple_shapes if shape.is_tuple else (shape,)
        results = tuple(convert(a, s.element_type.numpy_dtype) for a, s in zip(arrays, shapes))
        return results if shape.is_tuple else results[0]


def plain_combiner(computation: HloComputation) -> Callable[..., Any] | None:
    """Return numpy's add or multiply if the computation is that of two float or complex parameters."""
    root = computation.root
    functions: dict[str, Any] = {"add": np.add, "multiply": np.multiply}
    if root.opcode not in functions or len(computation.parameters) != 2:
        return None
    kind = root.shape.element_type
    if not (kind.is_floating or kind.is_complex) or set(root.operands) != set(computation.parameters):
        return None
    if any(p.shape.element_type is not kind for p in computation.parameters):
        return None
    return functions[root.opcode]


def fold(reducer: Reducer, arrays: Arrays, init: Arrays) -> Arrays:
    """Fold the first axis from the initial values on, sequentially or pairwise in order."""
    if not reducer.may_group(arrays):
        for index in range(arrays[0].shape[0]):
            init = reducer.combine(init, tuple(a[index] for a in arrays))
        return init
    while arrays[0].shape[0] > 1:
        length = arrays[0].shape[0]
        paired = reducer.combine(tuple(a[: length - 1 : 2] for a in arrays), tuple(a[1::2] for a in arrays))
        if length % 2:
            paired = tuple(np.concatenate([p, a[-1:]]) for p, a in zip(paired, arrays))
        arrays = paired
    if arrays[0].shape[0] == 0:
        return init
    return reducer.combine(init, tuple(a[0] for a in arrays))


# -- the operations


@operation("reduce", "*operands", computations=["to_apply"])
class Reduce(ReductionResult):
    """Combines all elements along some dimensions with a computation.

    ``reduce(x, init), dimensions={1}, to_apply=%add`` of f32[4,6] gives f32[4] with the elements
    ``init + x[i,0] + ... + x[i,5]``. Several arrays are reduced together: the computation takes as many
    accumulators and as many values and returns a tuple of new accumulators. The order of sums, products,
    maxima and minima is free. The result of other computations is that of row-major order, starting from the
    initial values.

    Arguments:
        operands: arrays of equal dimensions, then one scalar initial value for each.
        dimensions: the dimensions that are reduced and that the result does not have.
        to_apply: a computation of scalars, accumulators first.
    """

    highlighted: ClassVar[str] = "dimensions"
    dimensions: tuple[int, ...] = dims()

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        """Return the dimensions that are kept, and reduced ones whose partial results combine."""
        count = len(operands) // 2
        combiner = commutative_combiner(call)
        factors: list[Factor] = []
        result_dimension = 0
        for d, extent in enumerate(operands[0].dimensions):
            having = dict.fromkeys(range(count), d)
            if d not in self.dimensions:
                factors.append(Factor(extent, having, result_dimension))
                result_dimension += 1
            elif combiner is not None and count == 1:
                factors.append(Factor(extent, having, None, combiner))
        return factors

    def reduced_sizes(self, operand: Shape) -> tuple[int, ...]:
        """Return the sizes of the reduced dimensions, in the order of the operand's dimensions."""
        return tuple(size for d, size in enumerate(operand.dimensions) if d in self.dimensions)

    def operand_indices(self, kept: Indices, reduced: Indices) -> Indices:
        """Return the operand index from the indices of the kept and the reduced dimensions."""
        of_kept, of_reduced = iter(kept), iter(reduced)
        rank = len(kept) + len(reduced)
        return tuple(next(of_reduced if d in self.dimensions else of_kept) for d in range(rank))

    def accumulation(
        self, x: Addressing[Condition], i: HloInstruction, indices: Indices
    ) -> Accumulation[Condition]:
        """Loop over the reduced dimensions."""
        half = len(i.operands) // 2
        operands, initial = i.operands[:half], i.operands[half:]

        def terms(position: Indices) -> list[Read[Condition]]:
            source = self.operand_indices(indices, position)
            return [Read(o, source) for o in operands]

        return Accumulation(self.reduced_sizes(operands[0].shape), terms, initial, unrolled=x.unrolls)

    def flops(self, shape: Shape, *operands: Shape, applied: float = 0.0) -> float:
        """Apply the reducer once for each element beyond the first."""
        return max(1.0, applied) * max(0, shape_elements(operands[0]) - shape_elements(shape))

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """Return the operand's dimensions without the reduced ones, of the computation's result types."""
        inputs, inits = split_operands("reduce", operands)
        same_arrays("reduce", inputs)
        first = inputs[0]
        for dimension in self.dimensions:
            if not 0 <= dimension < first.rank:
                message = f"dimension {dimension} is out of range in {first}"
                raise ShapeError(message, rule="reduce.dimension-range")
        if len(set(self.dimensions)) != len(self.dimensions):
            message = f"dimensions must be distinct, got {self.dimensions}"
            raise ShapeError(message, rule="reduce.dimensions-distinct")
        results = check_reducer("reduce", computations[0], inputs, inits)
        free = [i for i in range(first.rank) if i not in self.dimensions]
        sizes = tuple(first.dimensions[i] for i in free)
        dynamic = tuple(any(array.dynamic_dimensions[i] for array in inputs) for i in free)
        return Shape.maybe_tuple([Shape(r.element_type, sizes, dynamic) for r in results])

    def terms(self, *operands: Sequence[int]) -> float:
        """Return the number of reduced elements and the initial value."""
        return 1 + math.prod(operands[0][d] for d in self.dimensions)

    def errors(self, run: ErrorRun) -> Value:
        """Bound sums, products, extremes, and selections such as argmax."""
        return reduction_errors(run, self.dimensions)

    def evaluate(self, run: Run, *operands: Array) -> Value:
        """Transpose the reduced dimensions to the front and fold them."""
        inputs, inits = split_operands("reduce", operands)
        front = sorted(self.dimensions)
        free = [i for i in range(inputs[0].ndim) if i not in front]
        sizes = tuple(inputs[0].shape[i] for i in free)
        count = math.prod(inputs[0].shape[i] for i in front)
        reducer = Reducer(run, 0, count)
        init = tuple(np.broadcast_to(i, sizes) for i in reducer.lift(inits, values=False))
        if 0 in sizes:
            return reducer.lower(init, run.shape)
        arrays = reducer.lift([a.transpose(*front, *free).reshape(count, *sizes) for a in inputs])
        return reducer.lower(fold(reducer, arrays, init), run.shape)


@operation("map", "*operands", computations=["to_apply"])
class Map(Operation):
    """Applies a computation of scalars to the corresponding elements of arrays.

    Arguments:
        operands: arrays of equal dimensions; scalars stand for arrays of equal elements.
        dimensions: all dimensions in order; they may be left out.
        to_apply: a computation of as many scalars as there are operands.
    """

    family: ClassVar[Family] = Family.COMBINATION
    element_cost: ClassVar[ElementCost] = ElementCost.COMBINED
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    dimensions: tuple[int, ...] = dims(default=(), always=True)

    def flops(self, shape: Shape, *operands: Shape, applied: float = 0.0) -> float:
        return max(1.0, applied) * shape_elements(shape)

    def applied_types(self, operands: Sequence[ElementType]) -> Sequence[AppliedTypes]:
        return (AppliedTypes(tuple(operands)),)

    def canonical(self, *operands: Shape) -> Map:
        """Drop the dimensions, which are always all of them."""
        return self.replace(dimensions=()) if self.dimensions else self

    def spelled_out(self, instruction: HloInstruction) -> Map:
        return self.replace(dimensions=tuple(range(instruction.shape.rank)))

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """Return the operands' dimensions, of the type that the computation returns."""
        if not operands or not all(o.is_array for o in operands):
            raise ShapeError(f"map takes at least one array, got {operands}", rule="map.operands")
        largest = max(operands, key=lambda o: o.rank)
        same_arrays("map", [o for o in operands if not o.is_scalar] or [largest])
        if self.dimensions not in ((), tuple(range(largest.rank))):
            message = (
                f"map applies to all dimensions in order, {tuple(range(largest.rank))}, got {self.dimensions}"
            )
            raise ShapeError(message, rule="map.dimensions")
        function = computations[0]
        if len(function.parameters) != len(operands):
            message = f"the computation needs {plural(len(operands), 'parameter')}, it is {function}"
            raise ShapeError(message, rule="map.computation-parameters")
        if not all(p.is_array and p.is_scalar for p in (*function.parameters, function.result)):
            raise ShapeError(
                f"the computation must be of scalars, it is {function}", rule="map.computation-scalars"
            )
        if not all(same_type(p, o) for p, o in zip(function.parameters, operands)):
            message = f"the operands are {', '.join(map(str, operands))}, the computation is {function}"
            raise ShapeError(message, rule="map.computation-types")
        return Shape(function.result.element_type, largest.dimensions, largest.dynamic_dimensions)

    def evaluate_bounded(self, run: ErrorRun, *operands: Bounded) -> Bounded:
        """Bound the computation on whole arrays, in the types of its parameters."""
        parameters = run.instruction.called_computations[0].parameters
        arrays = [_converted(o, p.shape.element_type) for o, p in zip(operands, parameters, strict=True)]
        result = _converted(run.map(0, *arrays), run.instruction.shape.element_type)
        sizes = np.broadcast_shapes(*(np.shape(o.value) for o in operands))
        error = None if result.error is None else np.broadcast_to(result.error, sizes)
        return Bounded(np.broadcast_to(result.value, sizes), error)

    def evaluate(self, run: Run, *operands: Array) -> Array:
        """Apply the computation to whole arrays."""
        signature = run.instruction.called_computations[0].program_shape
        arrays = [convert(a, p.element_type.numpy_dtype) for a, p in zip(operands, signature.parameters)]
        result: Any = run.map(0, *arrays)
        return convert(result, run.dtype)


def _converted(x: Bounded, element_type: ElementType) -> Bounded:
    """Return an array in another float type, rounded."""
    dtype = element_type.numpy_dtype
    if x.value.dtype == dtype:
        return x
    value = convert(x.value, dtype)
    return Bounded(value, None if x.error is None else x.error + ulp(finite(value) + x.error, dtype))
