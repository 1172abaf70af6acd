"""The library of LAPACK and BLAS: the C functions of ``scipy.linalg.cython_lapack`` and ``cython_blas``.

All their parameters are pointers, as in Fortran.
"""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import import_module
from typing import Any, Final

from hloom.errors import EvaluationError

_MODULES: Final = ("scipy.linalg.cython_lapack", "scipy.linalg.cython_blas")


@cache
def routine_address(name: str) -> int:
    """Return the address of a routine such as ``dgetrf``.

    Raises EvaluationError by the rule ``custom-call.routine`` if the library lacks it.
    """
    for module in _MODULES:
        capsule = import_module(module).__pyx_capi__.get(name)
        if capsule is not None:
            get_name, get_pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
            get_name.argtypes, get_name.restype = [ctypes.py_object], ctypes.c_char_p
            get_pointer.argtypes, get_pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
            return int(get_pointer(capsule, get_name(capsule)))
    raise EvaluationError(f"scipy's LAPACK has no {name}", rule="custom-call.routine")


@cache
def routine(name: str, count: int) -> Any:
    """Return a routine as a function of ``count`` pointers."""
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count)(routine_address(name))


def thread_count_functions() -> tuple[Any, Any] | None:
    """Return the functions of scipy's OpenBLAS that get and set its threads; None for another library."""
    library = _library()
    try:
        return library.scipy_openblas_get_num_threads, library.scipy_openblas_set_num_threads
    except AttributeError:
        return None


def set_thread_count(count: int) -> int:
    """Set the number of threads of scipy's OpenBLAS; return the number before, 1 for another library."""
    functions = thread_count_functions()
    if functions is None:
        return 1
    get, set_ = functions
    before = int(get())
    if before != count:
        set_(count)
    return before


@cache
def _library() -> ctypes.CDLL:
    """Return scipy's module of LAPACK routines, whose symbols include those of the library behind it."""
    return ctypes.CDLL(import_module(_MODULES[0]).__file__)
