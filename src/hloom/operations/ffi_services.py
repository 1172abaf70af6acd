"""The functions that handlers of XLA's typed FFI call: XLA_FFI_Api.

Errors, memory, a thread pool that runs tasks immediately, types, states and futures; as declared in XLA's
``xla/ffi/api/c_api.h`` (major version 0). A handler of a stage before EXECUTE may set a state, an object of
a registered type, which handlers of the call get later: that of INSTANTIATE belongs to the call in the
program and lives as long as it, those of PREPARE and INITIALIZE belong to one run of the call.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any, Final, TypeAlias

from hloom.errors import EvaluationError
from hloom.records import dataclass

_MINOR_VERSION: Final = 3
INSTANTIATE, PREPARE, INITIALIZE, EXECUTE = range(4)
"""The stages of a call."""
STAGES: Final = ("instantiate", "prepare", "initialize", "execute")
"""Their names."""
_OK, _INVALID_ARGUMENT, _NOT_FOUND, _ALREADY_EXISTS = 0, 3, 5, 6
_RESOURCE_EXHAUSTED, _UNIMPLEMENTED = 8, 12
_CODES: Final = """
OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED
RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS
UNAUTHENTICATED
"""
"""The names of the error codes from 0."""
_FUNCTIONS: Final = """
Error_Create Error_GetMessage Error_Destroy Handler_Register Stream_Get Type_Register ExecutionContext_Get
State_Set State_Get DeviceMemory_Allocate DeviceMemory_Free ThreadPool_Schedule ThreadPool_NumThreads
Future_Create Future_SetAvailable Future_SetError RunId_Get DeviceOrdinal_Get
"""
"""The functions of XLA_FFI_Api, in its order."""


# -- structs

CType: TypeAlias = type[
    ctypes.Structure | ctypes.c_void_p | ctypes.c_char_p | ctypes.c_int32 | ctypes.c_int64
]
_C_TYPES: Final[dict[str, CType]] = {
    "p": ctypes.c_void_p,
    "s": ctypes.c_char_p,
    "i": ctypes.c_int32,
    "l": ctypes.c_int64,
}


def c_fields(text: str, **structs: CType) -> list[tuple[str, CType]]:
    """Return the fields of a struct, written ``size:l data:p``, followed by fields that are structs.

    The letters are those of a pointer, a string, and integers of 32 and 64 bits.
    """
    fields = [field.split(":") for field in text.split()]
    return [*((name, _C_TYPES[letter]) for name, letter in fields), *structs.items()]


class FfiStruct(ctypes.Structure):
    """Common first fields of every struct of the interface."""

    _fields_ = c_fields("struct_size:l extension:p")

    def __init__(self, **fields: object) -> None:
        """Set fields, and the size of the struct."""
        super().__init__(**{"struct_size": ctypes.sizeof(self), **fields})


class _Version(FfiStruct):
    _fields_ = c_fields("major:i minor:i")


class _Api(FfiStruct):
    _functions = dict.fromkeys(_FUNCTIONS.split(), ctypes.c_void_p)
    _fields_ = c_fields("", version=_Version, internal=ctypes.c_void_p, **_functions)


class _ErrorArgs(FfiStruct):
    """Arguments of Error_Create; the other two error functions have the error in the field of the message."""

    _fields_ = c_fields("message:s code:i")


class _MessageArgs(FfiStruct):
    _fields_ = c_fields("error:p message:s")


class _MemoryArgs(FfiStruct):
    """Arguments of DeviceMemory_Allocate."""

    _fields_ = c_fields("context:p size:l alignment:l data:p")


class _FreeArgs(FfiStruct):
    _fields_ = c_fields("context:p size:l data:p")


class _TaskArgs(FfiStruct):
    _fields_ = c_fields("context:p task:p data:p")


class _NumberArgs(FfiStruct):
    """Arguments of functions that return a number; ThreadPool_NumThreads returns it through a pointer."""

    _fields_ = c_fields("context:p number:l")


class _Span(ctypes.Structure):
    _fields_ = c_fields("ptr:p len:l")


class _TypeInfo(FfiStruct):
    _fields_ = c_fields("deleter:p")


class _TypeArgs(FfiStruct):
    _fields_ = c_fields("", name=_Span, type_id=ctypes.c_void_p, type_info=ctypes.c_void_p)


class _StateArgs(FfiStruct):
    _fields_ = c_fields("context:p stage:i type_id:p state:p")


class _FutureArgs(FfiStruct):
    """Arguments of the three functions of futures; that which creates one has the first field alone."""

    _fields_ = c_fields("future:p error:p")


Service: TypeAlias = Callable[[Any], "int | None"]
"""Takes the struct of arguments, and returns the handle of an error, None for success."""
_API_FUNCTION: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_TASK: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_OFFERED: Final[dict[str, Callable[[int], int]]] = {}
"""The functions that handlers may call, by name; they take the address of their arguments."""


def _offers(name: str, kind: type[FfiStruct]) -> Callable[[Service], Service]:
    """Offer a function to handlers, which takes a struct of arguments."""

    def offer(service: Service) -> Service:
        _OFFERED[name] = lambda address: service(kind.from_address(address)) or _OK
        return service

    return offer


# -- errors, memory, tasks


_errors: Final[dict[int, tuple[int, bytes]]] = {}
"""Errors that have not been destroyed: code and message by handle."""
_handles: Final = count(1)


def _error(code: int, message: bytes) -> int:
    handle = next(_handles)
    _errors[handle] = (code, message)
    return handle


@_offers("Error_Create", _ErrorArgs)
def _error_create(arguments: Any) -> int:
    return _error(arguments.code, arguments.message or b"")


@_offers("Error_GetMessage", _MessageArgs)
def _error_message(arguments: Any) -> None:
    arguments.message = _errors[arguments.error][1]


@_offers("Error_Destroy", _MessageArgs)
def _error_destroy(arguments: Any) -> None:
    _errors.pop(arguments.error, None)


@_offers("DeviceMemory_Allocate", _MemoryArgs)
def _allocate(arguments: Any) -> int | None:
    pointer = ctypes.c_void_p()
    alignment = max(arguments.alignment, ctypes.sizeof(ctypes.c_void_p))
    sizes = ctypes.c_size_t(alignment), ctypes.c_size_t(arguments.size)
    if _process().posix_memalign(ctypes.byref(pointer), *sizes):
        return _error(_RESOURCE_EXHAUSTED, b"not enough memory")
    arguments.data = pointer.value
    return None


@_offers("DeviceMemory_Free", _FreeArgs)
def _free(arguments: Any) -> None:
    _process().free(ctypes.c_void_p(arguments.data))


@_offers("ThreadPool_Schedule", _TaskArgs)
def _schedule(arguments: Any) -> None:
    _TASK(arguments.task)(arguments.data)


@_offers("ThreadPool_NumThreads", _NumberArgs)
def _num_threads(arguments: Any) -> None:
    ctypes.c_int64.from_address(arguments.number).value = 1


@_offers("RunId_Get", _NumberArgs)
@_offers("DeviceOrdinal_Get", _NumberArgs)
def _zero(arguments: Any) -> None:
    """Return 0, the number of the only device and of a run."""
    offset = _NumberArgs.number.offset
    ctypes.memset(ctypes.addressof(arguments) + offset, 0, arguments.struct_size - offset)


def _unimplemented(name: str) -> Callable[[int], int]:
    message = f"hloom does not offer XLA_FFI_{name} to handlers".encode()

    def refuse(_: int) -> int:
        return _error(_UNIMPLEMENTED, message)

    return refuse


# -- types


_deleters: Final[dict[int, int]] = {}
"""The functions that destroy objects of registered types, by the types' numbers."""
_types: Final[dict[str, int]] = {}
_type_numbers: Final = count(1 << 32)
"""Numbers of types; XLA's own, whose registry other types may be in, begin at 1."""
_lock: Final = threading.Lock()


