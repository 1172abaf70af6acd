"""C functions of XLA's typed FFI: handlers that receive a call frame with buffers and attributes.

A handler is ``XLA_FFI_Error* handler(XLA_FFI_CallFrame* frame)``, declared in XLA's ``xla/ffi/api/c_api.h``
(major version 0); `hloom.operations.ffi_services` has the functions that it may call.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np

from hloom.ir.annotations import Annotation
from hloom.ir.instruction import HloInstruction
from hloom.operations.ffi_attributes import Attributes, parse_attributes
from hloom.operations.ffi_services import (
    EXECUTE,
    STAGES,
    FfiExecutionContext,
    FfiStruct,
    answer,
    c_fields,
    table_address,
)
from hloom.records import dataclass
from hloom.shape.element_type import ElementType
from hloom.shape.shape import Shape

_BUFFER: Final = 1
_ARRAY, _DICTIONARY, _SCALAR, _STRING = 1, 2, 3, 4


class AddressedValue(Protocol):
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
    def children(self) -> Sequence[AddressedValue]:
        """Elements of a tuple."""
        ...


class _Buffer(FfiStruct):
    _fields_ = c_fields("dtype:i data:p rank:l dims:p")


class _Values(FfiStruct):
    """Args and Rets."""

    _fields_ = c_fields("size:l types:p values:p")


class _Attrs(FfiStruct):
    _fields_ = c_fields("size:l types:p names:p values:p")


class _Frame(FfiStruct):
    _fields_ = c_fields(
        "api:p context:p stage:i", args=_Values, rets=_Values, attrs=_Attrs, future=ctypes.c_void_p
    )


class _Span(ctypes.Structure):
    _fields_ = c_fields("ptr:s len:l")


class _Scalar(ctypes.Structure):
    _fields_ = c_fields("dtype:i value:p")


class _Array(ctypes.Structure):
    _fields_ = c_fields("dtype:i size:l data:p")


_HANDLER: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Frame))


# -- calls


class Handler:
    """A C function of the typed FFI, for one stage of a call."""

    def __init__(self, name: str, address: int, stage: int = EXECUTE) -> None:
        self.name = name
        self._stage = stage
        self._call = _HANDLER(address)

    def __call__(
        self,
        operands: Sequence[AddressedValue],
        results: Sequence[AddressedValue],
        attributes: Attributes,
        context: FfiExecutionContext | None = None,
    ) -> None:
        """Run the function; raises EvaluationError (``custom-call.failed``) with its error."""
        owners: list[object] = []
        frame = _Frame(
            struct_size=_Frame.future.offset,
            api=table_address(),
            context=context.handle if context is not None else None,
            stage=self._stage,
            args=_values([leaf for operand in operands for leaf in _leaves(operand)], owners),
            rets=_values([leaf for result in results for leaf in _leaves(result)], owners),
            attrs=_attributes(attributes, owners),
        )
        error = self._call(frame)
        failure = answer(self.name, error or 0, frame.future or 0) if error or frame.future else None
        if failure is not None:
            raise failure


class StagedHandler:
    """The C functions of the stages of a call.

    The first run of an instruction instantiates the call, which may set a state; each run prepares,
    initializes and executes it. The states of instantiation live as long as the instruction.
    """

    def __init__(self, name: str, addresses: Mapping[str, int]) -> None:
        """Take the address of the function of each stage; ``execute`` must be among them."""
        self._handlers = [
            Handler(name, addresses[stage], number)
            for number, stage in enumerate(STAGES)
            if stage in addresses
        ]
        self._instantiate = self._handlers.pop(0) if "instantiate" in addresses else None
        self._lock = threading.Lock()

    def __call__(
        self,
        call: HloInstruction,
        operands: Sequence[AddressedValue],
        result: AddressedValue,
        attributes: Attributes,
    ) -> None:
        """Run the stages; raises EvaluationError (``custom-call.failed``) with the first error."""
        context = FfiExecutionContext(self._instantiated(call, attributes))
        for handler in self._handlers:
            handler(operands, [result], attributes, context)

    def _instantiated(self, call: HloInstruction, attributes: Attributes) -> FfiExecutionContext:
        """Return the context of an instruction, made in its first run and by this target."""
        with self._lock:
            made = call.annotation(_Instantiated)
            if made is None or made.target is not self:
                made = _Instantiated(self, FfiExecutionContext())
                if self._instantiate is not None:
                    self._instantiate((), (), attributes, made.context)
                call.annotate(made)
            return made.context


@dataclass(frozen=True, slots=True)
class _Instantiated(Annotation):
    """The context of a call, with the states of its instantiation."""

    target: StagedHandler
    context: FfiExecutionContext


def _leaves(memory: AddressedValue) -> list[AddressedValue]:
    if not memory.shape.is_tuple:
        return [memory]
    return [leaf for child in memory.children for leaf in _leaves(child)]


def _values(leaves: Sequence[AddressedValue], owners: list[object]) -> _Values:
    sizes = [_integers(ctypes.c_int64, leaf.shape.dimensions, owners) for leaf in leaves]
    buffers = [
        _Buffer(dtype=leaf.shape.element_type.number, data=leaf.address, rank=leaf.shape.rank, dims=address)
        for leaf, address in zip(leaves, sizes, strict=True)
    ]
    types = _integers(ctypes.c_int32, [_BUFFER] * len(buffers), owners)
    return _Values(size=len(buffers), types=types, values=_addresses(buffers, owners))


def _attributes(attributes: Attributes, owners: list[object]) -> _Attrs:
    """Return the attributes, sorted by name as handlers' binary search requires."""
    names: list[_Span] = []
    types: list[int] = []
    values: list[Any] = []
    for name in sorted(attributes, key=str.encode):
        encoded = name.encode()
        names.append(_Span(encoded, len(encoded)))
        kind, value = _attribute(attributes[name], owners)
        types.append(kind)
        values.append(value)
    kinds = _integers(ctypes.c_int32, types, owners)
    spans, pointers = _addresses(names, owners), _addresses(values, owners)
    return _Attrs(size=len(names), types=kinds, names=spans, values=pointers)


