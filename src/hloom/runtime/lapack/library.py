"""Calls of LAPACK and BLAS routines, and custom calls made of them.

The routines are those of ``scipy.linalg.cython_lapack`` and ``cython_blas``: C functions whose parameters are
pointers, as in Fortran.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, Final, TypeAlias

import numpy as np

from hloom.errors import EvaluationError
from hloom.ir.instruction import HloInstruction
from hloom.operations.custom_call import KNOWN
from hloom.runtime.ffi_attributes import Attributes, parse_attributes
from hloom.shape.shape import Shape

Array: TypeAlias = "np.ndarray[Any, Any]"
Kernel: TypeAlias = "Callable[[Call, Sequence[Array], Sequence[Array]], None]"
"""Fills the results of one matrix from its operands, all in column-major order."""

_TYPES: Final = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
_MODULES: Final = ("scipy.linalg.cython_lapack", "scipy.linalg.cython_blas")


class Call:
    """One custom call: its routine's type and attributes.

    Attributes:
        prefix: ``s``, ``d``, ``c`` or ``z``.
        attributes: as the call states them.
    """

    def __init__(self, prefix: str, attributes: Attributes) -> None:
        self.prefix = prefix
        self.attributes = attributes
        self.dtype = np.dtype(_TYPES[prefix])
        self.real = np.dtype(_TYPES[{"c": "s", "z": "d"}.get(prefix, prefix)])

    @property
    def is_complex(self) -> bool:
        """Return whether the matrices are complex."""
        return self.prefix in "cz"

    def letter(self, name: str) -> bytes:
        """Return an attribute that is the code of a letter, such as 76 for ``L``."""
        return bytes([int(self._attribute(name))])

    def flag(self, name: str) -> bool:
        """Return an attribute that is true or false."""
        return bool(self._attribute(name))

    def _attribute(self, name: str) -> Any:
        if name not in self.attributes:
            message = f"the attribute {name} is missing; the call has {sorted(self.attributes) or 'none'}"
            raise EvaluationError(message, rule="custom-call.attribute")
        return self.attributes[name]

    def run(self, routine: str, *arguments: Any) -> None:
        """Call ``?routine`` with arrays, and with addresses of integers and letters; None is null."""
        held = [_referred(argument) for argument in arguments]
        _function(self.prefix + routine, len(arguments))(*[address for address, _ in held])

    def run_with_work(self, routine: str, *arguments: Any, real: int = 0, integers: int = 0) -> int:
        """Call ``?routine(..., work, lwork, [rwork], [iwork], info)`` and return its info.

        Args:
            arguments: those before the workspace, whose size is queried from the routine.
            real, integers: lengths of rwork and iwork, which the routine does not take; 0 if it has none.
        """
        behind: list[Array] = []
        if real:
            behind.append(np.empty(real, self.real))
        if integers:
            behind.append(np.empty(integers, np.int32))
        info = np.zeros(1, np.int32)
        query = np.zeros(1, self.dtype)
        self.run(routine, *arguments, query, -1, *behind, info)
        size = max(1, int(query[0].real))
        self.run(routine, *arguments, np.empty(size, self.dtype), size, *behind, info)
        return int(info[0])


def leading(matrix: Array) -> int:
    """Return the leading dimension of a column-major matrix."""
    return max(1, matrix.shape[0])


def register(routine: str, *, operands: Sequence[int], prefixes: str = "sdcz") -> Callable[[Kernel], Kernel]:
    """Let the targets ``lapack_?routine_ffi`` run a kernel for every matrix of the batch.

    Args:
        routine: the routine's name without its type.
        operands: the ranks of the operands without batch dimensions.
        prefixes: the types that there are.
    """

    def add(kernel: Kernel) -> Kernel:
        for prefix in prefixes:
            KNOWN[f"lapack_{prefix}{routine}_ffi"] = _target(prefix, tuple(operands), kernel)
        return kernel

    return add


def _target(
    prefix: str, ranks: tuple[int, ...], kernel: Kernel
) -> Callable[[HloInstruction, Sequence[Any]], Any]:
    def target(instruction: HloInstruction, operands: Sequence[Any]) -> Any:
        arrays = [np.asarray(operand) for operand in operands]
        if len(arrays) != len(ranks) or any(a.ndim < rank for a, rank in zip(arrays, ranks, strict=True)):
            shapes = ", ".join(str(o.shape) for o in instruction.operands)
            message = f"operands of ranks {ranks} behind the batch dimensions are wanted, got ({shapes})"
            raise EvaluationError(message, rule="custom-call.operands")
        batch = arrays[0].ndim - ranks[0]
        shape = instruction.shape
        leaves = list(shape.tuple_shapes) if shape.is_tuple else [shape]
        results = [np.zeros(leaf.dimensions, leaf.element_type.numpy_dtype) for leaf in leaves]
        call = Call(prefix, _attributes(instruction.backend_config))
        _check(call, instruction, arrays, results, batch)
        with _one_thread:
            for index in np.ndindex(arrays[0].shape[:batch]):
                given = [np.array(a[index], order="F") for a in arrays]
                made = [np.array(r[index], order="F") for r in results]
                kernel(call, given, made)
                for result, one in zip(results, made, strict=True):
                    result[index] = one
        return tuple(results) if shape.is_tuple else results[0]

    return target


def _check(
    call: Call, instruction: HloInstruction, arrays: Sequence[Array], results: Sequence[Array], batch: int
) -> None:
    """Refuse operands and results of types and batches that the routine does not have."""
    known = (call.dtype, call.real, np.dtype(np.int32), np.result_type(call.dtype, np.complex64))
    sizes = arrays[0].shape[:batch]
    for array, shape in zip((*arrays, *results), _shapes(instruction), strict=True):
        if array.dtype not in known or array.shape[:batch] != sizes or array.ndim - batch > 2:
            message = f"{shape} fits no {call.dtype} routine with the batch {list(sizes)}"
            raise EvaluationError(message, rule="custom-call.operands")


def _shapes(instruction: HloInstruction) -> Iterator[Shape]:
    yield from (operand.shape for operand in instruction.operands)
    yield from instruction.shape.tuple_shapes if instruction.shape.is_tuple else (instruction.shape,)


def _referred(argument: Array | bytes | int | None) -> tuple[int | None, object]:
    """Return the address of an argument, and the object that owns its memory."""
    if argument is None:
        return None, None
    if isinstance(argument, np.ndarray):
        return argument.ctypes.data, argument
    cell = ctypes.c_char(argument) if isinstance(argument, bytes) else ctypes.c_int32(argument)
    return ctypes.addressof(cell), cell


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


def set_thread_count(count: int) -> int:
    """Set the number of threads of scipy's OpenBLAS; return the number before, 1 for another library."""
    library = _library()
    try:
        get, set_ = library.scipy_openblas_get_num_threads, library.scipy_openblas_set_num_threads
    except AttributeError:
        return 1
    before = int(get())
    if before != count:
        set_(count)
    return before


@cache
def _library() -> ctypes.CDLL:
    """Return scipy's module of LAPACK routines, whose symbols include those of the library behind it."""
    return ctypes.CDLL(import_module(_MODULES[0]).__file__)


@lru_cache(maxsize=1024)
def _attributes(text: str) -> Attributes:
    """Return the attributes of a call, which kernels only read."""
    return parse_attributes(text)


@cache
def _function(name: str, count: int) -> Any:
    """Return a routine by its name, as a function of ``count`` pointers."""
    for module in _MODULES:
        capsule = import_module(module).__pyx_capi__.get(name)
        if capsule is not None:
            get_name, get_pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
            get_name.argtypes, get_name.restype = [ctypes.py_object], ctypes.c_char_p
            get_pointer.argtypes, get_pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
            return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count)(get_pointer(capsule, get_name(capsule)))
    raise EvaluationError(f"scipy's LAPACK has no {name}", rule="custom-call.routine")