def register_type(name: str, type_id: int, type_info: int | None) -> None:
    """Register a type of states: write its number to an XLA_FFI_TypeId that has none, note its deleter.

    Args:
        name: unique among types.
        type_id: address of the XLA_FFI_TypeId.
        type_info: address of the XLA_FFI_TypeInfo, if there is one.
    """
    number = ctypes.c_int64.from_address(type_id)
    with _lock:
        if not number.value:
            number.value = _types.setdefault(name, next(_type_numbers))
        _types[name] = number.value
        if type_info:
            _deleters[number.value] = _TypeInfo.from_address(type_info).deleter or 0


@_offers("Type_Register", _TypeArgs)
def _type_register(arguments: Any) -> None:
    name = ctypes.string_at(arguments.name.ptr, arguments.name.len).decode("utf-8", "replace")
    register_type(name, arguments.type_id, arguments.type_info)


def _number_of(type_id: int | None) -> int:
    return ctypes.c_int64.from_address(type_id).value if type_id else 0


# -- contexts and states


@dataclass(frozen=True)
class _State:
    type_number: int
    address: int


class FfiExecutionContext:
    """The states of a call, by stage.

    Attributes:
        handle: its number, as handlers get it.
    """

    def __init__(self, outer: FfiExecutionContext | None = None) -> None:
        """Make a context without states of its own; it also has those of an outer one."""
        self._states: dict[int, _State] = {}
        self._outer = outer
        self.handle = next(_handles)
        _contexts[self.handle] = self

    def state(self, stage: int) -> _State | None:
        """Return the state that a stage has set."""
        state = self._states.get(stage)
        return self._outer.state(stage) if state is None and self._outer is not None else state

    def set_state(self, stage: int, state: _State) -> bool:
        """Take a state; it is destroyed together with the context. Return false if the stage has set one."""
        if self._states.setdefault(stage, state) is not state:
            return False
        deleter = _deleters.get(state.type_number)
        if deleter:
            weakref.finalize(self, _TASK(deleter), state.address).atexit = False
        return True


