"""The entry from Python to native programs: a builtin function of CPython.

All programs share the native function ``hloom_call`` (`routines/entry.py`). The ``self`` of each builtin is a
numpy array that holds the descriptor of its program. ``hloom_call`` reads numpy's arrays by the memory layout
that `numpy_interface` verifies.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
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
from hloom.records import dataclass

if TYPE_CHECKING:
    from hloom.shape.shape import Shape

RunFunction: TypeAlias = Callable[..., Value]
"""A function that runs a program on its arguments."""
_FASTCALL: Final = 0x80


@dataclass(frozen=True, slots=True)
class Signature:
    """What `builtin_for` needs to know of a program: its parameters and results, memory and donations.

    Attributes:
        parameters, results: the shapes of the parameters and of the results, all arrays of static size.
        is_tuple: whether the program returns a tuple.
        temp_bytes: the size of the arena, the memory of all temporaries.
        long: whether the program runs so long that a call releases the GIL.
        donated: the numbers of the parameters whose arguments are donated.
        donors: from the index of a result that is returned in a donated argument's array, to the number of
            the argument's parameter.
    """

    parameters: Sequence[Shape]
    results: Sequence[Shape]
    is_tuple: bool
    temp_bytes: int
    long: bool
    donated: AbstractSet[int] = frozenset()
    donors: Mapping[int, int] = field(default_factory=dict[int, int])


class Descriptor(np.ndarray[tuple[int, ...], np.dtype[np.int64]]):
    """A NumPy array that holds a C struct, `DESCRIPTOR`: what a builtin function knows of its program.

    Attributes:
        referenced: the Python objects to which the struct points, kept alive by this reference.
    """

    referenced: tuple[object, ...]


class _Method(ctypes.Structure):
    """The struct ``PyMethodDef`` of CPython's C API."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def builtin_for(
    signature: Signature, program: int, context: int, fallback: RunFunction, referenced: tuple[object, ...]
) -> RunFunction:
    """Return a CPython builtin function that runs a program on NumPy arrays.

    Args:
        signature: the parameters and results of the program.
        program, context: the addresses of the program's entry function and of its run context (`CONTEXT`).
        fallback: what the builtin calls instead if an argument is no array of exactly the expected type,
            shape and layout.
        referenced: objects that the builtin keeps alive.

    Returns ``fallback`` itself if the memory layout of NumPy's array objects is unknown.
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
    """Return the ``PyMethodDef`` shared by the builtin functions of all programs."""
    method = _Method(b"run", support().symbols["hloom_call"], _FASTCALL, b"Run the program on numpy arrays.")
    keep_for_ever(method)
    return method


def _descriptor(
    signature: Signature, program: int, context: int, fallback: RunFunction
) -> tuple[Record, Array]:
    """Return the C struct that tells a builtin function how to run a program, and the array that holds it.

    The arguments are those of `builtin_for`; the array becomes the builtin's ``self``.
    """
    memory = recycled_memory()
    shapes = (*signature.parameters, *signature.results)
    dtypes = [np.dtype(shape.element_type.dtype) for shape in shapes]
    sizes = [(ctypes.c_int64 * shape.rank)(*shape.dimensions) for shape in shapes]
    rows = [
        {"dtype": id(dtype), "rank": len(dimensions), "dimensions": ctypes.addressof(dimensions)}
        for dtype, dimensions in zip(dtypes, sizes, strict=True)
    ]
    count = len(signature.parameters)
    inputs, outputs = INPUT.table(rows[:count]), OUTPUT.table(rows[count:])
    for record, shape, dtype in zip((*inputs, *outputs), shapes, dtypes, strict=True):
        record["bytes"] = shape.element_count * dtype.itemsize
    for number in signature.donated:
        inputs[number]["donated"] = 1
    for result, parameter in signature.donors.items():
        outputs[result]["donor"] = 1 + parameter
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
