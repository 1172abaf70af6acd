"""PJRT's extension for partitioners of custom calls, and JAX's custom call ``InspectSharding``.

The client registers C callbacks for a target: ``partition`` takes the shapes and shardings of a call, and
returns a StableHLO module for one device with the shardings that it requires. The structs are declared in
openxla/xla: ``xla/pjrt/c/pjrt_c_api_custom_partitioner_extension.h``,
``xla/python/custom_partition_callback.h`` and ``xla/python/inspect_sharding.h``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from hloom.jax.pjrt import abi
from hloom.jax.pjrt.api import callback_of
from hloom.jax.pjrt.errors import INTERNAL, PjrtError

if TYPE_CHECKING:
    from hloom.ir.instruction import HloInstruction
    from hloom.ir.module import HloModule
    from hloom.shape.shape import Shape
    from hloom.sharding.partitioning.custom_calls import LocalProgram, ShardedShape
    from hloom.sharding.tiling.tiling import Tiling

_EXTENSION: Final = 2
"""The number of the extension's type."""
_TARGETS: Final = (b"CustomSPMDPartitioning", b"InspectSharding")
_POINTER: Final = ctypes.c_void_p
_STRUCTS: Final = abi.structs("""
String data:p size:z
Value shape:String has_sharding:b sharding:String
PartitionArguments version:l scratch:p free:p has_error:b code:i error:String num_operands:z operands:p
    result:Value backend_config:String module:String operand_shardings:p result_sharding:String
Callbacks version:l private:p destroy:p partition:p infer:p propagate:p side_effects:b
Registration struct_size:z name:p name_size:z callbacks:p
Inspection sharding:p size:z error:p scratch:p free:p
""")
_String, _Value, _PartitionArguments, _Callbacks, _Registration, _Inspection = (
    struct.ctypes_class for struct in _STRUCTS.values()
)
_partitioners: Final[dict[str, int]] = {}
"""The address of the callbacks of each target."""
_batch_partitionable: Final[set[str]] = set()
"""Targets that may be partitioned along batch dimensions without a callback."""


def custom_partitioner_extension(next: int) -> int:
    """Return the address of PJRT's custom-partitioner extension, by which clients register partitioners.

    ``next`` is the address of the next extension in the linked list.
    """
    functions = [callback_of(function, _Registration) for function in (_register, _register_batch)]
    return abi.extension(_EXTENSION, next, functions)


def _register(args: ctypes.Structure) -> None:
    _partitioners[_name(args)] = args.callbacks


def _register_batch(args: ctypes.Structure) -> None:
    _batch_partitionable.add(_name(args))


def _name(args: ctypes.Structure) -> str:
    return ctypes.string_at(args.name, args.name_size).decode()


def calls_back(artifact: bytes) -> bool:
    """Return whether compiling a StableHLO artifact calls C functions that the client registered.

    Returns True if the name ``CustomSPMDPartitioning`` or ``InspectSharding`` occurs in the artifact. Such a
    program is not cached, because the calls are effects of compiling it.
    """
    return any(target in artifact for target in _TARGETS)


def install(convert: Callable[[bytes], HloModule]) -> None:
    """Register the client's partitioners of custom calls with hloom's SPMD partitioner.

    ``convert`` converts to HLO the StableHLO artifacts that these partitioners return.
    """
    from hloom.jax.calls.callbacks import TILEWISE_TARGET
    from hloom.sharding.partitioning.custom_calls import BATCH_PARTITIONABLE, CALL_PARTITIONERS, TILEWISE

    TILEWISE.add(TILEWISE_TARGET)
    BATCH_PARTITIONABLE.update(_batch_partitionable)
    CALL_PARTITIONERS.update({name: partial(_partition, at, convert) for name, at in _partitioners.items()})
    CALL_PARTITIONERS["InspectSharding"] = _inspect


