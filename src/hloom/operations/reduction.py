"""Reductions and windows: reduce, map, reduce-window, select-and-scatter, scan.

The reducing computation is taken to be associative, as the page demands; values are combined pairwise in
their order. Where it is a plain sum or product of floats (or complex numbers), it is formed in f64 (c128)
and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from hloom.errors import ShapeError
from hloom.ir.codec import ScalarCodec, attribute, dims, flag, integer
from hloom.ir.computation import HloComputation
from hloom.ir.cursor import Cursor
from hloom.ir.operation import Array, Operation, ProgramShape, Run, Value, operation
from hloom.ir.window import Window, WindowDimension, window
from hloom.operations.contraction import accumulation_type
from hloom.operations.elementwise import narrow
from hloom.operations.windows import dilated_and_padded, windowed_shape
from hloom.shape.element_type import PRED
from hloom.shape.shape import Shape

Arrays = tuple[Array, ...]
Combine = Callable[[Arrays, Arrays], Arrays]


# -- rules


def same_type(a: Shape, b: Shape) -> bool:
    """Whether element types are equal or both real floats, between which called computations convert."""
    return a.element_type is b.element_type or (a.element_type.is_floating and b.element_type.is_floating)


def check_reducer(
    opcode: str, reducer: ProgramShape, inputs: Sequence[Shape], inits: Sequence[Shape]
) -> tuple[Shape, ...]:
    """Refuse a computation that cannot reduce these arrays; the scalar shapes of its results otherwise."""
    count = len(inputs)
    results = reducer.result.tuple_shapes if reducer.result.is_tuple else (reducer.result,)
    if len(reducer.parameters) != 2 * count:
        message = f"the computation needs {2 * count} parameters, it is {reducer}"
        raise ShapeError(message, rule=f"{opcode}.computation-parameters")
    if len(results) != count or not all(r.is_array and r.is_scalar for r in results):
        message = f"the computation must return {count} scalars, it is {reducer}"
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


def split_operands(opcode: str, operands: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Arrays, then as many initial values."""
    count = len(operands) // 2
    if not operands or len(operands) % 2:
        message = f"{opcode} takes arrays and as many initial values, got {len(operands)} operands"
        raise ShapeError(message, rule=f"{opcode}.operand-count")
    return tuple(operands[:count]), tuple(operands[count:])


def same_arrays(opcode: str, inputs: Sequence[Shape]) -> None:
    """Refuse operands that are no arrays of the same dimensions."""
    first = inputs[0]
    for shape in inputs:
        if (
            not shape.is_array
            or not first.is_array
            or not shape.with_element_type(first.element_type).compatible(first)
        ):
            message = f"{opcode} takes arrays of equal dimensions, got {', '.join(map(str, inputs))}"
            raise ShapeError(message, rule=f"{opcode}.same-dimensions")


def tuple_or_single(shapes: Sequence[Shape]) -> Shape:
    """One shape alone, or the tuple of several."""
    return shapes[0] if len(shapes) == 1 else Shape.tuple_(shapes)


# -- combining values


class Reducer:
    """A called reducing computation, applied to whole arrays.

    Values are held in the type of accumulation between `lift` and `lower`: for plain float sums and products
    f64 or c128, else the computation's own types.
    """

    def __init__(self, run: Run, index: int = 0) -> None:
        self.run = run
        self.index = index
        computation = run.instruction.called_computations[index]
        signature = computation.program_shape
        self.count = len(signature.parameters) // 2
        self.types = [p.element_type for p in signature.parameters]
        self.plain = plain_combiner(computation) if self.count == 1 else None
        """numpy's function, where the computation is a sum or product of floats."""
        self.mixed = self.types[: self.count] != self.types[self.count :]
        """Accumulators and values have different types, so that values can only be folded in one by one."""

    def lift(self, arrays: Sequence[Array], *, values: bool = True) -> Arrays:
        """Operands (or initial values) in the types in which they are combined."""
        types = self.types[self.count :] if values else self.types[: self.count]
        own = tuple(narrow(a, t.numpy_dtype) for a, t in zip(arrays, types))
        if self.plain is None:
            return own
        return tuple(a.astype(accumulation_type(t)) for a, t in zip(own, types))

    def combine(self, left: Arrays, right: Arrays) -> Arrays:
        """The computation at every index."""
        if self.plain is not None:
            with np.errstate(all="ignore"):
                return (self.plain(left[0], right[0]),)
        result: Any = self.run.map(self.index, *left, *right)
        return result if isinstance(result, tuple) else (result,)

    def lower(self, arrays: Arrays, shape: Shape) -> Value:
        """Combined values in the types of the result."""
        shapes = shape.tuple_shapes if shape.is_tuple else (shape,)
        results = tuple(narrow(a, s.element_type.numpy_dtype) for a, s in zip(arrays, shapes))
        return results if shape.is_tuple else results[0]


