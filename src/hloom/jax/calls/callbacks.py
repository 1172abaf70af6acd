"""Python callbacks of programs: pure_callback, io_callback, debug.print, buffer_callback.

JAX lowers each to a custom call with an index into the list of functions that it passes to the compiler with
the module; see `hloom.jax.compilation.handover`.
"""

from __future__ import annotations

import ctypes
import struct
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
"""A callback that each device calls on its own tiles of sharded operands."""
CALLBACK_TARGETS: Final = ("xla_ffi_python_cpu_callback", TILEWISE_TARGET)
BUFFER_TARGET: Final = "xla_buffer_python_cpu_callback"
_RECYCLED_BYTES: Final = 1 << 17
"""Size from which copies of operands use recycled memory."""
_MOST_TABLES: Final = 8
"""Number of tables of addresses whose views a call site caches: a loop swaps two buffers."""
_bound: Final[dict[HloInstruction, Any]] = {}
"""The Python function of each callback's custom call."""


def bind(calls: Sequence[HloInstruction], functions: Sequence[object]) -> list[HloInstruction]:
    """Record for hloom's evaluator the Python function of each callback; return the callbacks' custom calls.

    Args:
        calls: instructions of a program; those that are not custom calls of Python callbacks are ignored.
        functions: the program's Python functions; each callback's custom call states the index of one.
    """
    targets = (*CALLBACK_TARGETS, BUFFER_TARGET)
    callbacks = [call for call in calls if getattr(call.operation, "custom_call_target", "") in targets]
    for call in callbacks:
        _bound[call] = _function_at(call, functions)
    return callbacks


def _function_at(call: HloInstruction, functions: Sequence[Any]) -> Any:
    """Return the element of ``functions`` whose index the custom call's backend configuration states."""
    from hloom.operations.ffi_attributes import parse_attributes

    return functions[int(parse_attributes(call.backend_config)["index"])]


def unbind(calls: Sequence[HloInstruction]) -> None:
    """Forget the Python functions that `bind` recorded for these custom calls."""
    for call in calls:
        _bound.pop(call, None)


def _function_of(instruction: HloInstruction) -> Any:
    function = _bound.get(instruction)
    if function is None:
        message = "the Python function of this callback belongs to another process or executable"
        raise EvaluationError(message, rule="jax.callback").at(instruction=instruction.name)
    return function


def _evaluate_buffer_callback(instruction: HloInstruction, operands: Sequence[Value]) -> Value:
    """Evaluate the custom call of a ``buffer_callback``; the evaluator finds this function by the target."""
    from hloom.jax.calls.buffer_callbacks import fill

    return fill(_function_of(instruction), instruction, operands)


def _evaluate_callback(instruction: HloInstruction, operands: Sequence[Value]) -> Value:
    """Evaluate the custom call of a Python callback; hloom's evaluator finds this function by the target.

    Calls the user's Python function with read-only copies of the operands, and returns its results.
    """
    function = _function_of(instruction)
    results = _sequence(function(*[_immutable(operand) for operand in operands]))
    values = [
        np.asarray(value).reshape(shape.dimensions) if shape.is_array else None
        for shape, value in zip(_leaves(instruction.shape), results, strict=True)
    ]
    return tuple(values) if instruction.shape.is_tuple else values[0]


def _immutable(value: Value) -> Array | None:
    if value is None:
        return None
    array = np.array(value)
    array.flags.writeable = False
    return array


def _sequence(results: object) -> Sequence[object]:
    return cast("Sequence[object]", results if isinstance(results, (tuple, list)) else (results,))


class HostFunctions:
    """A callable by which the native code of a program calls the program's Python callbacks.

    Native code passes the index of a host call, one of the instructions that it leaves to Python. If the
    callback raises an exception, `take_error` returns that.

    Attributes:
        answers_all: whether this object can run all host calls of the program: each is a Python callback,
            no ``buffer_callback``, on tokens and arrays of static shape.
    """

    def __init__(self, calls: Sequence[HloInstruction], functions: Sequence[Any]) -> None:
        self._sites = {n: _Site(call, functions) for n, call in enumerate(calls) if self.answers(call)}
        self.answers_all = len(self._sites) == len(calls)

    def __call__(self, number: int, pointers: int) -> None:
        """Run the Python callback of the host call with the index ``number``; native code calls this.

        ``pointers`` is the address of a table of 64-bit addresses: of the operands' data, then of the memory
        for the results. An exception of the callback is stored for `take_error`, and raised.
        """
        try:
            self._sites[number].run(pointers)
        except BaseException as error:
            _failed.error = error
            raise

    @staticmethod
    def answers(call: HloInstruction) -> bool:
        """Return whether this class can run an instruction that native code leaves to Python.

        It can run Python callbacks (no ``buffer_callback``) whose operands and results are tokens and arrays
        of static shape.
        """
        return getattr(call.operation, "custom_call_target", "") in CALLBACK_TARGETS and all(
            shape.is_token or (shape.is_array and shape.is_static)
            for shape in (*(o.shape for o in call.operands), *_leaves(call.shape))
        )


