"""The optimized program as JAX reads it: HloModuleProtoWithConfig (openxla/xla, xla/service/hlo.proto)."""

from __future__ import annotations

from hloom.ir.module import HloModule


def module_with_config(module: HloModule, num_replicas: int, num_partitions: int) -> bytes:
    """Return the message: field 1 is the module, field 2 its HloModuleConfigProto (``xla/xla.proto``)."""
    from hloom.proto.schema import hlo_pb2

    encoded = module.to_proto()
    shape = hlo_pb2.HloModuleProto.FromString(encoded).host_program_shape.SerializeToString()
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
