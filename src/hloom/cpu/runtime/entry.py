"""Entry from Python to native programs: a builtin function of native code.

The function is ``hloom_call`` in `routines/entry.py`, the same for every program; a descriptor, which is a
numpy array and the builtin's ``self``, holds the data of the program. The code reads the fields of numpy's
arrays where `hloom.cpu.runtime.numpy_interface` tests them to be.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from hloom.codegen.structs import Record
from hloom.cpu.runtime.numpy_interface import NEW_FROM_DESCR, layout_is_known, numpy_function
from hloom.cpu.runtime.recycled_memory import recycled_memory
from hloom.cpu.runtime.structs import DESCRIPTOR, INPUT, OUTPUT
from hloom.cpu.runtime.support import support
from hloom.ir.value import Array, Value
from hloom.lifetime import keep_for_ever

if TYPE_CHECKING:
    from hloom.shape.shape import Shape

RunFunction: TypeAlias = Callable[..., Value]
"""A function of the arguments of a program."""
_FASTCALL: Final = 0x80


@dataclass(frozen=True, slots=True)
class Signature:
    """Parameters and results of a program.

    Attributes:
        parameters, results: arrays of static sizes.
        is_tuple: whether the result is a tuple of the arrays.
        temp_bytes: size of the arena.
        long: the program runs without the GIL.
    """

    parameters: Sequence[Shape]
    results: Sequence[Shape]
    is_tuple: bool
    temp_bytes: int
    long: bool


class Descriptor(np.ndarray[tuple[int, ...], np.dtype[np.int64]]):
    """The words that native code reads, and the objects that it needs to live as long."""

    referenced: tuple[object, ...]


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def builtin_for(
    signature: Signature, program: int, context: int, fallback: RunFunction, referenced: tuple[object, ...]
) -> RunFunction:
    """Return a function of numpy arrays that runs a program.

    Args:
        signature: parameters and results of the program.
        program, context: addresses of its entry and of its context.
        fallback: called instead for arguments that are not arrays of exactly the right form.
        referenced: objects that must live as long as the function.
    """
    if not layout_is_known():
        return fallback
    record, words = _descriptor(signature, program, context, fallback)
    descriptor = words.view(Descriptor)
    descriptor.referenced = (fallback, referenced, record)  # calls of destructors may follow the finalizer
    finalizer = weakref.finalize(descriptor, _give_arena, record)
    finalizer.atexit = False
    new_builtin = ctypes.pythonapi.PyCFunction_NewEx
    new_builtin.restype = ctypes.py_object
    new_builtin.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return new_builtin(ctypes.addressof(_method()), descriptor, None)


@cache
def _method() -> _Method:
    """Return the definition of the builtin, which all programs share."""
    method = _Method(b"run", support().symbols["hloom_call"], _FASTCALL, b"Run the program on numpy arrays.")
    keep_for_ever(method)
    return method


def _descriptor(
    signature: Signature, program: int, context: int, fallback: RunFunction
) -> tuple[Record, Array]:
    """Return the descriptor of a program, and the numpy array whose data it is."""
    memory = recycled_memory()
    dtypes = [np.dtype(shape.element_type.dtype) for shape in (*signature.parameters, *signature.results)]
    sizes = [
        (ctypes.c_int64 * shape.rank)(*shape.dimensions)
        for shape in (*signature.parameters, *signature.results)
    ]
    rows = [
        {"dtype": id(dtype), "rank": len(dimensions), "dimensions": ctypes.addressof(dimensions)}
        for dtype, dimensions in zip(dtypes, sizes, strict=True)
    ]
    count = len(signature.parameters)
    inputs, outputs = INPUT.table(rows[:count]), OUTPUT.table(rows[count:])
    for output, shape, dtype in zip(outputs, signature.results, dtypes[count:], strict=True):
        output["bytes"] = shape.element_count * dtype.itemsize
    words = np.zeros(DESCRIPTOR.size // 8, np.int64)
    record = DESCRIPTOR.record(words.ctypes.data, (words, sizes, dtypes, inputs, outputs))
    fields = {
        "program": program,
        "context": context,
        "arena_bytes": signature.temp_bytes,
        "memory": memory.address,
        "handler": id(memory.handler),
        "fallback": id(fallback),
        "input_count": len(inputs),
        "output_count": len(outputs),
        "is_tuple": signature.is_tuple,
        "long": signature.long,
        "array_type": id(np.ndarray),
        "new_from_descr": numpy_function(NEW_FROM_DESCR),
        "inputs": inputs[0].address if inputs else 0,
        "outputs": outputs[0].address if outputs else 0,
    }
    record.update(fields)
    return record, words


def _give_arena(descriptor: Record) -> None:
    if descriptor["arena"]:
        recycled_memory().give(descriptor["arena"])
        descriptor["arena"] = 0
