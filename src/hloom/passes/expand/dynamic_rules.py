"""Static forms of operations on dynamic sizes; see `hloom.passes.expand.dynamic_writer`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hloom.analysis.instructions import operation_of
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.operations.arithmetic import Add, And, Divide, Maximum, Minimum, Multiply, Or, Subtract
from hloom.operations.comparison import Compare
from hloom.operations.contraction import Dot
from hloom.operations.control_flow import Call
from hloom.operations.convolution import Convolution
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.gather_scatter import Gather
from hloom.operations.movement import Concatenate, Pad, Reverse, Slice
from hloom.operations.reduction import Reduce
from hloom.operations.sorting import Sort
from hloom.operations.structure import GetDimensionSize, GetTupleElement, Parameter, SetDimensionSize
from hloom.passes.expand.dynamic_writer import Carried, DynamicWriter, Sized, padding
from hloom.shape.element_type import PRED, S32
from hloom.shape.shape import Shape


@padding("elementwise", "broadcast", "transpose", "iota")
def _bounds(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized | None:
    """Apply the operation to the padded arrays; the host rejects operands of different actual sizes.

    Of an operand of static size only the elements up to the actual size of the other operands count. A
    dynamic dimension that no operand has is as large as its bound.
    """
    sizes = w.carried_sizes(i, operands, static_fits=True)
    return None if sizes is None else w.result(i, w.on_bounds(i, [o.array for o in operands]), sizes)


@padding("bitcast-convert")
def _bitcast_convert(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized | None:
    (x,) = operands
    is_elementwise = i.shape.element_type.bits == x.array.shape.element_type.bits
    return w.result(i, w.on_bounds(i, [x.array]), x.sizes) if is_elementwise else None


@padding("reshape")
def _reshape(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized | None:
    """Reshape if dynamic dimensions are preserved, or the outermost one is split into smaller pieces."""
    (x,) = operands
    outermost = _outermost(w, i, x)
    if outermost is not None:
        return outermost
    before, after = x.array.shape.dimensions, i.shape.dimensions
    sizes: dict[int, HloInstruction] = {}
    for d, size in x.sizes.items():
        target = next((e for e in range(len(after)) if _same_place(before, d, after, e)), None)
        if target is None or not i.shape.dynamic_dimensions[target]:
            return None
        sizes[target] = size
    if len(sizes) != sum(i.shape.dynamic_dimensions):
        return None
    return w.result(i, w.on_bounds(i, [x.array]), sizes)


def _outermost(w: DynamicWriter, i: HloInstruction, x: Sized) -> Sized | None:
    """``f32[<=24] reshape(f32[<=6,4])``: valid elements are a prefix in both shapes."""
    before, after = x.array.shape.dimensions, i.shape.dimensions
    places = [e for e, flag in enumerate(i.shape.dynamic_dimensions) if flag]
    if len(x.sizes) != 1 or len(places) != 1:
        return None
    (d,), (e,) = x.sizes, places
    inner, piece = math.prod(before[d + 1 :]), math.prod(after[e + 1 :])
    if math.prod(before[:d]) != 1 or math.prod(after[:e]) != 1 or not piece or inner % piece:
        return None
    size = w.op(Multiply(), x.sizes[d], w.number(inner // piece))
    return w.result(i, w.on_bounds(i, [x.array]), {e: size})


def _same_place(before: Sequence[int], d: int, after: Sequence[int], e: int) -> bool:
    return math.prod(before[:d]) == math.prod(after[:e]) and before[d] == after[e]


@padding("reverse")
def _reverse(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized:
    """Reverse the padded array, then slice off the padding, which comes first."""
    (x,) = operands
    array = w.on_bounds(i, [x.array])
    reversed_ = operation_of(i, Reverse).dimensions
    for d in reversed_:
        if d in x.sizes:
            extents = array.shape.dimensions
            behind = w.op(Concatenate(dimensions=(d,)), array, w.full(0, array.shape))
            start = w.op(Subtract(), w.number(extents[d]), x.sizes[d])
            starts = [start if n == d else w.number(0) for n in range(len(extents))]
            array = w.op(DynamicSlice(dynamic_slice_sizes=extents), behind, *starts)
    return w.result(i, array, x.sizes)


@padding("sort")
def _sort(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Carried | None:
    """Sort padding last by an additional key operand that is 1 beyond the actual size."""
    (d,) = operation_of(i, Sort).dimensions
    rank = operands[0].array.shape.rank
    if any(w.agreed([(o, n) for o in operands]) is None for n in range(rank) if n in operands[0].sizes):
        return None
    if any(set(o.sizes) != set(operands[0].sizes) for o in operands):
        return None
    sizes, arrays = operands[0].sizes, [o.array for o in operands]
    if d in sizes:
        zeros = w.full(0, Shape(S32, arrays[0].shape.dimensions))
        arrays.append(w.masked(Sized(zeros, {d: sizes[d]}), w.number(1), [d]))
    comparator = i.called_computations[0]
    sorted_ = w.op(
        Sort(dimensions=(d,), is_stable=True),
        *arrays,
        computations=[_beyond_last(w, comparator) if d in sizes else comparator],
    )
    single = len(arrays) == 1
    parts = [sorted_ if single else w.op(GetTupleElement(index=n), sorted_) for n in range(len(operands))]
    if not i.shape.is_tuple:
        return w.result(i, parts[0], sizes)
    return [Sized(part, dict(sizes)) for part in parts]


def _beyond_last(w: DynamicWriter, comparator: HloComputation) -> HloComputation:
    """Return the comparator with two additional s32 parameters, which it compares first."""
    new = HloComputation(w.module.unique_name(comparator.name))

    def add(operation: Operation, shape: Shape, *operands: HloInstruction) -> HloInstruction:
        computations = [comparator] if isinstance(operation, Call) else []
        name = w.module.unique_name(operation.opcode)
        return new.add(HloInstruction(name, operation, shape, operands, computations))

    count = len(comparator.parameters)
    shapes = [*(p.shape for p in comparator.parameters), Shape(S32), Shape(S32)]
    parameters = [add(Parameter(parameter_number=n), shape) for n, shape in enumerate(shapes)]
    first, right = parameters[count:]
    before = add(Compare(direction="LT"), Shape(PRED), first, right)
    same = add(Compare(direction="EQ"), Shape(PRED), first, right)
    less = add(Call(), Shape(PRED), *parameters[:count])
    new.root = add(Or(), Shape(PRED), before, add(And(), Shape(PRED), same, less))
    return w.module.add(new)


@padding("gather")
def _gather(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Carried | None:
    """Return one slice per index vector; slices of padding indices are padding."""
    x, indices = operands
    o = operation_of(i, Gather)
    if x.sizes or o.index_vector_dim in indices.sizes or o.start_indices_batching_dims:
        return None
    return _bounds(w, i, operands)


@padding("convolution")
def _convolution(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Carried | None:
    """Convolve the padded batch; the actual batch size carries over to the result."""
    lhs, rhs = operands
    o = operation_of(i, Convolution)
    if rhs.sizes or set(lhs.sizes) != {o.dim_labels.input_batch_dimension} or o.batch_group_count != 1:
        return None
    return _bounds(w, i, operands)


@padding("slice")
def _slice(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized | None:
    """Compute the actual size of a slice: max(0, (min(limit, size) - start + stride - 1) / stride)."""
    (x,) = operands
    sizes: dict[int, HloInstruction] = {}
    for d, size in x.sizes.items():
        cut = operation_of(i, Slice).slice[d]
        if not i.shape.dynamic_dimensions[d]:
            return None
        end = w.op(Minimum(), size, w.number(cut.limit))
        count = w.op(Subtract(), end, w.number(cut.start - cut.stride + 1))
        count = w.op(Maximum(), count, w.number(0))
        sizes[d] = w.op(Divide(), count, w.number(cut.stride))
    return w.result(i, w.on_bounds(i, [x.array]), sizes)


@padding("pad")
def _pad(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized | None:
    x, value = operands
    sizes: dict[int, HloInstruction] = {}
    for d, size in x.sizes.items():
        pad = operation_of(i, Pad).padding[d]
        gaps = w.op(Maximum(), w.op(Subtract(), size, w.number(1)), w.number(0))
        grown = w.op(Add(), size, w.op(Multiply(), gaps, w.number(pad.interior)))
        if pad.low + pad.high < 0:
            return None
        sizes[d] = w.op(Add(), grown, w.number(pad.low + pad.high))
    filled = w.masked(x, value.array, sorted(x.sizes))
    return w.result(i, w.on_bounds(i, [filled, value.array]), sizes)


@padding("concatenate")
def _concatenate(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized | None:
    """Write the operands in order, each at the actual end of the one before."""
    (dimension,) = operation_of(i, Concatenate).dimensions
    sizes = w.carried_sizes(i, operands)
    if sizes is None:
        return None
    total = w.full(0, i.shape.to_static().without_layout())
    start = zero = w.number(0)
    for o in operands:
        starts = [start if d == dimension else zero for d in range(i.shape.rank)]
        total = w.op(DynamicUpdateSlice(), total, o.array, *starts)
        start = w.op(Add(), start, w.size(o, dimension))
    sizes[dimension] = start
    return w.result(i, total, sizes)


@padding("get-dimension-size")
def _get_dimension_size(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized:
    return Sized(w.size(operands[0], operation_of(i, GetDimensionSize).dimensions[0]))


@padding("set-dimension-size")
def _set_dimension_size(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized:
    """Set elements beyond the old size to zero; for a static result also those beyond the new size.

    Other dimensions that are static in the result are filled with zeros as well.
    """
    x, size = operands
    d = operation_of(i, SetDimensionSize).dimensions[0]
    extent = w.limited(size.array, 0, i.shape.dimensions[d])
    array = w.masked(
        x, w.zero(x), [n for n, flag in enumerate(i.shape.dynamic_dimensions) if n == d or not flag]
    )
    sizes = dict(x.sizes)
    sizes.pop(d, None)
    if i.shape.dynamic_dimensions[d]:
        sizes[d] = extent
    else:
        cut = Sized(array, {d: extent})
        array = w.masked(cut, w.zero(x), [d])
    return w.result(i, array, sizes)


@padding("reduce")
def _reduce(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Carried | None:
    """Replace padding by the neutral element, then reduce the padded array."""
    half = len(operands) // 2
    reduced = operation_of(i, Reduce).dimensions
    inputs, initial = operands[:half], operands[half:]
    sizes = w.carried_sizes(i, operands)
    if sizes is None:
        return None
    arrays = [o.array for o in inputs]
    if any(d in o.sizes for o in inputs for d in reduced):
        neutral = _neutral(i) if half == 1 else None
        if neutral is None:
            return None
        arrays = [w.masked(o, w.scalar(neutral, o.array.shape.element_type), reduced) for o in inputs]
    reduction = w.on_bounds(i, [*arrays, *(v.array for v in initial)])
    if not i.shape.is_tuple:
        return w.result(i, reduction, sizes)
    return [
        Sized(w.op(GetTupleElement(index=n), reduction), sizes if s.is_dynamic else {})
        for n, s in enumerate(i.shape.tuple_shapes)
    ]


def _neutral(i: HloInstruction) -> complex | None:
    """Return the neutral element of a single-operand reduction; None if unknown."""
    computation, kind = i.called_computations[0], i.operands[0].shape.element_type
    root, parameters = computation.root, computation.parameters
    if len(parameters) != 2 or set(root.operands) != set(parameters):
        return None
    match root.operation:
        case Add() if kind.is_complex:
            return complex(-0.0, -0.0)
        case Multiply() if kind.is_complex:
            return 1
        case operation:
            return operation.neutral_element(kind)


@padding("dot")
def _dot(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized | None:
    """Replace contracted elements beyond the size of either operand by zero."""
    lhs, rhs = operands
    o = operation_of(i, Dot)
    sizes = w.carried_sizes(i, operands)
    if sizes is None:
        return None
    for d, e in zip(o.lhs_contracting_dims, o.rhs_contracting_dims, strict=True):
        if d in lhs.sizes or e in rhs.sizes:
            shared = w.op(Minimum(), w.size(lhs, d), w.size(rhs, e))
            lhs, rhs = Sized(lhs.array, {**lhs.sizes, d: shared}), Sized(rhs.array, {**rhs.sizes, e: shared})
    a = w.masked(lhs, w.zero(lhs), o.lhs_contracting_dims)
    b = w.masked(rhs, w.zero(rhs), o.rhs_contracting_dims)
    return w.result(i, w.on_bounds(i, [a, b]), sizes)
