"""Entry from Python to native programs: a builtin function of native code.

The function is ``hloom_call`` in `routines/entry.py`, the same for every program; a descriptor, which is a
numpy array and the builtin's ``self``, holds the data of the program. The code reads the fields of numpy's
arrays at fixed offsets, which belong to numpy's binary interface and are tested before they are relied on.
"""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from hloom.codegen.structs import Record
from hloom.cpu.runtime.numpy_structs import ARRAY
from hloom.cpu.runtime.structs import DESCRIPTOR, INPUT, OUTPUT, RECYCLED
from hloom.cpu.runtime.support import support
from hloom.errors import EvaluationError
from hloom.ir.value import Array, Value
from hloom.lifetime import keep_for_ever

if TYPE_CHECKING:
    from hloom.shape.shape import Shape

RunFunction: TypeAlias = Callable[..., Value]
"""A function of the arguments of a program."""
_FASTCALL: Final = 0x80
_ARRAY_TYPE, _NEW_FROM_DESCR, _GET_HANDLER = 2, 94, 305
"""Indices of functions in numpy's table."""
_GIVE: Final = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_TAKE: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_KEPT_PART: Final = 1 / 16
_MOST_KEPT: Final = 1 << 30
"""Limits of the freed memory that is kept: a fraction of the machine's memory, and bytes."""


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
    """The words that native code reads; holds the objects that must live as long."""

    held: tuple[object, ...]


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _Allocator(ctypes.Structure):
    """PyDataMem_Handler."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


def builtin_for(
    signature: Signature, program: int, context: int, fallback: RunFunction, held: tuple[object, ...]
) -> RunFunction:
    """Return a function of numpy arrays that runs a program.

    Args:
        signature: parameters and results of the program.
        program, context: addresses of its entry and of its context.
        fallback: called instead for arguments that are not arrays of exactly the right form.
        held: objects that must live as long as the function.
    """
    if not layout_is_known():
        return fallback
    runtime = _runtime()
    record, words = _descriptor(signature, program, context, fallback)
    descriptor = words.view(Descriptor)
    descriptor.held = (fallback, held, record)  # calls of destructors may follow the finalizer
    finalizer = weakref.finalize(descriptor, _give_arena, record)
    finalizer.atexit = False
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return make(ctypes.addressof(runtime.method), descriptor, None)


def _descriptor(
    signature: Signature, program: int, context: int, fallback: RunFunction
) -> tuple[Record, Array]:
    """Return the descriptor of a program, and the numpy array whose data it is."""
    runtime = _runtime()
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
        "memory": runtime.memory,
        "handler": runtime.handler,
        "fallback": id(fallback),
        "input_count": len(inputs),
        "output_count": len(outputs),
        "is_tuple": signature.is_tuple,
        "long": signature.long,
        "array_type": id(np.ndarray),
        "new_from_descr": runtime.new_from_descr,
        "inputs": inputs[0].address if inputs else 0,
        "outputs": outputs[0].address if outputs else 0,
    }
    for name, value in fields.items():
        record[name] = value
    return record, words


def _give_arena(descriptor: Record) -> None:
    if descriptor["arena"]:
        _runtime().give(_runtime().memory, descriptor["arena"])
        descriptor["arena"] = 0


@contextmanager
def lent_memory(size: int) -> Generator[int]:
    """Lend recycled memory of undefined content; yields its address, a multiple of 64.

    Raises EvaluationError by the rule ``evaluate.memory``.
    """
    runtime = _runtime()
    address = runtime.take(runtime.memory, size)
    if not address:
        raise EvaluationError(f"no memory for {size} bytes of temporaries", rule="evaluate.memory")
    try:
        yield address
    finally:
        runtime.give(runtime.memory, address)


class _Runtime:
    """Data that all builtins share; it lives until the process ends.

    Attributes:
        method: PyMethodDef of ``hloom_call``.
        memory: address of the state of the recycled memory.
        handler: numpy's handle of it.
        new_from_descr: address of PyArray_NewFromDescr.
    """

    def __init__(self) -> None:
        symbols = support().symbols
        self.method = _Method(b"run", symbols["hloom_call"], _FASTCALL, b"Run the program on numpy arrays.")
        self._recycled = RECYCLED.allocate(limit=kept_bytes())
        self.memory = self._recycled.address
        names = ("malloc", "calloc", "realloc", "free")
        functions = [symbols[f"hloom_memory_{name}"] for name in names]
        self._allocator = _Allocator(b"hloom", 1, self.memory, *functions)
        new_capsule = ctypes.pythonapi.PyCapsule_New
        new_capsule.restype = ctypes.py_object
        new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self._name = ctypes.create_string_buffer(b"mem_handler")
        self._capsule = new_capsule(ctypes.addressof(self._allocator), _address_of_buffer(self._name), None)
        self.handler = id(self._capsule)
        self.new_from_descr = numpy_function(_NEW_FROM_DESCR)
        self.give = _GIVE(symbols["hloom_give"])
        self.take = _TAKE(symbols["hloom_take"])
        keep_for_ever(self)

    @property
    def kept(self) -> int:
        """Bytes of freed memory that are kept."""
        return self._recycled["free_bytes"]


@cache
def _runtime() -> _Runtime:
    return _Runtime()


def memory_address() -> int:
    """Return the address of the recycled memory, as native code takes it."""
    return _runtime().memory


def kept_bytes() -> int:
    """Return the limit of the freed memory that is kept, in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(_MOST_KEPT, int(total * _KEPT_PART))


# -- layout of numpy's arrays


def numpy_function(number: int) -> int:
    """Return an address from numpy's table of C functions."""
    module = import_module("numpy._core._multiarray_umath")
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table: int = get(vars(module)["_ARRAY_API"], None)
    return ctypes.c_void_p.from_address(table + 8 * number).value or 0


@cache
def layout_is_known() -> bool:
    """Return true if the fields of arrays have the offsets that native code assumes."""
    if sys.implementation.name != "cpython" or sys.maxsize < 1 << 62:
        return False
    if not getattr(sys, "_is_gil_enabled", lambda: True)() or np.__version__.startswith(("0.", "1.")):
        return False
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    fields = ARRAY.record(id(array))
    dimensions = list((ctypes.c_int64 * 2).from_address(fields["dimensions"]))
    get_handler = ctypes.PYFUNCTYPE(ctypes.py_object)(numpy_function(_GET_HANDLER))
    plain = np.empty(1)
    return (
        fields["type"] == id(np.ndarray) == numpy_function(_ARRAY_TYPE)
        and fields["data"] == array.ctypes.data
        and fields["rank"] == 2
        and dimensions == [2, 3]
        and fields["dtype"] == id(array.dtype)
        and fields["flags"] == array.flags.num
        and ARRAY.record(id(plain))["handler"] == id(get_handler())
    )


def _address_of_buffer(buffer: ctypes.Array[ctypes.c_char]) -> ctypes.c_char_p:
    return ctypes.cast(buffer, ctypes.c_char_p)