def _partition(
    callbacks: int,
    convert: Callable[[bytes], HloModule],
    call: HloInstruction,
    operands: Sequence[ShardedShape],
    results: Sequence[ShardedShape],
) -> LocalProgram:
    """Partition a custom call by the client's C function ``partition``; return the program for each device.

    Args:
        callbacks: the address of the client's Callbacks struct.
        convert: converts to HLO the StableHLO artifact that ``partition`` returns.
        call: the custom call.
        operands, results: the global shape and the tiling of each operand, and of each result.

    Raises PjrtError with the error that the C function reports.
    """
    from hloom.sharding.partitioning.custom_calls import LocalProgram

    table = _Callbacks.from_address(callbacks)
    strings: list[object] = []
    values = (_Value * max(1, len(operands)))(*(_value([operand], False, strings) for operand in operands))
    result = _value(results, call.shape.is_tuple, strings)
    config = _string(call.backend_config.encode("utf-8", "surrogateescape"), strings)
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
    """Pass the sharding of the operand of an ``InspectSharding`` call to the call's C function.

    The sharding is a serialized OpSharding. The backend configuration of ``call`` consists of two
    little-endian addresses: of the C function, and of the data to pass to it. Raises PjrtError with the error
    that the function reports.
    """
    function, data = (
        int.from_bytes(call.backend_config.encode("utf-8", "surrogateescape")[at : at + 8], "little")
        for at in (0, 8)
    )
    sharding = _serialized([operands[0][1]], False)
    buffer = ctypes.create_string_buffer(sharding, len(sharding))
    args = _Inspection(ctypes.addressof(buffer), len(sharding))
    ctypes.CFUNCTYPE(None, _POINTER, _POINTER)(function)(data, ctypes.addressof(args))
    if args.error:
        message = ctypes.string_at(args.error).decode("utf-8", "replace")
        if args.free:
            ctypes.CFUNCTYPE(None, _POINTER)(args.free)(ctypes.addressof(args))
        raise PjrtError(INTERNAL, message)


def _value(arrays: Sequence[ShardedShape], is_tuple: bool, strings: list[object]) -> Any:
    """Return the C struct with the shape and sharding of an array, or of a tuple of arrays.

    Appends the strings whose addresses are in the struct to ``strings``, which keeps them alive.
    """
    from hloom.proto.shape import shape_bytes
    from hloom.shape.shape import Shape

    shapes = [shape for shape, _ in arrays]
    shape = Shape.tuple_(shapes) if is_tuple else shapes[0]
    sharding = _serialized([tiling for _, tiling in arrays], is_tuple)
    return _Value(_string(shape_bytes(shape), strings), True, _string(sharding, strings))


def _serialized(tilings: Sequence[Tiling], is_tuple: bool) -> bytes:
    """Return the tilings of an array, or of a tuple of arrays, as a serialized OpSharding."""
    from hloom.ir.sharding import Sharding
    from hloom.proto.schema.xla_data_pb2 import OpSharding

    parts = tuple(tiling.to_sharding() for tiling in tilings)
    message = OpSharding()
    (Sharding("tuple", elements=parts) if is_tuple else parts[0]).write(message)
    return message.SerializeToString()


def _tilings(sharding: bytes, shapes: Sequence[Shape], devices: int) -> list[Tiling]:
    """Parse a serialized OpSharding; return the tiling of each of the arrays with the shapes ``shapes``.

    A sharding that is no tuple applies to all arrays. ``devices`` is the number of devices.
    """
    from hloom.ir.sharding import Sharding
    from hloom.proto.schema.xla_data_pb2 import OpSharding
    from hloom.sharding.tiling.tiling import Tiling

    message = Sharding.read(OpSharding.FromString(sharding))
    parts = message.elements if message.kind == "tuple" else (message,) * len(shapes)
    return [Tiling.of(part, shape.rank, devices) for part, shape in zip(parts, shapes, strict=True)]


def _string(content: bytes, strings: list[object]) -> Any:
    strings.append(buffer := ctypes.create_string_buffer(content, len(content) + 1))
    return _String(ctypes.addressof(buffer), len(content))


def _bytes(string: Any) -> bytes:
    return ctypes.string_at(string.data, string.size) if string.size else b""
