"""Deep copies of modules, so that passes can rewrite one and leave the other unchanged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, cast

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule, ModuleConfig
from hloom.ir.operation import Operation, ProgramShape
from hloom.shape.element_type import ElementType
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape

T = TypeVar("T")
_Convert = Callable[[Any], Any]
"""A shape, an operation or a literal with its element types replaced."""


def clone_module(module: HloModule) -> HloModule:
    """Return a deep copy under the same names; immutable operations, shapes and annotations are shared."""
    return _clone(module, _unchanged)


def clone_with_types(module: HloModule, element_type: Callable[[ElementType], ElementType]) -> HloModule:
    """Return a deep copy in which each element type, of shapes and of constants, is replaced by another."""
    return _clone(module, lambda value: _retyped(value, element_type))


def _unchanged(value: T) -> T:
    return value


def _retyped(value: object, element_type: Callable[[ElementType], ElementType]) -> Any:
    """Return a shape, a literal, or what contains them, in other element types."""

    def retyped(part: T) -> T:
        return _retyped(part, element_type)

    match value:
        case Shape() if value.is_array:
            return value.with_element_type(element_type(value.element_type))
        case Shape() if value.is_tuple:
            return Shape.tuple_(map(retyped, value.tuple_shapes))
        case Literal():
            return _retyped_literal(value, retyped(value.shape))
        case ProgramShape(parameters=parameters, result=result):
            return ProgramShape(tuple(map(retyped, parameters)), retyped(result))
        case Operation():
            fields = {a.field: getattr(value, a.field) for a in value.attributes}
            changes = {field: new for field, old in fields.items() if (new := retyped(old)) is not old}
            return value.replace(**changes) if changes else value
        case tuple():
            parts = cast("tuple[Any, ...]", value)
            return tuple(map(retyped, parts)) if any(isinstance(p, Shape) for p in parts) else parts
        case _:
            return value


def _retyped_literal(literal: Literal, shape: Shape) -> Literal:
    if literal.is_elided:
        return Literal.elided(shape)
    if shape.is_tuple:
        parts = zip(literal.elements, shape.tuple_shapes, strict=True)
        return Literal.tuple_(_retyped_literal(part, subshape) for part, subshape in parts)
    if literal.shape.element_type is shape.element_type:
        return literal
    return Literal(literal.array.astype(shape.element_type.numpy_dtype), shape)


def _clone(module: HloModule, convert: _Convert) -> HloModule:
    result = HloModule(module.name)
    result.config = _clone_config(module.config, convert)
    computations: dict[HloComputation, HloComputation] = {}
    pending = [*module.computations]
    while pending:
        computation = pending[-1]
        called = (c for i in computation.instructions for c in i.called_computations)
        callees = [c for c in called if c not in computations]
        pending += callees
        if not callees:
            pending.pop()
            if computation not in computations:
                computations[computation] = _clone_computation(computation, computations, convert)
    for computation in module.computations:
        result.add(computations[computation], entry=computation is module.entry)
    return result


def _clone_config(config: ModuleConfig, convert: _Convert) -> ModuleConfig:
    recovery = {
        lost: (recovered, None if program is None else _clone(program, convert))
        for lost, (recovered, program) in config.recovery_table.items()
    }
    return replace(
        config,
        entry_layout=convert(config.entry_layout),
        aliases=dict(config.aliases),
        buffer_donors=list(config.buffer_donors),
        frontend_attributes=dict(config.frontend_attributes),
        recovery_table=recovery,
    )


def _clone_computation(
    source: HloComputation, computations: dict[HloComputation, HloComputation], convert: _Convert
) -> HloComputation:
    target = HloComputation(source.name)
    target.execution_thread = source.execution_thread
    target.is_scheduled = source.is_scheduled
    target.unique_id = source.unique_id
    target.unmodelled = source.unmodelled
    copies: dict[HloInstruction, HloInstruction] = {}
    for instruction in source.post_order():
        copy = instruction.clone(
            operation=convert(instruction.operation),
            shape=convert(instruction.shape),
            operands=[copies[o] for o in instruction.operands],
            called_computations=[computations[c] for c in instruction.called_computations],
        )
        copy.unique_id = instruction.unique_id
        copies[instruction] = copy
        for predecessor in instruction.control_predecessors:
            copies[predecessor].add_control_dependency_to(copy)
    for instruction in source.instructions:
        target.add(copies[instruction])
    target.root = copies[source.root]
    return target
