"""Steps that shrink a program together with its arguments; each returns a changed copy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import numpy as np

from hloom.debug.cut import cut, inlined, named, reset_config
from hloom.debug.tracing import Event, trace
from hloom.errors import HloError
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.ir.value import Array, Value
from hloom.operations.dynamic_slicing import DynamicSlice
from hloom.operations.gather_scatter import Gather
from hloom.operations.movement import Broadcast, Slice
from hloom.operations.rounding import convert
from hloom.operations.structure import Constant, GetTupleElement, Parameter, Tuple
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.records import dataclass
from hloom.shape.element_type import C64, C128, F32, F64, S32, S64, U32, U64, ElementType
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape

ArrayMap: TypeAlias = Callable[[Array], Array]
ShapeMap: TypeAlias = Callable[[Shape], Shape]
Edit: TypeAlias = Callable[[HloModule, HloInstruction], HloInstruction]
NARROWER: Final[dict[ElementType, ElementType]] = {F64: F32, C128: C64, S64: S32, U64: U32}


@dataclass(frozen=True)
class Reproducer:
    """A program of one device with its arguments: a candidate in the search for a smaller faulty program.

    Attributes:
        module: the program; it is never changed.
        inputs: the arguments by parameter name.
    """

    module: HloModule
    inputs: dict[str, Value]

    @staticmethod
    def of(module: HloModule, arguments: Sequence[Value]) -> Reproducer:
        """Return a reproducer of a program; ``arguments`` are in the order of the entry's parameters."""
        names = [p.name for p in module.entry.parameters]
        return Reproducer(module, dict(zip(names, arguments, strict=True)))

    @property
    def arguments(self) -> list[Value]:
        """The arguments in the order of the parameters."""
        return [self.inputs[p.name] for p in self.module.entry.parameters]

    @property
    def size(self) -> int:
        """The number of instructions in all computations."""
        return sum(len(c) for c in self.module.computations)

    @property
    def weight(self) -> tuple[int, int]:
        """The size by which programs are compared: the numbers of instructions and of the elements computed.

        A reduction searches for a program whose pair is the least in lexicographic order.
        """
        elements = sum(
            shape.element_count
            for i in self.module.instructions()
            for _, shape in i.shape.leaves()
            if shape.is_array
        )
        return self.size, elements

    def values(self) -> tuple[dict[str, Value], list[Event]]:
        """Evaluate the program; return the values of the entry's instructions by name, and all events.

        An event is the value of one instruction in one execution (`Event`). If the evaluation raises an
        HloError, the values and events before it are returned.
        """
        events: list[Event] = []
        with suppress(HloError):
            trace(self.module, self.arguments, keep_values=False, observe=events.append)
        return {e.instruction.name: e.value for e in events if not e.callers}, events


# -- instructions


def flattened(program: Reproducer) -> Reproducer:
    """Return a copy of a program with calls and fusions inlined."""
    return Reproducer(inlined(program.module), program.inputs)


def forwarded(program: Reproducer) -> Reproducer:
    """Return a copy of a program with each get-tuple-element of a tuple instruction replaced.

    The tuple's operand at that index takes its place.
    """
    copy = program.module.clone()
    for i in copy.instructions():
        if isinstance(i.operation, GetTupleElement) and isinstance(i.operands[0].operation, Tuple):
            replaced(i, i.operands[0].operands[i.operation.index])
    return cleaned(Reproducer(copy, program.inputs))


def with_ones(program: Reproducer, name: str, positions: Sequence[int]) -> Reproducer | None:
    """Return a copy of a program with elements of the argument ``name``, an array, replaced by 1.

    ``positions`` are the linear indices of the elements. Returns None if all of them are 1 already.
    """
    array = np.array(program.inputs[name])
    flat = array.reshape(-1)
    if (flat[positions] == 1).all():
        return None
    flat[positions] = np.ones((), array.dtype)
    return Reproducer(program.module, {**program.inputs, name: flat.reshape(array.shape)})


def with_parameters(program: Reproducer, names: set[str], values: dict[str, Value]) -> Reproducer:
    """Return a copy of a program with the entry's instructions ``names`` replaced by parameters.

    ``values`` has the values of these instructions by name; they become the arguments of the new parameters.
    """
    copy = program.module.clone()
    reset_config(copy)
    inputs = dict(program.inputs)
    number = len(copy.entry.parameters)
    for old in copy.entry:
        if old.name not in names or isinstance(old.operation, Parameter):
            continue
        new = HloInstruction(copy.unique_name("p"), Parameter(parameter_number=number), old.shape)
        number += 1
        copy.entry.add(new)
        old.drop_control_dependencies()
        old.replace_all_uses_with(new)
        inputs[new.name] = values[old.name]
    return cleaned(Reproducer(copy, inputs))