class _Site:
    """A callback's custom call in a program, with its Python function.

    The function gets copies of the operands, because it may keep references to them, and native code reuses
    their memory.
    """

    def __init__(self, call: HloInstruction, functions: Sequence[Any]) -> None:
        self._function = _function_at(call, functions)
        self._operand_count = len(call.operands)
        self._shapes = [*(o.shape for o in call.operands), *_leaves(call.shape)]
        self._bytes = 8 * len(self._shapes)
        self._views: dict[bytes, tuple[list[_View | None], list[_View | None]]] = {}

    def run(self, pointers: int) -> None:
        """Call the function on copies of the operands, and write its results to the program's memory.

        Args:
            pointers: the address of a table of 64-bit addresses: of the operands' data, then of the memory
                for the results.
        """
        table = ctypes.string_at(pointers, self._bytes)
        operands, results = self._views.get(table) or self._views_at(table)
        values = self._function(*[operand and operand.copy() for operand in operands])
        for result, value in zip(results, _sequence(values), strict=True):
            if result is not None:
                result.write(value)

    def _views_at(self, table: bytes) -> tuple[list[_View | None], list[_View | None]]:
        """Return NumPy views of the operands, and of the results, whose addresses are in ``table``.

        A token has None as its view. The views are cached by the bytes of the table, because a program passes
        the same few addresses again and again.
        """
        if len(self._views) == _MOST_TABLES:
            self._views.clear()
        addresses = struct.unpack(f"{len(self._shapes)}Q", table)
        pairs = zip(self._shapes, addresses, strict=True)
        views = [_View(shape, address) if shape.is_array else None for shape, address in pairs]
        self._views[table] = views[: self._operand_count], views[self._operand_count :]
        return self._views[table]


class _View:
    """A numpy view of that part of a program's memory which holds an operand or result of a callback."""

    def __init__(self, shape: Shape, address: int) -> None:
        kind = np.dtype(shape.element_type.numpy_dtype)
        size = shape.element_count * kind.itemsize
        block: Any = (ctypes.c_uint8 * size).from_address(address) if address else None
        self._address = address
        self._array = np.ndarray(shape.dimensions, kind, block)
        self._recycles = size >= _RECYCLED_BYTES

    def copy(self) -> np.ndarray:
        """Return a read-only copy of the array.

        Large copies take memory from the plug-in's pool: the C library returns blocks of megabytes to the
        system, and mapping them again costs more than the copy.
        """
        memory = native().call("pjrt_take", self._array.nbytes) if self._recycles else None
        if memory:
            ctypes.memmove(memory, self._address, self._array.nbytes)
            block: Any = (ctypes.c_uint8 * self._array.nbytes).from_address(memory)
            weakref.finalize(block, native().call, "pjrt_give", memory).atexit = False
            array = np.ndarray(self._array.shape, self._array.dtype, block)
        else:
            array = self._array.copy()
        array.setflags(write=False)
        return array

    def write(self, value: Any) -> None:
        """Write a value, reshaped to the array's dimensions, into the program's memory."""
        shape = self._array.shape
        self._array[...] = value if np.shape(value) == shape else np.reshape(value, shape)


def _leaves(shape: Shape) -> tuple[Shape, ...]:
    return shape.tuple_shapes if shape.is_tuple else (shape,)


class _Failed(threading.local):
    """A thread-local variable: the exception of the last callback that failed in this thread, or None."""

    error: BaseException | None = None


_failed: Final = _Failed()


def take_error() -> BaseException | None:
    """Return and clear the exception of the last callback that failed in this thread; None if none did."""
    error, _failed.error = _failed.error, None
    return error


def register_targets() -> None:
    """Make hloom's evaluator evaluate custom calls of Python callbacks by the functions of this module."""
    from hloom.operations.custom_call import TARGETS

    TARGETS.update(dict.fromkeys(CALLBACK_TARGETS, _evaluate_callback))
    TARGETS[BUFFER_TARGET] = _evaluate_buffer_callback
