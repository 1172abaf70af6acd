"""Targets of custom calls: Python functions of arrays, and C functions.

::

    hloom.register_custom_call("double", lambda x: x * 2)
    hloom.register_custom_call("myfunc", library.myfunc)     # void myfunc(void* out, void** in)
"""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np

from hloom.errors import EvaluationError
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Value
from hloom.operations.custom_call import TARGETS, CustomCall, Target
from hloom.operations.ffi import Handler, StagedHandler, function_cell
from hloom.operations.ffi_attributes import Attributes, parse_attributes
from hloom.operations.ffi_services import STAGES
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape

_TYPED: Final = "API_VERSION_TYPED_FFI"
_EXTRAS: Final[dict[str, Callable[[HloInstruction], object]]] = {
    "backend_config": lambda instruction: instruction.backend_config,
    "instruction": lambda instruction: instruction,
}
_CFunction: Final = ctypes.CFUNCTYPE(None).__base__ or object
_SIGNATURE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))


def register_custom_call(name: str, function: Callable[..., object] | int | Mapping[str, object]) -> None:
    """Register the function of custom calls of the target ``name``, replacing an earlier one.

    Args:
        name: the ``custom_call_target``.
        function: a Python function from the operands as numpy arrays (nested tuples, None for a token) to the
            result in the same form; it also receives ``backend_config`` or ``instruction`` if it has a
            keyword parameter of that name. Or a C function: a function of a ctypes library, its address, or a
            capsule with it. Calls of API_VERSION_TYPED_FFI call it as a handler of XLA's typed FFI
            (`hloom.operations.ffi`), others as ``void target(void* out, void** in)``. ``in`` has a pointer
            for each operand, to its elements in the order of its layout; ``out`` points to memory for the
            result.
            For a tuple the pointer is to an array of pointers, one for each element. A typed call of several
            stages is a mapping from their names to C functions: ``instantiate``, ``prepare``, ``initialize``
            and ``execute``, the only one that must be there.

    Raises EvaluationError if the function is none of these.
    """
    if not isinstance(cast("object", name), str):
        raise EvaluationError(f"a custom call target is a string, got {name!r}", rule="custom-call.name")
    if isinstance(function, Mapping):
        TARGETS[name] = _staged(name, cast("Mapping[str, Any]", function))
        function_cell(name).value = None
        return
    capsule = _is_capsule(function)
    if isinstance(function, bool) or not (isinstance(function, int) or callable(function) or capsule):
        message = f"custom call target {name!r}: a function or an address is wanted, got {function!r}"
        raise EvaluationError(message, rule="custom-call.function")
    native = isinstance(function, int) or capsule or isinstance(cast("object", function), _CFunction)
    TARGETS[name] = (_native if native else _python)(name, cast("Any", function))
    function_cell(name).value = _address(function) if native else None


def unregister_custom_call(name: str) -> None:
    """Remove a target, if it is registered."""
    TARGETS.pop(name, None)
    function_cell(name).value = None


# -- Python functions


def _python(name: str, function: Callable[..., object]) -> Target:
    try:
        parameters: Mapping[str, inspect.Parameter] = inspect.signature(function).parameters
    except (TypeError, ValueError):
        parameters = {}
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    extra_names = [key for key in _EXTRAS if key in parameters and parameters[key].kind in named]

    def target(instruction: HloInstruction, operands: Sequence[Value]) -> object:
        extras = {key: _EXTRAS[key](instruction) for key in extra_names}
        try:
            return function(*operands, **extras)
        except Exception as error:
            message = f"custom call target {name!r} failed: {type(error).__name__}: {error}"
            raise EvaluationError(message, rule="custom-call.failed") from error

    return target


# -- C functions


def _native(name: str, function: object) -> Target:
    address = _address(function) or 0
    call, handler = _SIGNATURE(address), Handler(name, address)

    def target(instruction: HloInstruction, operands: Sequence[Value]) -> object:
        if _version(instruction) == _TYPED:
            return _typed(instruction, operands, lambda given, result, said: handler(given, [result], said))
        sources, result = _memory(instruction, operands)
        pointers = (ctypes.c_void_p * max(1, len(sources)))(*[source.address for source in sources])
        call(result.address, pointers)
        return result.value()

    # The caller's function object may own the machine code, so it lives as long as the target.
    target.function = function  # type: ignore[attr-defined]
    return target


