"""numpy's ABI: the structs of arrays and of memory handlers, and numpy's table of C functions."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from importlib import import_module
from typing import Final

import numpy as np

from hloom.codegen.structs import I8, I32, I64, PTR, Array, Struct, size_of

ARRAY: Final = Struct(
    "PyArrayObject",
    references=I64,
    type=PTR,
    data=PTR,
    rank=I32,
    dimensions=PTR,
    strides=PTR,
    base=PTR,
    dtype=PTR,
    flags=I32,
    weak_references=PTR,
    buffer_info=PTR,
    handler=PTR,
)
C_CONTIGUOUS, OWNS_DATA, ALIGNED, WRITABLE = 0x1, 0x4, 0x100, 0x400
"""Array flags."""

HANDLER: Final = Struct(
    "PyDataMem_Handler",
    name=Array(I8, 127),
    version=I8,
    context=PTR,
    malloc=PTR,
    calloc=PTR,
    realloc=PTR,
    free=PTR,
)
"""A memory handler of arrays (NEP 49)."""

ARRAY_TYPE, NEW_FROM_DESCR, SET_HANDLER, GET_HANDLER = 2, 94, 304, 305
"""Indices of functions in numpy's table."""


def numpy_function(index: int) -> int:
    """Return the address of the function at ``index`` of NumPy's C API table, ``_ARRAY_API``."""
    module = import_module("numpy._core._multiarray_umath")
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table: int = pointer_of(vars(module)["_ARRAY_API"], None)
    return ctypes.c_void_p.from_address(table + size_of(PTR) * index).value or 0


@cache
def layout_is_known() -> bool:
    """Return whether the installed NumPy lays out array objects in memory as native code expects them."""
    if sys.implementation.name != "cpython" or sys.maxsize < 1 << 62:
        return False
    if not getattr(sys, "_is_gil_enabled", lambda: True)() or np.__version__.startswith(("0.", "1.")):
        return False
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    fields = ARRAY.record(id(array))
    dimensions = list((ctypes.c_int64 * 2).from_address(fields["dimensions"]))
    current_handler = ctypes.PYFUNCTYPE(ctypes.py_object)(numpy_function(GET_HANDLER))
    plain = np.empty(1)
    return (
        fields["type"] == id(np.ndarray) == numpy_function(ARRAY_TYPE)
        and fields["data"] == array.ctypes.data
        and fields["rank"] == 2
        and dimensions == [2, 3]
        and fields["dtype"] == id(array.dtype)
        and fields["flags"] == array.flags.num
        and ARRAY.record(id(plain))["handler"] == id(current_handler())
    )
