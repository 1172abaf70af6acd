"""PJRT's extension for partitioners of custom calls, and JAX's call ``InspectSharding``.

Clients register functions in C for a target: ``partition`` takes shapes and shardings of a call, and returns
a module of StableHLO for one device with the shardings that it wants. Structs are those of openxla/xla:
``xla/pjrt/c/pjrt_c_api_custom_partitioner_extension.h``, ``xla/python/custom_partition_callback.h`` and
``xla/python/inspect_sharding.h``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from hloom.jax.pjrt import abi
from hloom.jax.pjrt.errors import INTERNAL, PjrtError

if TYPE_CHECKING:
    from hloom.ir.instruction import HloInstruction
    from hloom.ir.module import HloModule
    from hloom.shape.shape import Shape
    from hloom.sharding.partitioning.custom_calls import LocalProgram, ShardedShape
    from hloom.sharding.tiling.tiling import Tiling

_EXTENSION: Final = 2
"""The extension's number among the types of extensions."""
_TARGETS: Final = (b"CustomSPMDPartitioning", b"InspectSharding")
_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t


class _String(ctypes.Structure):
    _fields_ = (("data", _POINTER), ("size", _SIZE))


class _Value(ctypes.Structure):
    _fields_ = (("shape", _String), ("has_sharding", ctypes.c_bool), ("sharding", _String))


class _PartitionArguments(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_int64), ("scratch", _POINTER), ("free", _POINTER), ("has_error", ctypes.c_bool),
        ("code", ctypes.c_int), ("error", _String), ("num_operands", _SIZE), ("operands", _POINTER),
        ("result", _Value), ("backend_config", _String), ("module", _String), ("operand_shardings", _POINTER),
        ("result_sharding", _String),
    )  # fmt: skip


class _Callbacks(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_int64), ("private", _POINTER), ("destroy", _POINTER), ("partition", _POINTER),
        ("infer", _POINTER), ("propagate", _POINTER), ("side_effects", ctypes.c_bool),
    )  # fmt: skip


class _Registration(ctypes.Structure):
    _fields_ = (("struct_size", _SIZE), ("name", _POINTER), ("name_size", _SIZE), ("callbacks", _POINTER))


class _Inspection(ctypes.Structure):
    _fields_ = (
        ("sharding", _POINTER), ("size", _SIZE), ("error", ctypes.c_char_p), ("scratch", _POINTER),
        ("free", _POINTER),
    )  # fmt: skip


_partitioners: Final[dict[str, int]] = {}
"""The callbacks of targets."""
_batches: Final[set[str]] = set()
_held: Final[list[object]] = []


def custom_partitioner_extension(following: int, as_c: Callable[..., Any]) -> int:
    """Return the address of the extension, before another one; ``as_c`` makes C functions of Python's."""
    functions = [as_c(function, _Registration) for function in (_register, _register_batch)]
    addresses = [ctypes.cast(function, _POINTER).value or 0 for function in functions]
    extension = abi.extension(_EXTENSION, following, addresses)
    _held.extend((functions, extension))
    return extension.address


def _register(args: ctypes.Structure) -> None:
    _partitioners[_name(args)] = args.callbacks


def _register_batch(args: ctypes.Structure) -> None:
    _batches.add(_name(args))


def _name(args: ctypes.Structure) -> str:
    return ctypes.string_at(args.name, args.name_size).decode()


def calls_back(artifact: bytes) -> bool:
    """Return whether the compilation of a module calls functions of the client."""
    return any(target in artifact for target in _TARGETS)


def install(convert: Callable[[bytes], HloModule]) -> None:
    """Let the partitioner know the targets; ``convert`` reads modules of StableHLO."""
    from hloom.jax.calls.callbacks import TILEWISE_TARGET
    from hloom.sharding.partitioning.custom_calls import BATCH_PARTITIONABLE, CALL_PARTITIONERS, TILEWISE

    TILEWISE.add(TILEWISE_TARGET)
    BATCH_PARTITIONABLE.update(_batches)
    CALL_PARTITIONERS.update({name: partial(_partition, at, convert) for name, at in _partitioners.items()})
    CALL_PARTITIONERS["InspectSharding"] = _inspect


