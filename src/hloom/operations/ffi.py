"""C functions of XLA's typed FFI: handlers that receive a call frame with buffers and attributes.

A handler is ``XLA_FFI_Error* handler(XLA_FFI_CallFrame* frame)``, declared in XLA's ``xla/ffi/api/c_api.h``
(major version 0). Buffers, attributes, errors, memory, and a thread pool that runs tasks immediately are
supported. Handlers with state are not: each call has the stage EXECUTE only.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from typing import Any, Final, Protocol

import numpy as np

from hloom.errors import EvaluationError
from hloom.operations.ffi_attributes import Attributes, parse_attributes
from hloom.shape.shape import Shape

_MINOR_VERSION: Final = 3
_EXECUTE: Final = 3
_BUFFER: Final = 1
_ARRAY, _DICTIONARY, _SCALAR, _STRING = 1, 2, 3, 4
_OK, _UNIMPLEMENTED, _RESOURCE_EXHAUSTED = 0, 12, 8
_CODES: Final = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
    "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
_DATA_TYPES: Final = {
    "bool": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint8": 6, "uint16": 7, "uint32": 8,
    "uint64": 9, "float32": 11, "float64": 12,
}  # fmt: skip
"""The numbers of the types of attributes, which are those of XLA's element types."""


class Memory(Protocol):
    """A value in memory: the address of its elements in the order of its layout."""

    @property
    def address(self) -> int:
        """Address of the elements, or of the pointers to the elements of a tuple."""
        ...

    @property
    def shape(self) -> Shape:
        """Shape with its layout."""
        ...

    @property
    def children(self) -> Sequence[Memory]:
        """Elements of a tuple."""
        ...


class _Struct(ctypes.Structure):
    """Common first fields of every struct of the interface."""

    _fields_ = (("struct_size", ctypes.c_size_t), ("extension", ctypes.c_void_p))


class _Buffer(_Struct):
    _fields_ = (
        ("dtype", ctypes.c_int32), ("data", ctypes.c_void_p), ("rank", ctypes.c_int64),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
    )  # fmt: skip


class _Values(_Struct):
    """Args and Rets."""

    _fields_ = (("size", ctypes.c_int64), ("types", ctypes.c_void_p), ("values", ctypes.c_void_p))


class _Attrs(_Struct):
    _fields_ = (
        ("size", ctypes.c_int64), ("types", ctypes.c_void_p), ("names", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
    )  # fmt: skip


class _Frame(_Struct):
    _fields_ = (
        ("api", ctypes.c_void_p), ("context", ctypes.c_void_p), ("stage", ctypes.c_int32),
        ("args", _Values), ("rets", _Values), ("attrs", _Attrs), ("future", ctypes.c_void_p),
    )  # fmt: skip


class _Span(ctypes.Structure):
    _fields_ = (("ptr", ctypes.c_char_p), ("len", ctypes.c_size_t))


class _Scalar(ctypes.Structure):
    _fields_ = (("dtype", ctypes.c_int32), ("value", ctypes.c_void_p))


class _Array(ctypes.Structure):
    _fields_ = (("dtype", ctypes.c_int32), ("size", ctypes.c_size_t), ("data", ctypes.c_void_p))


class _Version(_Struct):
    _fields_ = (("major", ctypes.c_int32), ("minor", ctypes.c_int32))


_FUNCTIONS: Final = (
    "Error_Create", "Error_GetMessage", "Error_Destroy", "Handler_Register", "Stream_Get", "Type_Register",
    "ExecutionContext_Get", "State_Set", "State_Get", "DeviceMemory_Allocate", "DeviceMemory_Free",
    "ThreadPool_Schedule", "ThreadPool_NumThreads", "Future_Create", "Future_SetAvailable", "Future_SetError",
    "RunId_Get", "DeviceOrdinal_Get",
)  # fmt: skip
"""The functions of XLA_FFI_Api, in its order."""


class _Api(_Struct):
    _fields_ = (
        ("version", _Version), ("internal", ctypes.c_void_p),
        *((name, ctypes.c_void_p) for name in _FUNCTIONS),
    )  # fmt: skip


class _ErrorArgs(_Struct):
    """Arguments of Error_Create; the other two error functions have the error in the field of the message."""

    _fields_ = (("message", ctypes.c_char_p), ("code", ctypes.c_int32))


class _MessageArgs(_Struct):
    _fields_ = (("error", ctypes.c_void_p), ("message", ctypes.c_char_p))


class _MemoryArgs(_Struct):
    """Arguments of DeviceMemory_Allocate."""

    _fields_ = (
        ("context", ctypes.c_void_p), ("size", ctypes.c_size_t), ("alignment", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
    )  # fmt: skip


class _FreeArgs(_Struct):
    _fields_ = (("context", ctypes.c_void_p), ("size", ctypes.c_size_t), ("data", ctypes.c_void_p))


class _TaskArgs(_Struct):
    _fields_ = (("context", ctypes.c_void_p), ("task", ctypes.c_void_p), ("data", ctypes.c_void_p))


class _NumberArgs(_Struct):
    """Arguments of functions that return a number; ThreadPool_NumThreads returns it through a pointer."""

    _fields_ = (("context", ctypes.c_void_p), ("number", ctypes.c_int64))


_HANDLER: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Frame))
_API_FUNCTION: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_TASK: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