def plain_combiner(computation: HloComputation) -> Callable[..., Any] | None:
    """Numpy's add or multiply, where a computation is that of its two float or complex parameters."""
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
    """Reduce the first axis of arrays, neighbours first, and put the initial values in front."""
    if reducer.mixed:
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


def slide(reducer: Reducer, arrays: Arrays, axis: int, d: WindowDimension) -> Arrays:
    """Reduce windows along one axis of a padded base, at every position.

    Blocks of 1, 2, 4 ... window elements are combined from their halves, so that a window of w elements takes
    about 2 log2(w) combinations of whole arrays, however long it is.
    """
    positions = max(0, arrays[0].shape[axis] - d.dilated_size + 1)

    def cut(blocks: Arrays, start: int, length: int) -> Arrays:
        index = (slice(None),) * axis + (slice(start, start + length),)
        return tuple(b[index] for b in blocks)

    def join(first: Arrays, second: Arrays) -> Arrays:
        return reducer.combine(second, first) if d.window_reversal else reducer.combine(first, second)

    blocks, size, offset = arrays, 1, 0
    result: Arrays = ()
    while True:
        if d.size & size:
            piece = cut(blocks, offset * d.window_dilation, positions)
            result = join(result, piece) if result else piece
            offset += size
        if offset == d.size or not positions:
            break
        step = size * d.window_dilation
        length = blocks[0].shape[axis] - step
        blocks = join(cut(blocks, 0, length), cut(blocks, step, length))
        size *= 2
    strided = (slice(None),) * axis + (slice(None, positions, d.stride),)
    return tuple(r[strided] for r in (result or blocks))