def _partition(
    callbacks: int,
    convert: Callable[[bytes], HloModule],
    call: HloInstruction,
    operands: Sequence[ShardedShape],
    results: Sequence[ShardedShape],
) -> LocalProgram:
    """Call a client's partitioner. Raises PjrtError with what it says."""
    from hloom.sharding.partitioning.custom_calls import LocalProgram

    table = _Callbacks.from_address(callbacks)
    kept: list[object] = []
    values = (_Value * max(1, len(operands)))(*(_value([operand], False, kept) for operand in operands))
    result = _value(results, call.shape.is_tuple, kept)
    config = _string(call.backend_config.encode("utf-8", "surrogateescape"), kept)
    args = _PartitionArguments(num_operands=len(operands), operands=ctypes.addressof(values), result=result)
    args.backend_config = config
    ctypes.CFUNCTYPE(None, _POINTER, _POINTER)(table.partition)(callbacks, ctypes.addressof(args))
    try:
        if args.has_error:
            raise PjrtError(args.code or INTERNAL, _bytes(args.error).decode("utf-8", "replace"))
        shardings = (_String * len(operands)).from_address(args.operand_shardings) if operands else ()
        devices = operands[0][1].devices if operands else results[0][1].devices
        return LocalProgram(
            convert(_bytes(args.module)),
            [
                _tilings(_bytes(s), [shape], devices)[0]
                for s, (shape, _) in zip(shardings, operands, strict=True)
            ],
            _tilings(_bytes(args.result_sharding), [shape for shape, _ in results], devices),
        )
    finally:
        if args.free:
            ctypes.CFUNCTYPE(None, _POINTER)(args.free)(args.scratch)


def _inspect(call: HloInstruction, operands: Sequence[ShardedShape], results: Sequence[ShardedShape]) -> None:
    """Tell the client the sharding of a value. The call names a C function and its data. Raises PjrtError."""
    function, data = (
        int.from_bytes(call.backend_config.encode("utf-8", "surrogateescape")[at : at + 8], "little")
        for at in (0, 8)
    )
    sharding = _serialized([operands[0][1]], False)
    buffer = ctypes.create_string_buffer(sharding, len(sharding))
    args = _Inspection(ctypes.addressof(buffer), len(sharding))
    ctypes.CFUNCTYPE(None, _POINTER, _POINTER)(function)(data, ctypes.addressof(args))
    if args.error:
        message = args.error.decode("utf-8", "replace")
        if args.free:
            ctypes.CFUNCTYPE(None, _POINTER)(args.free)(ctypes.addressof(args))
        raise PjrtError(INTERNAL, message)


def _value(arrays: Sequence[ShardedShape], is_tuple: bool, kept: list[object]) -> _Value:
    """Return an array or a tuple of arrays with its sharding."""
    from hloom.proto.shape import shape_bytes
    from hloom.shape.shape import Shape

    shapes = [shape for shape, _ in arrays]
    shape = Shape.tuple_(shapes) if is_tuple else shapes[0]
    sharding = _serialized([tiling for _, tiling in arrays], is_tuple)
    return _Value(_string(shape_bytes(shape), kept), True, _string(sharding, kept))


def _serialized(tilings: Sequence[Tiling], is_tuple: bool) -> bytes:
    """Return the OpSharding of an array or a tuple of arrays."""
    from hloom.ir.sharding import Sharding
    from hloom.proto.schema.xla_data_pb2 import OpSharding

    parts = tuple(tiling.to_sharding() for tiling in tilings)
    message = OpSharding()
    (Sharding("tuple", elements=parts) if is_tuple else parts[0]).write(message)
    return message.SerializeToString()


def _tilings(sharding: bytes, shapes: Sequence[Shape], devices: int) -> list[Tiling]:
    """Return the tilings of an OpSharding of arrays."""
    from hloom.ir.sharding import Sharding
    from hloom.proto.schema.xla_data_pb2 import OpSharding
    from hloom.sharding.tiling.tiling import Tiling

    found = Sharding.read(OpSharding.FromString(sharding))
    parts = found.elements if found.kind == "tuple" else (found,) * len(shapes)
    return [Tiling.of(part, shape.rank, devices) for part, shape in zip(parts, shapes, strict=True)]


def _string(content: bytes, kept: list[object]) -> _String:
    kept.append(buffer := ctypes.create_string_buffer(content, len(content) + 1))
    return _String(ctypes.addressof(buffer), len(content))


def _bytes(string: Any) -> bytes:
    return ctypes.string_at(string.data, string.size) if string.size else b""
