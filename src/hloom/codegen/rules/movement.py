"""Element rules of the operations that move data: they map the index and pass on."""

from __future__ import annotations

from hloom.analysis.instructions import operation_of
from hloom.codegen import types
from hloom.codegen.elements import Elements, Indices, Steps, element_rule
from hloom.codegen.llvm import I64, Value
from hloom.codegen.types import Element, wrap
from hloom.ir.affine import Index, delinearize, linearize
from hloom.ir.instruction import HloInstruction
from hloom.operations.dynamic_slicing import DynamicSlice
from hloom.operations.gather_scatter import Gather
from hloom.operations.movement import Concatenate, Pad
from hloom.operations.structure import Constant, Iota
from hloom.plan.index_maps import moved_indices


@element_rule("broadcast", "transpose", "slice", "reverse")
def _moved(e: Elements, instruction: HloInstruction, indices: Indices) -> Steps:
    source = moved_indices(instruction, indices)
    assert source is not None
    return (yield instruction.operands[0], source)


@element_rule("reshape", "dynamic-reshape")
def _reshape(e: Elements, instruction: HloInstruction, indices: Indices) -> Steps:
    operand = instruction.operands[0]
    linear = linearize(indices, instruction.shape.dimensions)
    sizes = operand.shape.dimensions
    source = delinearize(linear, sizes)
    if source is None and is_read_in_order(e, operand):
        source = (*(Index(0) for _ in sizes[1:]), linear)
    return (yield operand, source if source is not None else divided(e, linear, sizes))


def is_read_in_order(e: Elements, instruction: HloInstruction) -> bool:
    """Return whether each element depends only on those at the same linear index."""
    waiting, seen = [instruction], {instruction}
    while waiting:
        i = waiting.pop()
        view = e.views.get(i)
        if view is not None:
            if view.strides is not None:
                return False
        elif i.opcode == "broadcast" and not i.operands[0].shape.rank:
            continue
        elif i.operation.elementwise or i.opcode == "reshape":
            fresh = [o for o in i.operands if o.shape.rank and o not in seen]
            seen.update(fresh)
            waiting.extend(fresh)
        else:
            return False
    return True