_contexts: Final[weakref.WeakValueDictionary[int, FfiExecutionContext]] = weakref.WeakValueDictionary()


@_offers("State_Set", _StateArgs)
def _set_state(arguments: Any) -> int | None:
    context, number = _contexts.get(arguments.context or 0), _number_of(arguments.type_id)
    if context is None:
        return _error(_INVALID_ARGUMENT, b"this call keeps no state: its target has no stage but execute")
    if not number:
        return _error(_INVALID_ARGUMENT, b"the type of the state is not registered")
    if not context.set_state(arguments.stage, _State(number, arguments.state or 0)):
        return _error(
            _ALREADY_EXISTS, f"the stage {_stage(arguments.stage)} has set a state already".encode()
        )
    return None


@_offers("State_Get", _StateArgs)
def _get_state(arguments: Any) -> int | None:
    context = _contexts.get(arguments.context or 0)
    state = context.state(arguments.stage) if context is not None else None
    if state is None:
        return _error(_NOT_FOUND, f"the stage {_stage(arguments.stage)} has set no state".encode())
    if state.type_number != _number_of(arguments.type_id):
        message = f"the state of the stage {_stage(arguments.stage)} has another type"
        return _error(_INVALID_ARGUMENT, message.encode())
    arguments.state = state.address
    return None


def _stage(number: int) -> str:
    return STAGES[number] if 0 <= number < len(STAGES) else str(number)


@_offers("ExecutionContext_Get", FfiStruct)
def _user_data(_: Any) -> int:
    return _error(_NOT_FOUND, b"programs have no user data")


# -- futures


class _Future:
    """An answer that a handler gives later."""

    def __init__(self) -> None:
        self.there = threading.Event()
        self.error = 0


_futures: Final[dict[int, _Future]] = {}


@_offers("Future_Create", _FutureArgs)
def _future_create(arguments: Any) -> None:
    arguments.future = next(_handles)
    _futures[arguments.future] = _Future()


@_offers("Future_SetAvailable", _FutureArgs)
def _future_available(arguments: Any) -> int | None:
    return _future_set(arguments, _OK)


@_offers("Future_SetError", _FutureArgs)
def _future_error(arguments: Any) -> int | None:
    return _future_set(arguments, arguments.error or _OK)


def _future_set(arguments: Any, error: int) -> int | None:
    future = _futures.get(arguments.future or 0)
    if future is None or future.there.is_set():
        return _error(_INVALID_ARGUMENT, b"no such future, or one that has been set")
    future.error = error
    future.there.set()
    return None


def answer(name: str, error: int, future: int) -> EvaluationError | None:
    """Return the error of a call, None if it succeeded; wait for the future if it answered by one.

    Args:
        name: the call's target.
        error, future: handles, or 0.
    """
    if future:
        status = _futures.get(future)
        if status is None:
            message = (
                f"custom call target {name!r} answers by a future that XLA_FFI_Future_Create did not make"
            )
            return EvaluationError(message, rule="custom-call.future")
        status.there.wait()
        del _futures[future]
        error = error or status.error
    if not error:
        return None
    code, text = _errors.pop(error, (2, b"an error that was not made by XLA_FFI_Error_Create"))
    code_name = dict(enumerate(_CODES.split())).get(code, str(code))
    message = f"custom call target {name!r} failed: {code_name}: {text.decode('utf-8', 'replace')}"
    return EvaluationError(message, rule="custom-call.failed")


# -- the table


@cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None)


@cache
def _table() -> tuple[_Api, list[Any]]:
    """Return the table of functions, and the objects that must outlive it."""
    names = _FUNCTIONS.split()
    functions = [_API_FUNCTION(_OFFERED.get(name) or _unimplemented(name)) for name in names]
    api = _Api(version=_Version(major=0, minor=_MINOR_VERSION))
    for name, function in zip(names, functions, strict=True):
        setattr(api, name, ctypes.cast(function, ctypes.c_void_p).value)
    return api, functions


def table_address() -> int:
    """Return the address of the table."""
    return ctypes.addressof(_table()[0])
