"""Conversion of a module to HloModuleProto.

Codecs write the attributes; bytes kept on reading are merged in. Ids that were read are kept. New
computations are numbered in the order they were added. So are new instructions, with the id of their
computation in the upper 32 bits and a running number in the lower ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hloom.errors import HloError, VerifyError
from hloom.ir.computation import LOCAL_ID, HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.proto.config import write_config, write_device_counts
from hloom.proto.program_shape import write_program_shape
from hloom.proto.remainder import restore
from hloom.proto.schema.hlo_pb2 import HloComputationProto, HloInstructionProto, HloModuleProto
from hloom.proto.shape import shape_bytes

LOCAL_ID_BITS: Final = 32


def local_id(unique_id: int) -> int:
    """Return the lower bits of an instruction's id, which identify it within its computation."""
    return unique_id & LOCAL_ID


def module_to_bytes(module: HloModule) -> bytes:
    """Return the serialized HloModuleProto of a module.

    Raise HloError (``proto.value``) for a value that its proto field cannot hold, such as a number of more
    than 64 bits; EvaluationError for a constant whose elements were elided; VerifyError for a broken graph.
    """
    return module_message(module).SerializeToString(deterministic=True)


def module_message(module: HloModule) -> HloModuleProto:
    """Return the HloModuleProto of a module; raise as `module_to_bytes` does."""
    try:
        return _ModuleWriter(module).message()
    except (ValueError, TypeError) as error:
        if isinstance(error, HloError):
            raise
        raise HloError(f"module {module.name} has no proto form: {error}", rule="proto.value") from None


class _ModuleWriter:
    """Writer of one module."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.computation_ids = _computation_ids(module)
        self.places = {computation: number for number, computation in enumerate(module.computations)}
        self.fusions = {
            c for i in module.instructions() if i.opcode == "fusion" for c in i.called_computations
        }

    def message(self) -> HloModuleProto:
        module, entry = self.module, self.module.entry
        message = HloModuleProto(name=module.name)
        message.entry_computation_name = entry.name
        message.entry_computation_id = self.computation_ids[entry]
        if module.config.is_scheduled:
            message.schedule.SetInParent()
        for computation in self.callees_first():
            self.computation(computation, message.computations.add(), message)
        write_config(module, message, module_message)
        restore(message, module.config.unmodelled)
        write_device_counts(module.config, message)
        return message

    def callees_first(self) -> list[HloComputation]:
        """Return the computations in the module's order, except that callees come before their callers."""
        done: dict[HloComputation, None] = {}
        path: dict[HloComputation, Iterator[HloComputation]] = {}
        for start in self.module.computations:
            if start not in done:
                path[start] = self.callees(start)
            while path:
                computation, callees = next(reversed(path.items()))
                callee = next(callees, None)
                if callee is None:
                    done[computation] = None
                    del path[computation]
                elif callee in path:
                    text = f"computation %{callee.name} calls itself"
                    raise VerifyError(text, rule="module.recursion")
                elif callee not in done:
                    path[callee] = self.callees(callee)
        return list(done)

    def callees(self, computation: HloComputation) -> Iterator[HloComputation]:
        """Return the callees in the module's order; raise VerifyError for one outside the module."""
        called = {c for i in computation.instructions for c in i.called_computations}
        try:
            return iter(sorted(called, key=self.places.__getitem__))
        except KeyError as error:
            text = f"the called computation %{error.args[0].name} is not in the module"
            raise VerifyError(text, rule="module.callee") from None

    def computation(
        self, computation: HloComputation, message: HloComputationProto, module: HloModuleProto
    ) -> None:
        number = self.computation_ids[computation]
        ids = _instruction_ids(computation, number)
        order = list(computation.instructions)
        if self.module.config.is_scheduled:
            if computation.is_scheduled and computation not in self.fusions:
                module.schedule.sequences[number].instruction_ids.extend(ids[i] for i in order)
            order.sort(key=lambda instruction: local_id(ids[instruction]))
        message.name = computation.name
        message.id = number
        message.root_id = ids[computation.root]
        message.is_fusion_computation = computation in self.fusions
        if computation.execution_thread != "main":
            message.execution_thread = computation.execution_thread
        for instruction in computation.post_order(order):
            try:
                self.instruction(instruction, ids, message.instructions.add())
            except HloError as error:
                raise error.at(instruction=instruction.name) from error.__cause__
            except (ValueError, TypeError, OverflowError) as error:
                text = f"a value has no proto form: {error}"
                raise HloError(text, rule="proto.value", instruction=instruction.name) from None
        parameters = [parameter.name for parameter in computation.parameters]
        write_program_shape(computation.program_shape, parameters, message.program_shape)
        restore(message, computation.unmodelled)

    def instruction(
        self, instruction: HloInstruction, ids: dict[HloInstruction, int], message: HloInstructionProto
    ) -> None:
        operation = instruction.operation.spelled_out(instruction)
        message.name = instruction.name
        message.opcode = operation.opcode
        message.id = ids[instruction]
        message.shape.MergeFromString(shape_bytes(instruction.shape))
        if instruction.operands:
            message.operand_ids.extend([ids[operand] for operand in instruction.operands])
        for predecessor in instruction.control_predecessors:
            message.control_predecessor_ids.append(ids[predecessor])
        for computation in instruction.called_computations:
            message.called_computation_ids.append(self.computation_ids[computation])
        for attribute in operation.attributes:
            if attribute.proto:
                attribute.write(message, getattr(operation, attribute.field))
        operation.write_rest(message, instruction)
        _write_annotations(instruction, message)
        if instruction.unmodelled:
            restore(message, instruction.unmodelled)