# -- the functions that handlers call

_errors: Final[dict[int, tuple[int, bytes]]] = {}
"""Errors that have not been destroyed: code and message by handle."""
_handles: Final = count(1)


def _error(code: int, message: bytes) -> int:
    handle = next(_handles)
    _errors[handle] = (code, message)
    return handle


def _error_create(address: int) -> int:
    given = _ErrorArgs.from_address(address)
    return _error(given.code, given.message or b"")


def _error_message(address: int) -> None:
    given = _MessageArgs.from_address(address)
    given.message = _errors[given.error][1]


def _error_destroy(address: int) -> None:
    _errors.pop(_MessageArgs.from_address(address).error, None)


def _allocate(address: int) -> int:
    given = _MemoryArgs.from_address(address)
    pointer = ctypes.c_void_p()
    alignment = max(given.alignment, ctypes.sizeof(ctypes.c_void_p))
    if _process().posix_memalign(
        ctypes.byref(pointer), ctypes.c_size_t(alignment), ctypes.c_size_t(given.size)
    ):
        return _error(_RESOURCE_EXHAUSTED, b"not enough memory")
    given.data = pointer.value
    return _OK


def _free(address: int) -> int:
    _process().free(ctypes.c_void_p(_FreeArgs.from_address(address).data))
    return _OK


def _schedule(address: int) -> int:
    given = _TaskArgs.from_address(address)
    _TASK(given.task)(given.data)
    return _OK


def _num_threads(address: int) -> int:
    ctypes.c_int64.from_address(_NumberArgs.from_address(address).number).value = 1
    return _OK


def _zero(address: int) -> int:
    """Return 0, the number of the only device and of a run."""
    given = _NumberArgs.from_address(address)
    ctypes.memset(
        ctypes.addressof(given) + _NumberArgs.number.offset, 0, given.struct_size - _NumberArgs.number.offset
    )
    return _OK


def _unimplemented(name: str) -> Callable[[int], int]:
    message = f"hloom does not offer XLA_FFI_{name} to handlers".encode()

    def refuse(_: int) -> int:
        return _error(_UNIMPLEMENTED, message)

    return refuse


_OFFERED: Final[dict[str, Any]] = {
    "Error_Create": _error_create,
    "Error_GetMessage": _error_message,
    "Error_Destroy": _error_destroy,
    "DeviceMemory_Allocate": _allocate,
    "DeviceMemory_Free": _free,
    "ThreadPool_Schedule": _schedule,
    "ThreadPool_NumThreads": _num_threads,
    "RunId_Get": _zero,
    "DeviceOrdinal_Get": _zero,
}


@cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None)


@cache
def _api() -> tuple[_Api, list[Any]]:
    """Return the table of functions, and the objects that must outlive it."""
    functions = [_API_FUNCTION(_OFFERED.get(name) or _unimplemented(name)) for name in _FUNCTIONS]
    api = _Api(struct_size=ctypes.sizeof(_Api))
    api.version = _Version(struct_size=ctypes.sizeof(_Version), major=0, minor=_MINOR_VERSION)
    for name, function in zip(_FUNCTIONS, functions, strict=True):
        setattr(api, name, ctypes.cast(function, ctypes.c_void_p).value)
    return api, functions


# -- calls


class Handler:
    """A C function of the typed FFI."""

    def __init__(self, name: str, address: int) -> None:
        self.name = name
        self._call = _HANDLER(address)

    def __call__(self, operands: Sequence[Memory], result: Memory, attributes: Attributes) -> None:
        """Run the function; raises EvaluationError (``custom-call.failed``) with its error."""
        held: list[Any] = []
        frame = _Frame(
            struct_size=_Frame.future.offset,
            api=ctypes.addressof(_api()[0]),
            stage=_EXECUTE,
            args=_values([leaf for operand in operands for leaf in _leaves(operand)], held),
            rets=_values(_leaves(result), held),
            attrs=_attributes(attributes, held),
        )
        handle = self._call(frame)
        if frame.future or handle:
            raise failure(self.name, handle or 0, frame.future or 0)


def failure(name: str, handle: int, future: int) -> EvaluationError:
    """Return the error of a call that answered by an error's handle or a future."""
    if future:
        message = f"custom call target {name!r} answers by a future, which hloom does not wait for"
        return EvaluationError(message, rule="custom-call.future")
    code, text = _errors.pop(handle, (2, b"an error that was not made by XLA_FFI_Error_Create"))
    code_name = _CODES[code] if 0 <= code < len(_CODES) else str(code)
    message = f"custom call target {name!r} failed: {code_name}: {text.decode('utf-8', 'replace')}"
    return EvaluationError(message, rule="custom-call.failed")


def _leaves(memory: Memory) -> list[Memory]:
    if not memory.shape.is_tuple:
        return [memory]
    return [leaf for child in memory.children for leaf in _leaves(child)]


