"""Conversion of HloModuleProto to a module.

Codecs read the attributes; fields that are not converted are kept as bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import hloom.operations  # noqa: F401  # pyright: ignore[reportUnusedImport]  (declares the operations)
from hloom.errors import HloError, ParseError, plural
from hloom.ir.collector import collector_paused
from hloom.ir.computation import LOCAL_ID, HloComputation
from hloom.ir.instruction import HloInstruction, check_arity
from hloom.ir.metadata import OpMetadata, OriginalValue, ViewerStatistics
from hloom.ir.module import HloModule
from hloom.ir.naming import sanitized
from hloom.ir.operation import REGISTRY, Operation
from hloom.ir.sharding import Sharding
from hloom.proto.config import READ_FROM_MODULES, read_config
from hloom.proto.container import module_message
from hloom.proto.remainder import Fields, fields_of, has_unknown_fields, remainder
from hloom.proto.schema.hlo_pb2 import HloComputationProto, HloInstructionProto, HloModuleProto
from hloom.proto.shape import read_shape

_READ_FROM_INSTRUCTIONS: Final = """
id name opcode shape metadata operand_ids control_predecessor_ids called_computation_ids backend_config
backend_config_payload frontend_attributes original_value sharding statistics_viz"""
"""The fields that are read for every operation."""
_READ_FROM_COMPUTATIONS: Final = fields_of(
    HloComputationProto,
    "execution_thread id instructions is_fusion_computation name program_shape root_id",
)


def module_from_bytes(data: bytes) -> HloModule:
    """Return the module of a serialized HloModuleProto, or of a message that contains one.

    That is an HloProto, HloSnapshot or HloUnoptimizedSnapshot. Raise ParseError for any other bytes, and
    HloError with a rule name for an invalid program; as with text, the module is not verified.
    """
    return read_module(module_message(data))


def read_module(message: HloModuleProto, depth: int = 0) -> HloModule:
    """Return the module of a message nested in ``depth`` others; raise HloError."""
    with collector_paused():
        return _ModuleReader(message).module(depth)


class _ModuleReader:
    """Reader of one module."""

    def __init__(self, message: HloModuleProto) -> None:
        self.message = message
        self.has_unknown = has_unknown_fields(message)
        self.computations: dict[int, HloComputation] = {}
        self.names: set[str] = set()
        self.metadata: dict[bytes, OpMetadata] = {}
        self.operations: dict[type[Operation], _OperationReader] = {}

    def module(self, depth: int) -> HloModule:
        message = self.message
        module = HloModule(message.name)
        names: set[str] = set()
        for part in message.computations:
            name = unique_name(part.name, names, "computation")
            if part.id in self.computations:
                raise ParseError(f"two computations have the id {part.id}", rule="proto.unique-ids")
            self.computations[part.id] = self.computation(part, HloComputation(name))
        entry = self.computations.get(message.entry_computation_id)
        if entry is None:
            text = f"no computation has the id of the entry, {message.entry_computation_id}"
            raise ParseError(text, rule="proto.entry")
        for computation in self.computations.values():
            module.add(computation, entry=computation is entry)
        read_config(message, module, read_module, depth)
        if message.HasField("schedule"):
            self.schedule(module)
        module.config.unmodelled = self.rest(message, READ_FROM_MODULES, "computations")
        return module

    def rest(self, message: Any, read: Fields, elsewhere: str = "") -> bytes:
        """Return the remainder without the fields ``read``; messages in field ``elsewhere`` keep theirs."""
        unread = [field for field, _ in message.ListFields() if field not in read]
        if not unread and not self.has_unknown:
            return b""
        return remainder(message, {field.name for field in unread}, skipped=elsewhere)

    # -- computations

    def computation(self, message: HloComputationProto, computation: HloComputation) -> HloComputation:
        computation.unique_id = message.id
        computation.execution_thread = message.execution_thread or "main"
        computation.unmodelled = self.rest(message, _READ_FROM_COMPUTATIONS, "instructions")
        by_id: dict[int, HloInstruction] = {}
        for part in message.instructions:
            local = part.id & LOCAL_ID
            if local in by_id:
                text = f"two instructions of %{computation.name} have the id {part.id}"
                raise ParseError(text, rule="proto.unique-ids")
            by_id[local] = self.instruction(part, by_id)
        for local in sorted(by_id):
            computation.add(by_id[local])
        if message.root_id & LOCAL_ID not in by_id:
            text = f"computation %{computation.name} has no root with the id {message.root_id}"
            raise ParseError(text, rule="proto.root")
        computation.root = by_id[message.root_id & LOCAL_ID]
        _ = computation.parameters  # raises for duplicate and missing numbers
        return computation

    def schedule(self, module: HloModule) -> None:
        """Reorder the instructions of every scheduled computation by the schedule."""
        module.config.is_scheduled = True
        for number, computation in self.computations.items():
            computation.is_scheduled = number in self.message.schedule.sequences
        for number, sequence in self.message.schedule.sequences.items():
            computation = self.computations.get(number)
            if computation is None:
                raise ParseError(f"a schedule for the unknown computation {number}", rule="proto.schedule")
            by_id = {i.unique_id & LOCAL_ID: i for i in computation.instructions}
            done: set[HloInstruction] = set()
            for unique_id in sequence.instruction_ids:
                instruction = by_id.pop(unique_id & LOCAL_ID, None)
                before = (
                    () if instruction is None else (*instruction.operands, *instruction.control_predecessors)
                )
                if instruction is None or not done.issuperset(before):
                    text = f"in the schedule of %{computation.name} {unique_id} is unknown or too early"
                    raise ParseError(text, rule="proto.schedule")
                done.add(instruction)
            if by_id:
                text = f"the schedule of %{computation.name} leaves out {plural(len(by_id), 'instruction')}"
                raise ParseError(text, rule="proto.schedule")
            order = {
                unique_id & LOCAL_ID: position for position, unique_id in enumerate(sequence.instruction_ids)
            }
            computation.reorder(sorted(done, key=lambda i: order[i.unique_id & LOCAL_ID]))

    # -- instructions

    def instruction(self, message: HloInstructionProto, before: dict[int, HloInstruction]) -> HloInstruction:
        try:
            instruction = self.operation(message, before)
            self.annotations(message, instruction)
        except HloError as error:
            raise error.at(instruction=message.name) from error.__cause__
        return instruction

    def operation(self, message: HloInstructionProto, before: dict[int, HloInstruction]) -> HloInstruction:
        cls = REGISTRY.get(message.opcode)
        if cls is None:
            raise ParseError(f"unknown opcode {message.opcode!r}", rule="proto.opcode")
        reader = self.operations.get(cls)
        if reader is None:
            reader = self.operations[cls] = _OperationReader(cls)
        operands = _resolved(message.operand_ids, before, "operand")
        check_arity(cls, len(operands))
        name = unique_name(message.name, self.names, "instruction")
        operation = reader.read(message)
        if reader.adapts:
            operation = operation.canonical(*(operand.shape for operand in operands))
        called = self.called(cls, message.called_computation_ids)
        instruction = HloInstruction(name, operation, read_shape(message.shape), operands, called)
        instruction.unique_id = message.id
        instruction.unmodelled = self.rest(message, reader.fields)
        for predecessor in _resolved(message.control_predecessor_ids, before, "control predecessor"):
            predecessor.add_control_dependency_to(instruction)
        return instruction

    def called(self, cls: type[Operation], ids: Iterable[int]) -> list[HloComputation]:
        """Return the computations with these ids, whose number must match the operation's roles."""
        computations: list[HloComputation] = []
        for number in ids:
            if number not in self.computations:
                text = f"it calls computation {number}, which does not exist before it"
                raise ParseError(text, rule="proto.computation")
            computations.append(self.computations[number])
        least = sum(role.required for role in cls.roles)
        most = None if any(role.many for role in cls.roles) else len(cls.roles)
        if len(computations) < least or (most is not None and len(computations) > most):
            count = plural(least, "computation")
            if least != most:
                count = f"{least} to {'any number' if most is None else most} computations"
            text = f"{cls.opcode} calls {count}, got {len(computations)}"
            raise ParseError(text, rule="proto.computation-count")
        return computations

    def annotations(self, message: HloInstructionProto, instruction: HloInstruction) -> None:
        """Set the properties that every instruction may have."""
        metadata = message.metadata.SerializeToString()
        if metadata:
            if metadata not in self.metadata:
                self.metadata[metadata] = OpMetadata.read(message.metadata, self.message.payloads)
            instruction.metadata = self.metadata[metadata]
        if message.HasField("sharding"):
            instruction.sharding = Sharding.read(message.sharding)
        if message.frontend_attributes.map:
            instruction.frontend_attributes = dict(message.frontend_attributes.map)
        instruction.backend_config = self.backend_config(message).decode("utf-8", "surrogateescape")
        if message.statistics_viz.statistics:
            instruction.statistics = ViewerStatistics.read(message.statistics_viz)
        if message.HasField("original_value"):
            instruction.original_value = OriginalValue.read(message.original_value)

    def backend_config(self, message: HloInstructionProto) -> bytes:
        payload = message.backend_config_payload
        source = payload.WhichOneof("payload_source")
        if source is None:
            return message.backend_config
        if source == "value":
            return payload.value
        if not 0 <= payload.id < len(self.message.payloads):
            raise ParseError(f"no payload has the number {payload.id}", rule="proto.payload")
        return self.message.payloads[payload.id]


