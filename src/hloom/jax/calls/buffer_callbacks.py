"""JAX's ``buffer_callback``: Python functions that write their results into buffers passed to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, Value
from hloom.jaxlib import private
from hloom.operations.custom_call import CustomCall


class CallbackBuffer:
    """A NumPy array as the argument of a ``buffer_callback``, with the interface of JAX's ``Buffer``.

    The Python function gets one for each operand (read-only) and for each result (writeable).
    """

    def __init__(self, array: Array, *, writeable: bool) -> None:
        self._memory = array
        self._array = array.view()
        self._array.flags.writeable = writeable

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    @property
    def dtype(self) -> np.dtype:
        return self._array.dtype

    @property
    def ndim(self) -> int:
        return self._array.ndim

    @property
    def writeable(self) -> bool:
        return self._array.flags.writeable

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._array, dtype, copy=copy)

    def __dlpack__(self, **keywords: Any) -> Any:
        """Return a DLPack capsule of the array; DLPack before 1.0 cannot mark an operand as read-only."""
        is_versioned = (keywords.get("max_version") or (0, 0)) >= (1, 0)
        return (self._array if is_versioned else self._memory).__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


class ExecutionContext:
    """The first argument of a ``buffer_callback``, with the interface of JAX's ``ExecutionContext``."""

    @property
    def stage(self) -> Any:
        return private.execution_stage()

    @property
    def stream(self) -> int:
        """Raise JaxRuntimeError, as JAX does on CPUs: there is no GPU stream."""
        error: Any = import_module("jax").errors.JaxRuntimeError
        raise error("UNIMPLEMENTED: XLA FFI GPU context is not available: hloom computes on the CPU")


def fill(function: Callable[..., object], instruction: HloInstruction, operands: Sequence[Value]) -> Any:
    """Call the Python function of a ``buffer_callback``; return the arrays into which it writes the results.

    The function gets copies of the operands, then the arrays for the results: new arrays of zeros or, for a
    result that ``instruction`` aliases to an operand, the copy of that operand.
    """
    operation = instruction.operation
    assert isinstance(operation, CustomCall)
    shapes = instruction.shape.tuple_shapes if instruction.shape.is_tuple else (instruction.shape,)
    sources = [np.array(operand) for operand in operands]
    results = [np.zeros(shape.dimensions, shape.element_type.numpy_dtype) for shape in shapes]
    for output, number, _ in operation.output_to_operand_aliasing:
        results[output[0] if output else 0] = sources[number]
    inputs = [CallbackBuffer(source, writeable=False) for source in sources]
    outputs = [CallbackBuffer(result, writeable=True) for result in results]
    function(ExecutionContext(), *inputs, *outputs)
    return tuple(results) if instruction.shape.is_tuple else results[0]