def slide_one_by_one(reducer: Reducer, arrays: Arrays, init: Arrays, window: Window) -> Arrays:
    """Fold the elements of all windows of a padded base into the initial values, in window order."""
    bases = arrays[0].shape
    positions = tuple(max(0, (size - d.dilated_size) // d.stride + 1) for size, d in zip(bases, window))
    result = tuple(np.broadcast_to(i, positions) for i in init)
    for offset in np.ndindex(*(d.size for d in window)):
        starts = [
            (d.size - 1 - o if d.window_reversal else o) * d.window_dilation for o, d in zip(offset, window)
        ]
        index = tuple(
            slice(s, s + (p - 1) * d.stride + 1 if p else s, d.stride)
            for s, p, d in zip(starts, positions, window)
        )
        result = reducer.combine(result, tuple(a[index] for a in arrays))
    return result


# -- the operations


@operation("reduce", "*operands", computations=["to_apply"])
class Reduce(Operation):
    """Combines all elements along some dimensions with a computation.

    ``reduce(x, init), dimensions={1}, to_apply=%add`` of f32[4,6] gives f32[4]: ``init + x[i,0] + ... +
    x[i,5]``. Several arrays are reduced together: the computation takes as many accumulators and as many
    values and returns a tuple of new accumulators. It must be associative and the initial values neutral;
    the order is free.

    Arguments:
        operands: arrays of equal dimensions, then one scalar initial value for each.
        dimensions: the dimensions that are reduced and that the result does not have.
        to_apply: a computation of scalars, accumulators first.
    """

    dimensions: tuple[int, ...] = dims()

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """The operand's dimensions without the reduced ones, of the types that the computation returns."""
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
        kept = [i for i in range(first.rank) if i not in self.dimensions]
        sizes = tuple(first.dimensions[i] for i in kept)
        dynamic = tuple(any(array.dynamic_dimensions[i] for array in inputs) for i in kept)
        return tuple_or_single([Shape(r.element_type, sizes, dynamic) for r in results])

    def evaluate(self, run: Run, *operands: Array) -> Value:
        """Bring the reduced dimensions to the front and fold them."""
        inputs, inits = split_operands("reduce", operands)
        reducer = Reducer(run)
        front = sorted(self.dimensions)
        kept = [i for i in range(inputs[0].ndim) if i not in front]
        sizes = tuple(inputs[0].shape[i] for i in kept)
        count = math.prod(inputs[0].shape[i] for i in front)
        init = tuple(np.broadcast_to(i, sizes) for i in reducer.lift(inits, values=False))
        if 0 in sizes:
            return reducer.lower(init, run.shape)
        arrays = reducer.lift([a.transpose(*front, *kept).reshape(count, *sizes) for a in inputs])
        return reducer.lower(fold(reducer, arrays, init), run.shape)


@operation("map", "*operands", computations=["to_apply"])
class Map(Operation):
    """Applies a computation of scalars to the elements of arrays: ``result[i] = to_apply(operands[0][i],
    ...)``.

    Arguments:
        operands: arrays of equal dimensions; scalars stand for arrays of equal elements.
        dimensions: all dimensions in order.
        to_apply: a computation of as many scalars as there are operands.
    """

    dimensions: tuple[int, ...] = dims()

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """The operands' dimensions, of the type that the computation returns."""
        if not operands or not all(o.is_array for o in operands):
            raise ShapeError(f"map takes at least one array, got {operands}", rule="map.operands")
        largest = max(operands, key=lambda o: o.rank)
        same_arrays("map", [o for o in operands if not o.is_scalar] or [largest])
        if self.dimensions != tuple(range(largest.rank)):
            message = (
                f"map applies to all dimensions in order, {tuple(range(largest.rank))}, got {self.dimensions}"
            )
            raise ShapeError(message, rule="map.dimensions")
        function = computations[0]
        if len(function.parameters) != len(operands):
            message = f"the computation needs {len(operands)} parameters, it is {function}"
            raise ShapeError(message, rule="map.computation-parameters")
        if not all(p.is_array and p.is_scalar for p in (*function.parameters, function.result)):
            raise ShapeError(
                f"the computation must be of scalars, it is {function}", rule="map.computation-scalars"
            )
        if not all(same_type(p, o) for p, o in zip(function.parameters, operands)):
            message = f"the operands are {', '.join(map(str, operands))}, the computation is {function}"
            raise ShapeError(message, rule="map.computation-types")
        return Shape(function.result.element_type, largest.dimensions, largest.dynamic_dimensions)

    def evaluate(self, run: Run, *operands: Array) -> Array:
        """The computation on whole arrays."""
        signature = run.instruction.called_computations[0].program_shape
        arrays = [narrow(a, p.element_type.numpy_dtype) for a, p in zip(operands, signature.parameters)]
        result: Any = run.map(0, *arrays)
        return narrow(result, run.dtype)


@operation("reduce-window", "*operands", computations=["to_apply"])
class ReduceWindow(Operation):
    """Combines the elements of every window of an array with a computation; pooling and cumulative sums.

    The base area is the operand with base dilation and padding, both filled with the initial value. Each
    window
    position gives one element: the initial value combined with all elements of the window.

    Arguments:
        operands: arrays of equal dimensions, then one scalar initial value for each.
        window: for every dimension size, stride, padding and dilations.
        to_apply: an associative computation of scalars, accumulators first.
    """

    window: Window = window(default=(), always=False)

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """One element a window position, of the types that the computation returns."""
        inputs, inits = split_operands("reduce-window", operands)
        same_arrays("reduce-window", inputs)
        shape = windowed_shape("reduce-window", inputs[0], self.window)
        results = check_reducer("reduce-window", computations[0], inputs, inits)
        dynamic = tuple(any(array.dynamic_dimensions[i] for array in inputs) for i in range(shape.rank))
        return tuple_or_single([Shape(r.element_type, shape.dimensions, dynamic) for r in results])

    def evaluate(self, run: Run, *operands: Array) -> Value:
        """Reduce windows along one dimension after the other, the last one first."""
        inputs, inits = split_operands("reduce-window", operands)
        reducer = Reducer(run)
        init = reducer.lift(inits, values=False)
        fills = reducer.lift(inits)
        by_axis = dict(enumerate(self.window))
        arrays = tuple(dilated_and_padded(a, by_axis, fill) for a, fill in zip(reducer.lift(inputs), fills))
        if reducer.mixed:
            return reducer.lower(slide_one_by_one(reducer, arrays, init, self.window), run.shape)
        for axis in reversed(range(len(self.window))):
            arrays = slide(reducer, arrays, axis, self.window[axis])
        return reducer.lower(reducer.combine(init, arrays), run.shape)


@operation("select-and-scatter", "operand source init_value", computations=["select", "scatter"])
class SelectAndScatter(Operation):
    """Selects one element in every window of ``operand`` and scatters ``source`` there; the gradient of
    pooling.

    The result has the operand's shape and begins as the initial value. Every window position has an
    element in ``source``, which is combined with what the result holds at the place of the window's
    selected element. Padding is never selected.

    Arguments:
        operand: the array in which elements are selected.
        source: one element a window position.
        init_value: what the result holds where nothing is scattered.
        window: for every dimension size, stride, padding and dilations.
        select: (a, b) -> pred, true if a, which has the smaller index, is kept rather than b.
        scatter: (current value, source element) -> new value.
    """

    window: Window = window(default=(), always=False)

    def infer(
        self, operand: Shape, source: Shape, init_value: Shape, *, computations: tuple[ProgramShape, ...] = ()
    ) -> Shape:
        """The operand's shape."""
        select, scatter = computations
        if not operand.is_array or not source.is_array:
            message = f"operand and source must be arrays, got {operand} and {source}"
            raise ShapeError(message, rule="select-and-scatter.operand-arrays")
        if len(select.parameters) != 2 or not (
            select.result.is_scalar and select.result.element_type is PRED
        ):
            message = f"select must be (a, b) -> pred[], it is {select}"
            raise ShapeError(message, rule="select-and-scatter.select")
        if not all(p.is_scalar and same_type(p, operand) for p in select.parameters):
            message = f"select must take elements of {operand}, it is {select}"
            raise ShapeError(message, rule="select-and-scatter.select-types")
        windows = windowed_shape("select-and-scatter", operand, self.window)
        if not windows.with_element_type(source.element_type).compatible(source):
            message = f"source must have the dimensions {windows.dimensions} of the windows, got {source}"
            raise ShapeError(message, rule="select-and-scatter.source")
        check_reducer("select-and-scatter", scatter, [source], [init_value])
        if not same_type(scatter.result, operand):
            message = f"the operand is {operand}, scatter returns {scatter.result}"
            raise ShapeError(message, rule="select-and-scatter.scatter-type")
        return operand

    def evaluate(self, run: Run, operand: Array, source: Array, init_value: Array) -> Array:
        """Select in all windows at once; then combine the first source element of every place, and so on."""
        reducer = Reducer(run, 1)
        (result,) = reducer.lift([np.broadcast_to(init_value, operand.size)], values=False)
        result = result.copy()
        places = self._selected(run, operand, source.shape).ravel()
        order = np.flatnonzero(places >= 0)
        order = order[np.argsort(places[order], kind="stable")]
        (values,) = reducer.lift([source.ravel()[order]])
        places = places[order]
        first = np.flatnonzero(np.diff(places, prepend=-1))
        turn = np.arange(len(places)) - np.repeat(first, np.diff(first, append=len(places)))
        for number in range(int(turn.max()) + 1 if len(turn) else 0):
            now = turn == number
            (result[places[now]],) = reducer.combine((result[places[now]],), (values[now],))
        return narrow(result, run.dtype).reshape(operand.shape)

    def _selected(self, run: Run, operand: Array, positions: tuple[int, ...]) -> Array:
        """The linear index of the element selected in every window; -1 where a window holds none."""
        index = np.arange(operand.size, dtype=np.int64).reshape(operand.shape)
        base = dilated_and_padded(index, dict(enumerate(self.window)), np.int64(-1))
        chosen = np.full(positions, -1, np.int64)
        if not operand.size or not chosen.size:
            return chosen
        signature = run.instruction.called_computations[0].program_shape
        left, right = (narrow(operand.ravel(), p.element_type.numpy_dtype) for p in signature.parameters)
        for offset in np.ndindex(*(d.size for d in self.window)):
            starts = [o * d.window_dilation for o, d in zip(offset, self.window)]
            candidate = base[
                tuple(
                    slice(s, s + (n - 1) * d.stride + 1, d.stride)
                    for s, n, d in zip(starts, positions, self.window)
                )
            ]
            kept: Any = run.map(0, left[chosen], right[candidate])
            chosen = np.where((candidate >= 0) & ((chosen < 0) | ~kept), candidate, chosen)
        return chosen


class _TriStateCodec(ScalarCodec):
    """A boolean whose proto field also knows "unspecified", which means false."""

    def write(self, message: Any, field: str, value: bool) -> None:
        """1 for true, 2 for false."""
        setattr(message, field, 1 if value else 2)

    def read(self, message: Any, field: str) -> bool:
        """True for 1."""
        return bool(getattr(message, field) == 1)


TRI_STATE: Final = _TriStateCodec(Cursor.boolean, lambda value: "true" if value else "false")


@operation("scan", "*operands", computations=["to_apply"])
class Scan(Operation):
    """Applies a computation to the slices of arrays along a dimension, one after the other, carrying
    values on.

    ``(outputs..., carries...) = to_apply(slices..., carries...)`` at every step; the result is the outputs
    of all steps, stacked along the same dimension, then the last carries. A computation that returns one
    output and no tuple gives an array.

    Arguments:
        operands: the arrays that are sliced, then the initial carries.
        dimensions: the one dimension along which is scanned.
        num_carries: the number of carries.
        is_reverse: the last slice comes first; outputs stand where their slices stood.
        is_associative: a promise that lets devices combine steps in another order.
        to_apply: the computation of a step.
    """

    dimensions: tuple[int, ...] = dims()
    num_carries: int = integer(always=True)
    is_reverse: bool = flag()
    is_associative: bool = attribute(TRI_STATE, default=False, always=True)

    def _split(self, operands: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        inputs = len(operands) - self.num_carries
        if self.num_carries < 0 or inputs < 0:
            message = f"{self.num_carries} carries among {len(operands)} operands"
            raise ShapeError(message, rule="scan.carry-count")
        return tuple(operands[:inputs]), tuple(operands[inputs:])

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """Outputs with the scanned dimension put in, then the carries."""
        inputs, carries = self._split(operands)
        if not inputs:
            raise ShapeError("without arrays to scan the shape must be stated", rule="scan.inputs")
        axis = self._axis(inputs)
        size, dynamic = inputs[0].dimensions[axis], inputs[0].dynamic_dimensions[axis]
        return self._shape(inputs, carries, size, dynamic, computations[0])

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Without inputs, the stated outputs say how many steps there are."""
        inputs, carries = self._split(operands)
        if inputs:
            super().check(shape, *operands, computations=computations)
            return
        axis = self._axis(())
        leaves = shape.tuple_shapes if shape.is_tuple else (shape,)
        if len(leaves) <= len(carries) or axis >= leaves[0].rank:
            message = f"a scan without inputs needs an output with dimension {axis}, got {shape}"
            raise ShapeError(message, rule="scan.length")
        inferred = self._shape((), carries, leaves[0].dimensions[axis], False, computations[0])
        if not inferred.compatible(shape):
            message = f"the shape is stated as {shape}, but {inferred} follows from the operands"
            raise ShapeError(message, rule="instruction.shape-matches")

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

    def evaluate(self, run: Run, *operands: Value) -> Value:
        """Step by step."""
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
            values = value if isinstance(value, tuple) else (value,)
            carries = values[count:]
            for column, output in zip(outputs, values):
                column.append(output)
        stacked = [
            np.stack(column[::-1] if self.is_reverse else column, axis=axis)
            if column
            else np.zeros(leaf.dimensions, leaf.element_type.numpy_dtype)
            for column, leaf in zip(outputs, leaves)
        ]
        results = (*stacked, *carries)
        return results if run.shape.is_tuple else results[0]


def _without(sizes: tuple[Any, ...], dimension: int) -> tuple[Any, ...]:
    return sizes[:dimension] + sizes[dimension + 1 :]