def with_result(program: Reproducer, names: Sequence[str]) -> Reproducer:
    """Return a copy of a program that returns the values of the entry's instructions ``names``.

    The result is a single value for one name, and a tuple for several. Instructions that it does not need are
    removed.
    """
    entry = program.module.entry.instructions
    if len(names) > 1:
        return cleaned(
            Reproducer(cut(program.module, [named(entry, name) for name in names]), program.inputs)
        )
    copy = program.module.clone()
    reset_config(copy)
    copy.entry.root = named(copy.entry.instructions, names[0])
    return cleaned(Reproducer(copy, program.inputs))


def with_operand(program: Reproducer, computation: str, name: str, operand: int) -> Reproducer:
    """Return a copy of a program with instruction ``name`` of a computation replaced by one of its operands.

    ``computation`` is the name of the computation, ``operand`` the index of the operand.
    """
    return edited(program, computation, name, lambda _, i: i.operands[operand])


def with_zeros(program: Reproducer, computation: str, names: set[str]) -> Reproducer:
    """Return a copy of a program with some instructions of a computation replaced by zeros.

    ``computation`` is the name of the computation, ``names`` are those of the instructions.
    """
    copy = program.module.clone()
    inside = named(copy.computations, computation)
    for instruction in inside:
        if instruction.name in names:
            replaced(instruction, zeros(copy, inside, instruction.shape))
    return cleaned(Reproducer(copy, program.inputs))


def merged(program: Reproducer, kept: str, dropped: str) -> Reproducer:
    """Return a copy of a program with parameter ``dropped`` of the entry replaced by parameter ``kept``."""
    copy = program.module.clone()
    reset_config(copy)
    entry = copy.entry.instructions
    named(entry, dropped).replace_all_uses_with(named(entry, kept))
    return cleaned(Reproducer(copy, program.inputs))


def edited(program: Reproducer, computation: str, name: str, new: Edit) -> Reproducer:
    """Return a copy of a program with instruction ``name`` of the computation named ``computation`` replaced.

    ``new(module, instruction)`` returns the replacement, given the copied program and the instruction in it.
    """
    copy = program.module.clone()
    inside = named(copy.computations, computation)
    instruction = named(inside, name)
    replaced(instruction, new(copy, instruction))
    return cleaned(Reproducer(copy, program.inputs))


def replaced(old: HloInstruction, new: HloInstruction) -> None:
    """Replace all uses of ``old`` by ``new``; ``old`` becomes dead code."""
    old.drop_control_dependencies()
    old.replace_all_uses_with(new)


def zeros(module: HloModule, computation: HloComputation, shape: Shape) -> HloInstruction:
    """Add a zero constant, broadcast to ``shape``, to a computation; return the instruction."""
    scalar = Shape(shape.element_type)
    zero = Literal(np.zeros((), shape.element_type.numpy_dtype), scalar)
    zero_instruction = HloInstruction(module.unique_name("zero"), Constant(literal=zero), scalar)
    computation.add(zero_instruction)
    if not shape.rank:
        return zero_instruction
    spread = HloInstruction(module.unique_name("zeros"), Broadcast(dimensions=()), shape, [zero_instruction])
    return computation.add(spread)


def cleaned(program: Reproducer) -> Reproducer:
    """Return a program without dead code and unused parameters, and without their arguments.

    The program's module is changed; callers pass a copy.
    """
    module = program.module
    reset_config(module)
    DeadCodeElimination().run(module)
    remaining: list[HloInstruction] = []
    for parameter in module.entry.parameters:
        if parameter.users or parameter.is_root:
            remaining.append(parameter)
        else:
            parameter.drop_control_dependencies()
            module.entry.remove(parameter)
    for number, parameter in enumerate(remaining):
        operation: Any = parameter.operation
        parameter.operation = dataclasses.replace(operation, parameter_number=number)
    return Reproducer(module, {p.name: program.inputs[p.name] for p in remaining})


# -- shapes


def resized(program: Reproducer, old: int, new: int) -> Reproducer:
    """Return a copy of a program in which all dimensions of size ``old`` have size ``new``.

    Of arguments and constants, the first ``new`` elements along these dimensions remain.
    """

    def shape_of(shape: Shape) -> Shape:
        sizes = tuple(new if size == old else size for size in shape.dimensions)
        return shape if sizes == shape.dimensions else shape.with_dimensions(sizes, shape.dynamic_dimensions)

    def array_of(array: Array) -> Array:
        ranges = tuple([slice(new) if size == old else slice(None) for size in np.shape(array)])
        part = np.asarray(array)[ranges]
        return np.ascontiguousarray(part).reshape(part.shape)

    mapped = _mapped(program, shape_of, array_of)
    for i in mapped.module.instructions():
        i.operation = _resized_operation(i.operation, old, new)
    return mapped


