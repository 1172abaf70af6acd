"""Conversion of a module's configuration from and to the fields of HloModuleProto."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from hloom.errors import ParseError
from hloom.ir.metadata import OriginalArray
from hloom.ir.module import ALIAS_KINDS, Alias, HloModule, ModuleConfig, ShapeIndex
from hloom.ir.operation import ProgramShape
from hloom.ir.stack_frames import FileLocation, StackFrame, StackFrames
from hloom.proto.program_shape import read_program_shape, write_program_shape
from hloom.proto.remainder import fields_of
from hloom.proto.schema.hlo_pb2 import HloModuleProto, StackFrameIndexProto
from hloom.proto.schema.xla_data_pb2 import DeviceAssignmentProto
from hloom.shape.shape import Shape

READ_FROM_MODULES: Final = fields_of(
    HloModuleProto,
    """name computations entry_computation_id entry_computation_name frontend_attributes host_program_shape
    buffer_donor input_output_alias original_value_recovery_table schedule stack_frame_index""",
)
"""The fields of HloModuleProto that are converted; the others are kept as bytes."""

_DEEPEST_RECOVERY: Final = 8
_MOST_LISTED_DEVICES: Final = 1 << 16
"""Devices that a written assignment lists at most."""

ModuleReader: TypeAlias = Callable[[HloModuleProto, int], HloModule]
"""A function that parses a module at a depth of nesting, used for recovery modules."""
ModuleWriter: TypeAlias = Callable[[HloModule], HloModuleProto]
"""A function that returns the message of a module, used for recovery modules."""


def read_config(
    message: HloModuleProto, module: HloModule, read_module: ModuleReader, depth: int = 0
) -> None:
    """Set the configuration of a module whose computations have been read.

    ``read_module`` reads the recovery modules, which are nested one level deeper than ``depth``.
    """
    config = module.config
    if message.HasField("host_program_shape"):
        config.entry_layout = read_program_shape(message.host_program_shape)
    else:
        config.entry_layout = _with_default_layouts(module.entry.program_shape)
    for entry in message.input_output_alias.entries:
        output = tuple(entry.output_shape_index)
        _check_output(output, config.entry_layout.result)
        kind = "may-alias" if entry.kind == ALIAS_KINDS["may-alias"] else "must-alias"
        parameter = _parameter_place(
            entry.parameter_number, tuple(entry.parameter_shape_index), config.entry_layout
        )
        if output in config.aliases:
            raise ParseError(f"output {list(output)} is aliased twice", rule="module.alias-once")
        config.aliases[output] = Alias(*parameter, kind)
    for donor in message.buffer_donor.entries:
        parameter = _parameter_place(
            donor.parameter_number, tuple(donor.parameter_shape_index), config.entry_layout
        )
        if parameter not in config.buffer_donors:  # they are a set, as in text
            config.buffer_donors.append(parameter)
    config.frontend_attributes = dict(message.frontend_attributes.map)
    config.stack_frames = _read_stack_frames(message.stack_frame_index)
    # HloModuleProto has no other field for them; the devices themselves are kept as bytes.
    config.replica_count, config.num_partitions = _device_counts(message.device_assignment)
    _read_recovery_table(message, config, read_module, depth)


def write_config(module: HloModule, message: HloModuleProto, module_message: ModuleWriter) -> None:
    """Fill in the fields of a message that hold the configuration."""
    config = module.config
    layout = config.entry_layout or module.entry.program_shape
    names = [f"p{number}" for number in range(len(layout.parameters))]
    write_program_shape(layout, names, message.host_program_shape)
    message.input_output_alias.SetInParent()
    for output, alias in sorted(config.aliases.items()):
        message.input_output_alias.entries.add(
            output_shape_index=output,
            parameter_number=alias.parameter_number,
            parameter_shape_index=alias.parameter_index,
            kind=ALIAS_KINDS[alias.kind],  # type: ignore[arg-type]
        )
    message.buffer_donor.SetInParent()
    for number, index in sorted(config.buffer_donors):
        message.buffer_donor.entries.add(parameter_number=number, parameter_shape_index=index)
    message.frontend_attributes.SetInParent()
    message.frontend_attributes.map.update(config.frontend_attributes)
    _write_stack_frames(config.stack_frames, message)
    for lost, (recovered, recovery) in config.recovery_table.items():
        entry = message.original_value_recovery_table.entries.add()
        lost.write(entry.old_original_array)
        recovered.write(entry.new_original_array)
        if recovery is not None:
            entry.recovery_module.CopyFrom(module_message(recovery))


def _device_counts(assignment: DeviceAssignmentProto) -> tuple[int, int]:
    """Return the numbers of replicas and of partitions, at least 1 each."""
    return max(1, assignment.replica_count), max(1, assignment.computation_count)


def write_device_counts(config: ModuleConfig, message: HloModuleProto) -> None:
    """Write numbers of devices other than 1 as an assignment, replica after replica.

    An assignment of the same numbers of devices, which was read, stays.
    """
    replicas, partitions = config.replica_count, config.num_partitions
    if message.HasField("device_assignment"):
        if _device_counts(message.device_assignment) == (replicas, partitions):
            return
        message.ClearField("device_assignment")
    if replicas == partitions == 1:
        return
    message.device_assignment.replica_count = replicas
    message.device_assignment.computation_count = partitions
    if replicas * partitions <= _MOST_LISTED_DEVICES:
        for partition in range(partitions):
            ids = range(partition, replicas * partitions, partitions)
            message.device_assignment.computation_devices.add(replica_device_ids=ids)


def _with_default_layouts(shape: ProgramShape) -> ProgramShape:
    return ProgramShape(
        tuple(p.with_default_layout() for p in shape.parameters), shape.result.with_default_layout()
    )


def _check_output(index: ShapeIndex, result: Shape) -> None:
    if not _is_index(index, result):
        raise ParseError(
            f"an alias for output {list(index)}, which {result} does not have", rule="module.alias-output"
        )


def _parameter_place(number: int, index: ShapeIndex, program: ProgramShape) -> tuple[int, ShapeIndex]:
    if not 0 <= number < len(program.parameters) or not _is_index(index, program.parameters[number]):
        raise ParseError(f"parameter {number} has no index {list(index)}", rule="module.alias-parameter")
    return number, index


def _is_index(index: ShapeIndex, shape: Shape) -> bool:
    for element in index:
        if not shape.is_tuple or not 0 <= element < len(shape.tuple_shapes):
            return False
        shape = shape.tuple_shapes[element]
    return True


def _read_stack_frames(message: StackFrameIndexProto) -> StackFrames:
    return StackFrames(
        tuple(message.file_names),
        tuple(message.function_names),
        tuple(
            FileLocation(o.file_name_id, o.function_name_id, o.line, o.end_line, o.column, o.end_column)
            for o in message.file_locations
        ),
        tuple(StackFrame(frame.file_location_id, frame.parent_frame_id) for frame in message.stack_frames),
    )


def _write_stack_frames(frames: StackFrames, message: HloModuleProto) -> None:
    if frames == StackFrames():
        return
    stored = message.stack_frame_index
    stored.file_names.extend(frames.file_names)
    stored.function_names.extend(frames.function_names)
    for location in frames.file_locations:
        stored.file_locations.add(**{field: getattr(location, field) for field in FileLocation.__slots__})
    for frame in frames.frames:
        stored.stack_frames.add(**{field: getattr(frame, field) for field in StackFrame.__slots__})


def _read_recovery_table(
    message: HloModuleProto, config: ModuleConfig, read_module: ModuleReader, depth: int
) -> None:
    for entry in message.original_value_recovery_table.entries:
        lost = OriginalArray.read(entry.old_original_array)
        recovered = OriginalArray.read(entry.new_original_array)
        recovery = None
        if entry.HasField("recovery_module"):
            if depth >= _DEEPEST_RECOVERY:
                raise ParseError("recovery modules are nested too deeply", rule="proto.recovery-depth")
            recovery = read_module(entry.recovery_module, depth + 1)
        config.recovery_table.setdefault(lost, (recovered, recovery))
