"""The optimized program as JAX reads it: HloModuleProtoWithConfig (openxla/xla, xla/service/hlo.proto)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hloom.ir.module import HloModule
from hloom.ir.sharding import Sharding

if TYPE_CHECKING:
    from hloom.sharding.partitioner import Partitioned


def module_with_config(
    module: HloModule, num_replicas: int, num_partitions: int, partitioned: Partitioned | None = None
) -> bytes:
    """Return the message: field 1 is the module, field 2 its HloModuleConfigProto (``xla/xla.proto``).

    The module of a partitioned program states how its parameters and results are cut.
    """
    from hloom.proto.schema import hlo_pb2

    proto = hlo_pb2.HloModuleProto.FromString(module.to_proto())
    if partitioned is not None:
        for tiling in partitioned.parameters:
            tiling.to_sharding().write(proto.spmd_parameters_shardings.add())
        results = [tiling.to_sharding() for tiling in partitioned.results] or [Sharding.replicated()]
        single = not module.entry.root.shape.is_tuple
        whole = results[0] if single else Sharding("tuple", elements=tuple(results))
        whole.write(proto.spmd_output_sharding)
    encoded = proto.SerializeToString()
    shape = proto.host_program_shape.SerializeToString()
    config = _field(1, shape) + _number(4, num_replicas) + _number(5, num_partitions)
    return _field(1, encoded) + _field(2, config)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])