def _attribute(value: object, owners: list[object]) -> tuple[int, Any]:
    """Return the kind of an attribute, and the struct of its value."""
    if isinstance(value, dict):
        return _DICTIONARY, _attributes(value, owners)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, str):
        encoded = value.encode("utf-8", "surrogateescape")
        return _STRING, _Span(encoded, len(encoded))
    array = np.array(value)
    owners.append(array)
    number = ElementType.from_dtype(array.dtype).number
    if array.ndim:
        return _ARRAY, _Array(number, array.size, array.ctypes.data)
    return _SCALAR, _Scalar(number, array.ctypes.data)


def _addresses(structs: Sequence[ctypes.Structure], owners: list[object]) -> int:
    """Return the address of an array of the structs' addresses."""
    owners.append(structs)
    return _integers(ctypes.c_int64, list(map(ctypes.addressof, structs)), owners)


def _integers(
    kind: type[ctypes.c_int32 | ctypes.c_int64], numbers: Sequence[int], owners: list[object]
) -> int:
    """Return the address of an array of integers, which lives as long as the list of owners."""
    array = (kind * len(numbers))(*numbers)
    owners.append(array)
    return ctypes.addressof(array)


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

    Native code copies it to its stack and fills in the addresses; see ``routines/foreign.py``.
    """
    owners = _templates.get(description)
    if owners is None:
        owners = _templates.setdefault(description, _template(*json.loads(description)))
    return ctypes.addressof(owners[0])


def _template(operands: list[list[int]], results: list[list[int]], attributes: str) -> list[Any]:
    arrays = [*operands, *results]
    memory = ctypes.create_string_buffer(ctypes.sizeof(_Frame) + len(arrays) * ctypes.sizeof(_Buffer))
    owners: list[object] = [memory]
    types = _integers(ctypes.c_int32, [_BUFFER] * len(arrays), owners)
    frame = _Frame.from_buffer(memory)
    frame.struct_size, frame.api, frame.stage = _Frame.future.offset, table_address(), EXECUTE
    frame.args, frame.rets = (_Values(size=len(group), types=types) for group in (operands, results))
    frame.attrs = _attributes(parse_attributes(attributes), owners)
    for number, (kind, *dimensions) in enumerate(arrays):
        buffer = _Buffer.from_buffer(memory, ctypes.sizeof(_Frame) + number * ctypes.sizeof(_Buffer))
        buffer.struct_size, buffer.dtype, buffer.rank = ctypes.sizeof(_Buffer), kind, len(dimensions)
        buffer.dims = _integers(ctypes.c_int64, dimensions, owners)
    return owners
