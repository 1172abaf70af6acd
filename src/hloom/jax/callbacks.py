"""Calls of Python functions by programs: pure_callback, io_callback, debug.print, buffer_callback.

JAX lowers them to custom calls with an index into the functions that it hands over; see `hloom.jax.handover`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from hloom.errors import EvaluationError

if TYPE_CHECKING:
    from hloom.ir.instruction import HloInstruction
    from hloom.ir.operation import Value

TILEWISE_TARGET: Final = "xla_ffi_partitioned_python_cpu_callback"
"""Each device calls the function with its tiles."""
CALLBACK_TARGETS: Final = ("xla_ffi_python_cpu_callback", TILEWISE_TARGET)
BUFFER_TARGET: Final = "xla_buffer_python_cpu_callback"
_bound: Final[dict[HloInstruction, Any]] = {}
"""Functions by the custom calls of compiled programs."""


def bind(calls: Sequence[HloInstruction], functions: Sequence[Any]) -> list[HloInstruction]:
    """Bind the functions to the custom calls of a program that call them; return those calls."""
    from hloom.operations.ffi_attributes import parse_attributes

    targets = (*CALLBACK_TARGETS, BUFFER_TARGET)
    found: list[HloInstruction] = []
    for call in calls:
        if getattr(call.operation, "custom_call_target", "") in targets:
            _bound[call] = functions[int(parse_attributes(call.backend_config)["index"])]
            found.append(call)
    return found


def unbind(calls: Sequence[HloInstruction]) -> None:
    """Forget the functions of calls."""
    for call in calls:
        _bound.pop(call, None)


def _function_of(instruction: HloInstruction) -> Any:
    function = _bound.get(instruction)
    if function is None:
        message = "the Python function of this callback belongs to another process or executable"
        raise EvaluationError(message, rule="jax.callback").at(instruction=instruction.name)
    return function


def _fill(instruction: HloInstruction, operands: Sequence[Value]) -> Any:
    """Run the function of a custom call on buffers."""
    from hloom.jax.buffer_callbacks import fill

    return fill(_function_of(instruction), instruction, operands)


def _call(instruction: HloInstruction, operands: Sequence[Value]) -> Any:
    """Run the function of a custom call."""
    function = _function_of(instruction)
    results: Any = function(*[_immutable(operand) for operand in operands])
    shapes = instruction.shape.tuple_shapes if instruction.shape.is_tuple else (instruction.shape,)
    given = cast("Sequence[Any]", results if isinstance(results, (tuple, list)) else (results,))
    values = [
        np.asarray(value).reshape(shape.dimensions) if shape.is_array else None
        for shape, value in zip(shapes, given, strict=True)
    ]
    return tuple(values) if instruction.shape.is_tuple else values[0]


def _immutable(value: Value) -> Any:
    if value is None:
        return None
    array = np.array(value)
    array.flags.writeable = False
    return array


def register_targets() -> None:
    """Register the custom calls by which programs call the functions."""
    from hloom.operations.custom_call import TARGETS

    TARGETS.update(dict.fromkeys(CALLBACK_TARGETS, _call) | {BUFFER_TARGET: _fill})