def _resized_operation(operation: Operation, old: int, new: int) -> Operation:
    """Return an operation with size ``old`` replaced by ``new`` in those attributes that state sizes."""

    def sizes(stored: Sequence[int]) -> tuple[int, ...]:
        return tuple([new if size == old else size for size in stored])

    if isinstance(operation, Slice):
        ranges = tuple([dataclasses.replace(r, limit=new) if r.limit == old else r for r in operation.slice])
        return dataclasses.replace(operation, slice=ranges)
    if isinstance(operation, DynamicSlice):
        return dataclasses.replace(operation, dynamic_slice_sizes=sizes(operation.dynamic_slice_sizes))
    if isinstance(operation, Gather):
        return dataclasses.replace(operation, slice_sizes=sizes(operation.slice_sizes))
    return operation


def without_dimension(program: Reproducer) -> Reproducer | None:
    """Return a copy of a program without the first dimension of every array.

    Arguments and constants keep the elements at index 0 of that dimension. Returns None unless all operations
    are elementwise and all arrays that are not scalars have the same shape.
    """
    shapes = {i.shape.dimensions for i in program.module.instructions() if i.shape.is_array and i.shape.rank}
    if len(shapes) != 1 or not all(map(_is_simple, program.module.instructions())):
        return None
    if not all(next(iter(shapes))):
        return None

    def shape_of(shape: Shape) -> Shape:
        return shape.with_dimensions(shape.dimensions[1:]) if shape.rank else shape

    return _mapped(program, shape_of, lambda array: np.asarray(array)[0] if np.ndim(array) else array)


def _is_simple(i: HloInstruction) -> bool:
    """Return whether an instruction is elementwise, a scalar's broadcast, a parameter, constant or tuple."""
    if isinstance(i.operation, Broadcast):
        return not i.operands[0].shape.rank
    return i.operation.elementwise or isinstance(i.operation, Parameter | Constant | Tuple)


def narrowed(program: Reproducer, old: ElementType) -> Reproducer:
    """Return a copy of a program in which arrays of element type ``old`` have the type of half its width.

    ``old`` is a key of `NARROWER`, whose value is the narrower type.
    """
    new = NARROWER[old]

    def shape_of(shape: Shape) -> Shape:
        return shape.with_element_type(new) if shape.element_type is old else shape

    def array_of(array: Array) -> Array:
        converted = np.asarray(array)
        return convert(converted, new.numpy_dtype) if converted.dtype == old.numpy_dtype else converted

    return _mapped(program, shape_of, array_of)


def without_metadata(program: Reproducer) -> Reproducer:
    """Return a copy of a program without metadata, shardings, frontend attributes and backend configurations.

    Layouts are reset to the default except where an operation's semantics depend on them.
    """
    copy = program.module.clone()
    reset_config(copy)
    for i in copy.instructions():
        i.metadata = i.sharding = i.frontend_attributes = i.original_value = i.statistics = None
        i.backend_config = ""
        if not i.operation.reads_layout:
            i.shape = i.shape.with_default_layout()
    return Reproducer(copy, program.inputs)


def _mapped(program: Reproducer, shape_of: ShapeMap, array_of: ArrayMap) -> Reproducer:
    """Return a copy of a program with ``shape_of`` applied to all array shapes and ``array_of`` to all data.

    The data are the constants of the program and its arguments.
    """
    copy = program.module.clone()
    reset_config(copy)
    for i in copy.instructions():
        i.shape = _leaves_mapped(i.shape, shape_of)
        if isinstance(i.operation, Constant) and i.shape.is_array and not i.operation.literal.is_elided:
            i.operation = Constant(literal=Literal(array_of(i.operation.literal.array), i.shape))
    inputs = {name: _value_mapped(value, array_of) for name, value in program.inputs.items()}
    return Reproducer(copy, inputs)


def _leaves_mapped(shape: Shape, change: ShapeMap) -> Shape:
    if shape.is_tuple:
        return Shape.tuple_([_leaves_mapped(part, change) for part in shape.tuple_shapes])
    return change(shape) if shape.is_array else shape


def _value_mapped(value: Value, change: ArrayMap) -> Value:
    if isinstance(value, tuple):
        return tuple([_value_mapped(part, change) for part in value])
    return value if value is None else change(value)