def divided(e: Elements, linear: Index, dimensions: tuple[int, ...]) -> Indices:
    """Return the multi-index of a linear index, by division if not affine (a reshape across dimensions)."""
    if 0 in dimensions:
        return (Index(0),) * len(dimensions)
    found: list[Index] = []
    rest = linear
    for size in reversed(dimensions[1:]):
        outer = rest.divide(size)
        if outer is not None:
            found.append(rest - outer * size)
        else:
            e.pin(rest)
            value = e.index_value(rest)
            quotient = value.unsigned_divide(size)
            found.append(e.opaque(value - quotient * size, size))
            outer = e.opaque(quotient, max(1, rest.maximum() // size + 1))
        rest = outer
    return (held_inside(e, rest, dimensions[0]), *reversed(found)) if dimensions else ()


def held_inside(e: Elements, index: Index, size: int) -> Index:
    """Return the index, clamped to [0, size) if masked lanes may lie outside."""
    if e.mask is None or (index.minimum() >= 0 and index.maximum() < size):
        return index
    value = e.index_value(index)
    top = e.function.constant(value.type, max(size - 1, 0))
    return e.opaque(e.function.intrinsic("umin", value, top), size)


@element_rule("pad")
def _pad(e: Elements, instruction: HloInstruction, indices: Indices) -> Steps:
    operand, padding_value = instruction.operands
    source: list[Index] = []
    condition: Value | None = None
    padding = operation_of(instruction, Pad).padding
    for index, size, pad in zip(indices, operand.shape.dimensions, padding, strict=True):
        moved = index + -pad.low
        step = pad.interior + 1
        if step > 1:
            exact = moved.divide(step) if moved.minimum() >= 0 else None
            if exact is not None and exact * step == moved:
                moved = exact
            else:
                e.pin(moved)
                value = e.index_value(moved)
                quotient = value.unsigned_divide(step)
                condition = also(e, condition, (quotient * step).compare("eq", value))
                inside = value.compare("ult", max(size - 1, 0) * step + 1)
                condition = also(e, condition, inside)
                held = e.function.intrinsic(
                    "umin", quotient, e.function.constant(quotient.type, max(size - 1, 0))
                )
                source.append(e.opaque(held, max(size, 1)))
                continue
        condition = also(e, condition, e.inside(moved, size))
        source.append(moved)
    outside = yield padding_value, ()
    if condition is None:
        return (yield operand, tuple(source))
    if 0 in operand.shape.dimensions:
        return outside
    with e.masked(condition):
        value = yield operand, tuple(source)
    return e.choose(condition, value, outside)


def also(e: Elements, a: Value | None, b: Value | None) -> Value | None:
    """Return the conjunction of two conditions, where None is always true."""
    if a is None or b is None:
        return a if b is None else b
    return e.both(a, b)


@element_rule("concatenate")
def _concatenate(e: Elements, instruction: HloInstruction, indices: Indices) -> Steps:
    (dimension,) = operation_of(instruction, Concatenate).dimensions
    place = indices[dimension]
    start = 0
    parts: list[tuple[int, HloInstruction]] = []
    for operand in instruction.operands:
        size = operand.shape.dimensions[dimension]
        if size and start <= place.maximum() and start + size > place.minimum():
            parts.append((start, operand))
        start += size
    made: Element | None = None
    for begin, operand in reversed(parts):
        size = operand.shape.dimensions[dimension]
        condition = e.inside(place + -begin, size)
        source = (*indices[:dimension], place + -begin, *indices[dimension + 1 :])
        with e.masked(condition):
            value = yield operand, source
        made = value if made is None or condition is None else e.choose(condition, value, made)
    assert made is not None
    return made


@element_rule("iota")
def _iota(e: Elements, instruction: HloInstruction, indices: Indices) -> Element:
    index = indices[operation_of(instruction, Iota).iota_dimension]
    e.pin(index)
    value = e.index_value(index)
    element_type = instruction.shape.element_type
    register = types.register_type(element_type)
    if element_type.is_floating or element_type.is_complex:
        converted = value.cast("sitofp", register)
        rounded = types.round_to(converted, element_type) if element_type.is_floating else converted
        return (rounded, _like(rounded, 0.0)) if element_type.is_complex else rounded
    narrow = value.cast("trunc", register) if register is not I64 else value
    return wrap(narrow, element_type)


def _like(value: Value, number: float) -> Value:
    return value.function.constant(value.type, number)


@element_rule("constant")
def _constant(e: Elements, instruction: HloInstruction, indices: Indices) -> Element:
    """Emit a constant of one element; larger ones are in memory."""
    element_type = instruction.shape.element_type
    single = operation_of(instruction, Constant).literal.array.reshape(-1)[0]
    if element_type.is_complex:
        return types.constant(e.function, element_type, complex(single))
    if element_type.is_floating:
        return e.function.constant(types.register_type(element_type), float(single))
    return e.function.constant(types.register_type(element_type), int(single))


def clamped_start(e: Elements, start: HloInstruction, largest: int) -> Index:
    """Clamp a start index to [0, largest], for any integer type and value."""
    return clamped(e, start, e.element(start, ()), largest)


def clamped(e: Elements, starts: HloInstruction, value: Element, largest: int) -> Index:
    """Clamp an element of start indices to [0, largest]."""
    assert isinstance(value, Value)
    return e.opaque(clamp_index(e, value, starts.shape.element_type.is_signed, largest), largest + 1)


def clamp_index(e: Elements, value: Value, signed: bool, largest: int) -> Value:
    """Clamp an integer to [0, largest], as i64."""
    wide = value.cast("sext" if signed else "zext", I64) if value.type.scalar is not I64 else value
    top = e.function.constant(wide.type, largest)
    if not signed:
        return e.function.intrinsic("umin", wide, top)
    return e.function.intrinsic(
        "smin", e.function.intrinsic("smax", wide, e.function.constant(wide.type, 0)), top
    )


@element_rule("dynamic-slice")
def _dynamic_slice(e: Elements, instruction: HloInstruction, indices: Indices) -> Steps:
    operand, *starts = instruction.operands
    sizes = operation_of(instruction, DynamicSlice).dynamic_slice_sizes
    source: list[Index] = []
    for index, start, extent, size in zip(indices, starts, operand.shape.dimensions, sizes, strict=True):
        source.append(index + clamped(e, start, (yield start, ()), extent - size))
    return (yield operand, tuple(source))


@element_rule("dynamic-update-slice")
def _dynamic_update_slice(e: Elements, instruction: HloInstruction, indices: Indices) -> Steps:
    operand, update, *starts = instruction.operands
    condition: Value | None = None
    source: list[Index] = []
    for index, start, whole, size in zip(
        indices, starts, operand.shape.dimensions, update.shape.dimensions, strict=True
    ):
        moved = index - clamped(e, start, (yield start, ()), whole - size)
        e.pin(moved)
        condition = also(e, condition, e.index_value(moved).compare("ult", size) if size < whole else None)
        source.append(moved)
    old = yield operand, indices
    if 0 in update.shape.dimensions:
        return old
    with e.masked(condition):
        new = yield update, tuple(source)
    return new if condition is None else e.choose(condition, new, old)


@element_rule("gather")
def _gather(e: Elements, instruction: HloInstruction, indices: Indices) -> Steps:
    """Load operand[start + offset] with the start clamped to keep the slice in bounds; 0 for empty slices."""
    operation = operation_of(instruction, Gather)
    operand, start_indices = instruction.operands
    if 0 in operation.slice_sizes:
        element_type = operand.shape.element_type
        return types.constant(e.function, element_type, 0)
    batch = [i for d, i in enumerate(indices) if d not in operation.offset_dims]
    offsets = iter([indices[d] for d in operation.offset_dims])
    source: list[Index] = []
    for d, whole in enumerate(operand.shape.dimensions):
        index = Index(0)
        if d in operation.start_index_map:
            place = [*batch]
            if operation.index_vector_dim < start_indices.shape.rank:
                place.insert(operation.index_vector_dim, Index(operation.start_index_map.index(d)))
            value = yield start_indices, tuple(place)
            index = index + clamped(e, start_indices, value, whole - operation.slice_sizes[d])
        if d in operation.operand_batching_dims:
            dimension = operation.start_indices_batching_dims[operation.operand_batching_dims.index(d)]
            index = index + batch[dimension - (dimension > operation.index_vector_dim)]
        elif d not in operation.collapsed_slice_dims:
            index = index + next(offsets)
        source.append(index)
    return (yield operand, tuple(source))