def _staged(name: str, functions: Mapping[str, object]) -> Target:
    if "execute" not in functions or not set(functions) <= set(STAGES):
        stages = ", ".join(map(str, functions)) or "none"
        message = (
            f"custom call target {name!r}: the stages are {', '.join(STAGES)}, the last of which must be"
        )
        raise EvaluationError(f"{message} there, got {stages}", rule="custom-call.stages")
    handler = StagedHandler(name, {stage: _address(one) or 0 for stage, one in functions.items()})

    def target(instruction: HloInstruction, operands: Sequence[Value]) -> object:
        if _version(instruction) != _TYPED:
            message = f"the call of {name!r} has stages, which calls of {_TYPED} alone have"
            raise EvaluationError(message, rule="custom-call.api-version")
        return _typed(
            instruction, operands, lambda given, result, said: handler(instruction, given, result, said)
        )

    target.functions = functions  # type: ignore[attr-defined]
    return target


def _version(instruction: HloInstruction) -> str:
    operation = instruction.operation
    assert isinstance(operation, CustomCall)
    if operation.api_version not in ("API_VERSION_ORIGINAL", _TYPED):
        message = f"C functions have the original form or that of the typed FFI, not {operation.api_version}"
        raise EvaluationError(message, rule="custom-call.api-version")
    return operation.api_version


def _memory(instruction: HloInstruction, operands: Sequence[Value]) -> tuple[list[_Buffer], _Buffer]:
    """Return the operands in memory, and memory for the result."""
    operation = instruction.operation
    assert isinstance(operation, CustomCall)
    shapes = operation.operand_layout_constraints or [operand.shape for operand in instruction.operands]
    sources = [_Buffer(shape, value) for shape, value in zip(shapes, operands, strict=True)]
    return sources, _Buffer(instruction.shape, None)


def _typed(
    instruction: HloInstruction,
    operands: Sequence[Value],
    call: Callable[[Sequence[_Buffer], _Buffer, Attributes], None],
) -> Value:
    """Return the result of a handler, called with operands, memory for the result, and attributes."""
    sources, result = _memory(instruction, operands)
    call(sources, result, parse_attributes(instruction.backend_config))
    return result.value()


def _address(function: Any) -> int | None:
    if isinstance(function, int):
        return function
    if not _is_capsule(function):
        return ctypes.cast(function, ctypes.c_void_p).value
    return capsule_address(function)


def capsule_address(capsule: object) -> int:
    """Return the address in a PyCapsule, whatever its name."""
    get_name, get_pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    get_name.argtypes, get_name.restype = [ctypes.py_object], ctypes.c_char_p
    get_pointer.argtypes, get_pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    return get_pointer(capsule, get_name(capsule))


def _is_capsule(function: object) -> bool:
    """Return whether an object is a PyCapsule, in which extension modules hand out addresses."""
    return type(function).__name__ == "PyCapsule"


class _Buffer:
    """A value in memory in the form for C functions: elements in layout order, or pointers to elements.

    Args:
        shape: the value's shape, with its layout.
        value: the value; None allocates memory for one.
    """

    def __init__(self, shape: Shape, value: Any) -> None:
        if shape.is_array and shape.layout is None:
            shape = shape.with_default_layout()
        self.shape = shape
        self.children: list[_Buffer] = []
        if shape.is_tuple:
            values: Sequence[Any] = [None] * len(shape.tuple_shapes) if value is None else value
            self.children = [_Buffer(s, v) for s, v in zip(shape.tuple_shapes, values, strict=True)]
            addresses = [child.address for child in self.children]
            self.memory: Any = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        elif shape.is_array:
            data = b"" if value is None else Literal(np.asarray(value), shape).to_bytes()
            self.memory = ctypes.create_string_buffer(data, max(1, shape.byte_size, len(data)))
        else:
            self.memory = ctypes.create_string_buffer(1)
        self.address = ctypes.addressof(self.memory)

    def value(self) -> Value:
        """Return the value in memory."""
        if self.shape.is_tuple:
            return tuple(child.value() for child in self.children)
        if not self.shape.is_array:
            return None
        return Literal.from_bytes(self.shape, self.memory.raw[: self.shape.byte_size]).numpy()