def _write_annotations(instruction: HloInstruction, message: HloInstructionProto) -> None:
    """Write the properties that every instruction may have; some messages are written even if empty."""
    message.metadata.SetInParent()
    message.frontend_attributes.SetInParent()
    message.statistics_viz.SetInParent()
    if instruction.metadata is not None:
        instruction.metadata.write(message.metadata)
    if instruction.sharding is not None:
        instruction.sharding.write(message.sharding)
    if instruction.frontend_attributes:
        message.frontend_attributes.map.update(instruction.frontend_attributes)
    if instruction.backend_config:
        message.backend_config = instruction.backend_config.encode("utf-8", "surrogateescape")
    if instruction.statistics is not None:
        instruction.statistics.write(message.statistics_viz)
    if instruction.original_value is not None:
        instruction.original_value.write(message.original_value)


def _computation_ids(module: HloModule) -> dict[HloComputation, int]:
    """Return an id for each computation: its own if all are distinct, and free ones for the others."""
    computations = module.computations
    ids: dict[HloComputation, int] = {}
    used: set[int] = set()
    for computation in computations:
        if computation.unique_id >= 0 and computation.unique_id not in used:
            ids[computation] = computation.unique_id
            used.add(computation.unique_id)
    following = max(used, default=-1) + 1
    for computation in computations:
        if computation not in ids:
            ids[computation] = following
            following += 1
    return ids


def _instruction_ids(computation: HloComputation, number: int) -> dict[HloInstruction, int]:
    """Return an id for each instruction: its own if its lower bits are unique, else a larger one."""
    ids: dict[HloInstruction, int] = {}
    used: set[int] = set()
    fresh: list[HloInstruction] = []
    for instruction in computation.instructions:
        unique_id = instruction.unique_id
        if unique_id < 0 or local_id(unique_id) in used:
            fresh.append(instruction)
        else:
            ids[instruction] = unique_id
            used.add(local_id(unique_id))
    following = (number << LOCAL_ID_BITS) + max(used, default=-1) + 1
    for position, instruction in enumerate(fresh):
        ids[instruction] = following + position
    return ids
