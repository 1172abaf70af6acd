"""The reference evaluation of LAPACK's custom calls: a call of the library for every matrix."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array
from hloom.ir.value import Value
from hloom.operations.custom_call import KNOWN
from hloom.operations.lapack.calls import (
    INFO_NOT_FINITE,
    Address,
    Argument,
    LapackCall,
    UnpackedPairs,
    library_call,
)
from hloom.operations.lapack.library import routine, set_thread_count
from hloom.operations.lapack.routines import ROUTINES


def evaluate(instruction: HloInstruction, operands: Sequence[Any]) -> Value:
    """Return the results of a custom call of LAPACK."""
    call = library_call(instruction)
    assert call is not None
    shape = instruction.shape
    leaves = shape.tuple_shapes if shape.is_tuple else (shape,)
    results = [np.zeros(leaf.dimensions, leaf.element_type.numpy_dtype) for leaf in leaves]
    with _one_thread:
        for index in range(call.batch):
            arrays = [np.zeros(a.dimensions, a.dtype, order="F") for a in call.arrays]
            for layout, array in zip(call.arrays, arrays, strict=True):
                if layout.operand is not None:
                    array[...] = np.reshape(operands[layout.operand], (call.batch, *layout.dimensions))[index]
            _run(call, arrays)
            for layout, array in zip(call.arrays, arrays, strict=True):
                if layout.result is not None:
                    results[layout.result].reshape(call.batch, *layout.dimensions)[index] = array
    return tuple(results) if shape.is_tuple else results[0]


KNOWN.update(dict.fromkeys(ROUTINES, evaluate))


def _run(call: LapackCall, arrays: Sequence[Array]) -> None:
    """Call the routine for one matrix."""
    if call.finite is not None and not np.isfinite(arrays[call.finite]).all():
        assert call.info is not None
        arrays[call.info][...] = INFO_NOT_FINITE
        return
    owners: list[object] = []
    pointers = [_pointer(argument, arrays, owners) for argument in call.arguments]
    routine(call.routine, len(pointers))(*pointers)
    for pairs in call.pairs:
        _unpack(pairs, arrays)


def _pointer(argument: Argument, arrays: Sequence[Array], held: list[object]) -> int | None:
    if isinstance(argument, Address):
        array = arrays[argument.array]
        return array.ctypes.data + argument.element * array.itemsize
    if argument is None:
        return None
    memory = ctypes.create_string_buffer(argument)
    held.append(memory)
    return ctypes.addressof(memory)


def _unpack(pairs: UnpackedPairs, arrays: Sequence[Array]) -> None:
    """Write complex eigenvectors; that of the positive imaginary part is the first one of a pair."""
    packed, vectors, imaginary = arrays[pairs.packed], arrays[pairs.vectors], arrays[pairs.imaginary]
    vectors[...] = packed
    for column in np.flatnonzero(imaginary > 0):
        vectors[:, column] = packed[:, column] + 1j * packed[:, column + 1]
        vectors[:, column + 1] = vectors[:, column].conj()


class _OneThread:
    """Let the library compute in the calling thread while any call is under way.

    Its own threads would compete with those of the program and of other devices, wait actively between calls,
    and make the last bits of results depend on their number. The number of threads is a setting of the whole
    process, so that it is restored when the last of concurrent calls ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = 0
        self._before = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._calls:
                self._before = set_thread_count(1)
            self._calls += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._calls -= 1
            if not self._calls:
                set_thread_count(self._before)


_one_thread: Final = _OneThread()
