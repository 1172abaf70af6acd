"""Calls of Python functions by programs: pure_callback, io_callback, debug.print, buffer_callback.

JAX lowers them to custom calls with an index into the functions that it hands to the client's compiler. The
C interface has no place for those functions: a wrapper around JAX's ``backend_compile_and_load`` keeps them
beside the module, whose attribute ``hloom.callbacks`` names them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, cast

import numpy as np

from hloom.errors import EvaluationError
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Value
from hloom.jax import buffer_callbacks
from hloom.operations.custom_call import TARGETS
from hloom.runtime.ffi_attributes import parse_attributes

CALLBACK_TARGETS: Final = ("xla_ffi_python_cpu_callback", "xla_ffi_partitioned_python_cpu_callback")
_ATTRIBUTE: Final = "hloom.callbacks"
_MARK: Final = re.compile(rb"hloom-callbacks-(\d+);")
_numbers: Final = itertools.count(1)
_waiting: Final[dict[int, Sequence[Any]]] = {}
"""Functions of modules that are on their way to the compiler, by number."""
_bound: Final[dict[HloInstruction, Any]] = {}
"""Functions by the custom calls of compiled programs."""


def take_callbacks(code: bytes) -> Sequence[Any]:
    """Return the functions of a module on its way to the compiler."""
    found = _MARK.search(code)
    return _waiting.pop(int(found[1]), ()) if found is not None else ()


def bind(calls: Sequence[HloInstruction], functions: Sequence[Any]) -> list[HloInstruction]:
    """Bind the functions to the custom calls of a program that call them; return those calls."""
    found: list[HloInstruction] = []
    for call in calls:
        if getattr(call.operation, "custom_call_target", "") in (*CALLBACK_TARGETS, buffer_callbacks.TARGET):
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
    return buffer_callbacks.fill(_function_of(instruction), instruction, operands)


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


def install(platform_version: str) -> None:
    """Let JAX hand its callbacks over, and register the targets."""
    for target in CALLBACK_TARGETS:
        TARGETS[target] = _call
    TARGETS[buffer_callbacks.TARGET] = _fill
    compiler: Any = import_module("jax._src.compiler")
    original = compiler.backend_compile_and_load
    if getattr(original, "hloom", False):
        return

    def compile_and_load(
        backend: Any, module: Any, executable_devices: Any, options: Any, host_callbacks: Sequence[Any]
    ) -> Any:
        if host_callbacks and platform_version in backend.platform_version:
            ir: Any = import_module("jaxlib.mlir.ir")
            number = next(_numbers)
            _waiting[number] = list(host_callbacks)
            with module.context:
                mark = ir.StringAttr.get(f"hloom-callbacks-{number};")
                module.operation.attributes[_ATTRIBUTE] = mark
            host_callbacks = []
        return original(backend, module, executable_devices, options, host_callbacks)

    compile_and_load.hloom = True  # type: ignore[attr-defined]
    compiler.backend_compile_and_load = compile_and_load
