"""Calls of Python functions by programs: pure_callback, io_callback, debug.print, buffer_callback.

JAX lowers them to custom calls with an index into the functions that it passes to the compiler; see
`hloom.jax.compilation.handover`.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from hloom.errors import EvaluationError
from hloom.jax.pjrt.native import native

if TYPE_CHECKING:
    from hloom.ir.instruction import HloInstruction
    from hloom.ir.operation import Array, Value
    from hloom.shape.shape import Shape

TILEWISE_TARGET: Final = "xla_ffi_partitioned_python_cpu_callback"
"""Each device calls the function with its tiles."""
CALLBACK_TARGETS: Final = ("xla_ffi_python_cpu_callback", TILEWISE_TARGET)
BUFFER_TARGET: Final = "xla_buffer_python_cpu_callback"
_RECYCLED_BYTES: Final = 1 << 17
"""Size from which copies of operands are in recycled memory."""
_bound: Final[dict[HloInstruction, Any]] = {}
"""Functions by the custom calls of compiled programs."""


def bind(calls: Sequence[HloInstruction], functions: Sequence[object]) -> list[HloInstruction]:
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


def _fill(instruction: HloInstruction, operands: Sequence[Value]) -> Value:
    """Run the function of a custom call on buffers."""
    from hloom.jax.calls.buffer_callbacks import fill

    return fill(_function_of(instruction), instruction, operands)


def _call(instruction: HloInstruction, operands: Sequence[Value]) -> Value:
    """Run the function of a custom call."""
    function = _function_of(instruction)
    results: object = function(*[_immutable(operand) for operand in operands])
    shapes = instruction.shape.tuple_shapes if instruction.shape.is_tuple else (instruction.shape,)
    given = cast("Sequence[object]", results if isinstance(results, (tuple, list)) else (results,))
    values = [
        np.asarray(value).reshape(shape.dimensions) if shape.is_array else None
        for shape, value in zip(shapes, given, strict=True)
    ]
    return tuple(values) if instruction.shape.is_tuple else values[0]


def _immutable(value: Value) -> Array | None:
    if value is None:
        return None
    array = np.array(value)
    array.flags.writeable = False
    return array


class HostFunctions:
    """The functions that a program calls, as native code calls them: without an evaluator.

    An exception is kept for `take_error`.

    Attributes:
        answers_all: all host calls of the program are of such functions.
    """

    def __init__(self, calls: Sequence[HloInstruction], functions: Sequence[Any]) -> None:
        self._sites = {n: _Site(call, functions) for n, call in enumerate(calls) if self.answers(call)}
        self.answers_all = len(self._sites) == len(calls)

    def __call__(self, number: int, pointers: int) -> None:
        """Run a call: its number, and the address of those of its operands and results."""
        try:
            self._sites[number].run(pointers)
        except BaseException as error:
            _failed.error = error
            raise

    @staticmethod
    def answers(call: HloInstruction) -> bool:
        """Return whether a host call is of such a function, on static arrays and tokens."""
        return getattr(call.operation, "custom_call_target", "") in CALLBACK_TARGETS and all(
            shape.is_token or (shape.is_array and shape.is_static)
            for shape in (*(o.shape for o in call.operands), *_parts(call.shape))
        )


class _Site:
    """A place in a program that calls a function.

    The function gets copies: it may keep them, and the memory of the operands is used again.
    """

    def __init__(self, call: HloInstruction, functions: Sequence[Any]) -> None:
        from hloom.operations.ffi_attributes import parse_attributes

        self._function = functions[int(parse_attributes(call.backend_config)["index"])]
        self._operands = [_memory(o.shape) for o in call.operands]
        self._results = [_memory(shape) for shape in _parts(call.shape)]
        self._words = ctypes.c_uint64 * (len(self._operands) + len(self._results))

    def run(self, pointers: int) -> None:
        """Call the function with the operands, and write its results."""
        addresses = self._words.from_address(pointers)
        count = len(self._operands)
        operands = zip(self._operands, addresses[:count], strict=True)
        results = self._function(*[memory and memory.copy(address) for memory, address in operands])
        values = cast("Sequence[object]", results if isinstance(results, (tuple, list)) else (results,))
        for memory, address, value in zip(self._results, addresses[count:], values, strict=True):
            if memory is not None:
                memory.write(address, value)


class _Memory:
    """The memory of an operand or result of a call, which mostly has the address of the call before."""

    def __init__(self, shape: Shape) -> None:
        self._dimensions = shape.dimensions
        self._dtype = np.dtype(shape.element_type.numpy_dtype)
        self._bytes = shape.element_count * self._dtype.itemsize
        self._type = ctypes.c_uint8 * self._bytes
        self._last = 0, np.empty(0)

    def _view(self, address: int) -> np.ndarray:
        """Return a view of the array at an address."""
        last, view = self._last
        if last != address or not address:
            block: Any = self._type.from_address(address) if address else None
            view = np.ndarray(self._dimensions, self._dtype, block)
            self._last = address, view
        return view

    def copy(self, address: int) -> np.ndarray:
        """Return a copy that cannot be written to; a large one in recycled memory.

        The C library returns blocks of megabytes to the system, and getting them again costs more than the
        copy.
        """
        memory = native().call("pjrt_take", self._bytes) if self._bytes >= _RECYCLED_BYTES else None
        if memory:
            ctypes.memmove(memory, address, self._bytes)
            block: Any = self._type.from_address(memory)
            weakref.finalize(block, native().call, "pjrt_give", memory).atexit = False
            array = np.ndarray(self._dimensions, self._dtype, block)
        else:
            array = self._view(address).copy()
        array.flags.writeable = False
        return array

    def write(self, address: int, value: Any) -> None:
        """Write the value of a result, which is reshaped."""
        shape = self._dimensions
        self._view(address)[...] = value if np.shape(value) == shape else np.reshape(value, shape)


def _memory(shape: Shape) -> _Memory | None:
    """Return the memory of an array; None for a token."""
    return _Memory(shape) if shape.is_array else None


def _parts(shape: Shape) -> tuple[Shape, ...]:
    return shape.tuple_shapes if shape.is_tuple else (shape,)


class _Failed(threading.local):
    """The exception of the function that failed last in a thread."""

    error: BaseException | None = None


_failed: Final = _Failed()


def take_error() -> BaseException | None:
    """Return the exception of the function that failed in this thread, once; None if none did."""
    error, _failed.error = _failed.error, None
    return error


def register_targets() -> None:
    """Register the custom calls by which programs call the functions."""
    from hloom.operations.custom_call import TARGETS

    TARGETS.update(dict.fromkeys(CALLBACK_TARGETS, _call) | {BUFFER_TARGET: _fill})