class _OperationReader:
    """Reader of the attributes of one kind of operation.

    Attributes:
        fields: the fields of HloInstructionProto that are read for this operation.
        adapts: the operation drops attributes that follow from its operands.
    """

    def __init__(self, cls: type[Operation]) -> None:
        self.cls = cls
        self.attributes = [
            (attribute.field, attribute.read) for attribute in cls.attributes if attribute.proto
        ]
        fields = {attribute.proto.partition(".")[0] for attribute in cls.attributes if attribute.proto}
        self.fields = fields_of(HloInstructionProto, " ".join((_READ_FROM_INSTRUCTIONS, *fields)))
        self.adapts = cls.canonical is not Operation.canonical
        self.plain = None if self.attributes else cls()

    def read(self, message: HloInstructionProto) -> Operation:
        """Return the operation of an instruction; operations without attributes are shared."""
        if self.plain is not None:
            return self.plain
        return self.cls(**{field: read(message) for field, read in self.attributes})


def unique_name(name: str, names: set[str], what: str) -> str:
    """Make a name well formed as in XLA and add it to ``names``; refuse empty and duplicate names."""
    name = sanitized(name)
    if not name or name in names:
        text = f"two {what}s are named {name!r}" if name else f"{what} without a name"
        raise ParseError(text, rule="proto.unique-names")
    names.add(name)
    return name


def _resolved(ids: Iterable[int], before: dict[int, HloInstruction], what: str) -> list[HloInstruction]:
    try:
        return [before[number & LOCAL_ID] for number in ids]
    except KeyError as error:
        text = f"{what} {error.args[0]} does not exist before its user"
        raise ParseError(text, rule="proto.operand") from None
