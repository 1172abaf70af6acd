"""Conversion of signatures to and from ProgramShapeProto."""

from __future__ import annotations

from hloom.ir.operation import ProgramShape
from hloom.proto.schema.xla_data_pb2 import ProgramShapeProto
from hloom.proto.shape import read_shape, write_shape


def read_program_shape(message: ProgramShapeProto) -> ProgramShape:
    """Return the parameter shapes and the result shape of a message."""
    return ProgramShape(tuple(map(read_shape, message.parameters)), read_shape(message.result))


def write_program_shape(program: ProgramShape, names: list[str], message: ProgramShapeProto) -> None:
    """Fill an empty message with a signature and the names of its parameters."""
    for parameter in program.parameters:
        write_shape(parameter, message.parameters.add())
    write_shape(program.result, message.result)
    message.parameter_names.extend(names)
