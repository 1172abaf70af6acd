"""Calls that one device makes for all: custom calls with a maximal sharding, such as callbacks."""

from __future__ import annotations

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.operations.control_flow import Conditional
from hloom.operations.device_ids import PartitionId
from hloom.operations.structure import AfterAll, GetTupleElement, Parameter, Tuple
from hloom.passes.writing import Writer
from hloom.shape.element_type import U32
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.communication import Communication


def device_of(i: HloInstruction) -> int | None:
    """Return the only device that is to run an instruction; None if all are."""
    sharding = i.sharding
    if sharding is not None and sharding.kind == "tuple" and sharding.elements:
        sharding = sharding.elements[0]
    if sharding is None:
        return None
    if sharding.named is not None and not sharding.named.mesh.axes and sharding.named.mesh.device_ids:
        return sharding.named.mesh.numbers[0]
    return sharding.device if sharding.kind == "maximal" else None


def run_on(i: HloInstruction, device: int, devices: int, resharder: Communication) -> HloInstruction:
    """Return the value of an instruction that one device computes and sends to the others."""
    writer = Writer(i)
    number = writer.op(PartitionId(), shape=Shape(U32, ()))
    here = writer.compare(number, "EQ", writer.scalar(device, U32))
    argument = writer.op(Tuple(), *i.operands, shape=Shape.tuple_([o.shape for o in i.operands]))
    branches = [_call(i, argument.shape), _zeros(i, argument.shape)]
    chosen = writer.op(Conditional(), here, argument, argument, shape=i.shape, computations=branches)
    return _sent(chosen, device, devices, resharder)


def _sent(value: HloInstruction, device: int, devices: int, resharder: Communication) -> HloInstruction:
    """Send the arrays of a value from one device to all."""
    writer = Writer(value)
    if not value.shape.is_tuple:
        return resharder.broadcast(value, device, devices) if value.shape.is_array else value
    parts = [
        _sent(writer.op(GetTupleElement(index=n), value, shape=shape), device, devices, resharder)
        for n, shape in enumerate(value.shape.tuple_shapes)
    ]
    return writer.op(Tuple(), *parts, shape=value.shape)


def _branch(i: HloInstruction, argument: Shape) -> tuple[HloComputation, HloInstruction]:
    """Return a new computation with its parameter."""
    module = Writer(i).module
    computation = module.add(HloComputation(module.unique_name(f"{i.name}.branch")))
    parameter = HloInstruction(module.unique_name("operands"), Parameter(parameter_number=0), argument)
    return computation, computation.add(parameter)


def _call(i: HloInstruction, argument: Shape) -> HloComputation:
    """Return the computation of the device that runs the instruction."""
    computation, parameter = _branch(i, argument)
    writer = Writer(parameter)
    operands = [
        writer.op(GetTupleElement(index=n), parameter, shape=shape)
        for n, shape in enumerate(argument.tuple_shapes)
    ]
    call = i.clone(writer.module.unique_name(i.name), operands=operands)
    call.sharding = None
    computation.add(call, root=True)
    return computation


def _zeros(i: HloInstruction, argument: Shape) -> HloComputation:
    """Return the computation of the other devices."""
    computation, parameter = _branch(i, argument)
    computation.root = _zero(Writer(parameter), i.shape)
    return computation


def _zero(writer: Writer, shape: Shape) -> HloInstruction:
    if shape.is_tuple:
        parts = [_zero(writer, part) for part in shape.tuple_shapes]
        return writer.op(Tuple(), *parts, shape=shape)
    return writer.full(0, shape) if shape.is_array else writer.op(AfterAll(), shape=shape)