def _values(leaves: Sequence[Memory], held: list[Any]) -> _Values:
    buffers: list[_Buffer] = []
    for leaf in leaves:
        dims = (ctypes.c_int64 * len(leaf.shape.dimensions))(*leaf.shape.dimensions)
        buffers.append(
            _Buffer(
                struct_size=ctypes.sizeof(_Buffer), dtype=leaf.shape.element_type.number, data=leaf.address,
                rank=len(dims), dims=dims,
            )
        )  # fmt: skip
        held.append(dims)
    types = (ctypes.c_int32 * len(buffers))(*[_BUFFER] * len(buffers))
    pointers = _addresses(buffers)
    held += [buffers, types, pointers]
    return _Values(
        struct_size=ctypes.sizeof(_Values), size=len(buffers), types=ctypes.addressof(types),
        values=ctypes.addressof(pointers),
    )  # fmt: skip


def _attributes(attributes: Attributes, held: list[Any]) -> _Attrs:
    """Return the attributes, sorted by name as handlers' binary search requires."""
    names: list[_Span] = []
    types: list[int] = []
    values: list[Any] = []
    for name in sorted(attributes, key=str.encode):
        encoded = name.encode()
        names.append(_Span(encoded, len(encoded)))
        kind, value = _attribute(attributes[name], held)
        types.append(kind)
        values.append(value)
    kinds = (ctypes.c_int32 * len(types))(*types)
    spans, pointers = _addresses(names), _addresses(values)
    held += [names, values, kinds, spans, pointers]
    return _Attrs(
        struct_size=ctypes.sizeof(_Attrs), size=len(names), types=ctypes.addressof(kinds),
        names=ctypes.addressof(spans), values=ctypes.addressof(pointers),
    )  # fmt: skip


def _attribute(value: Any, held: list[Any]) -> tuple[int, Any]:
    """Return the kind of an attribute, and the struct of its value."""
    if isinstance(value, dict):
        return _DICTIONARY, _attributes(value, held)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, str):
        encoded = value.encode("utf-8", "surrogateescape")
        return _STRING, _Span(encoded, len(encoded))
    array = np.array(value)
    held.append(array)
    number = _DATA_TYPES[array.dtype.name]
    if array.ndim:
        return _ARRAY, _Array(number, array.size, array.ctypes.data)
    return _SCALAR, _Scalar(number, array.ctypes.data)


def _addresses(structs: Sequence[ctypes.Structure]) -> Any:
    return (ctypes.c_void_p * len(structs))(*[ctypes.addressof(struct) for struct in structs])


# -- calls by native code

_functions: Final[dict[str, ctypes.c_void_p]] = {}
"""The C functions of targets, at addresses that stay; null while a target has none."""
_templates: Final[dict[str, list[Any]]] = {}
"""Call frames by their descriptions, and what they point to."""


def function_cell(target: str) -> ctypes.c_void_p:
    """Return the word in which native code finds the C function of a target."""
    return _functions.setdefault(target, ctypes.c_void_p())


def frame_description(operands: Sequence[Shape], results: Sequence[Shape], attributes: str) -> str:
    """Return what a call frame says beside the addresses of the arrays: types, dimensions and attributes."""
    arrays = [[[s.element_type.number, *s.dimensions] for s in shapes] for shapes in (operands, results)]
    return json.dumps([*arrays, attributes], separators=(",", ":"))


def frame_template(description: str) -> int:
    """Return the address of a frame without addresses of arrays, followed by a buffer for each of them.

    Native code copies it to its stack and fills in the addresses; see ``native_code/foreign.ll``.
    """
    held = _templates.get(description)
    if held is None:
        held = _templates.setdefault(description, _template(*json.loads(description)))
    return ctypes.addressof(held[0])


def _template(operands: list[list[int]], results: list[list[int]], attributes: str) -> list[Any]:
    arrays = [*operands, *results]
    memory = ctypes.create_string_buffer(ctypes.sizeof(_Frame) + len(arrays) * ctypes.sizeof(_Buffer))
    types = (ctypes.c_int32 * len(arrays))(*[_BUFFER] * len(arrays))
    held: list[Any] = [memory, types]
    frame = _Frame.from_buffer(memory)
    frame.struct_size, frame.api, frame.stage = _Frame.future.offset, ctypes.addressof(_api()[0]), _EXECUTE
    for values, given in ((frame.args, operands), (frame.rets, results)):
        values.struct_size, values.size, values.types = (
            ctypes.sizeof(_Values), len(given), ctypes.addressof(types)
        )  # fmt: skip
    frame.attrs = _attributes(parse_attributes(attributes), held)
    for number, (kind, *dimensions) in enumerate(arrays):
        place = ctypes.sizeof(_Frame) + number * ctypes.sizeof(_Buffer)
        buffer = _Buffer.from_buffer(memory, place)
        buffer.struct_size, buffer.dtype, buffer.rank = ctypes.sizeof(_Buffer), kind, len(dimensions)
        buffer.dims = (ctypes.c_int64 * len(dimensions))(*dimensions)
        held.append(buffer)
    return held
