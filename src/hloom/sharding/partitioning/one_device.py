"""Custom calls with maximal sharding, such as callbacks: one device calls and broadcasts the results."""

from __future__ import annotations

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.operations.control_flow import Conditional
from hloom.operations.device_ids import PartitionId
from hloom.operations.structure import AfterAll, GetTupleElement, Parameter, Tuple
from hloom.passes.writing import Inserter
from hloom.shape.element_type import U32
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.collectives import CollectiveWriter


def device_of(i: HloInstruction) -> int | None:
    """Return the device id of an instruction's maximal sharding; None if its sharding is not maximal."""
    sharding = i.sharding
    if sharding is not None and sharding.kind == "tuple" and sharding.elements:
        sharding = sharding.elements[0]
    if sharding is None:
        return None
    if sharding.named is not None and not sharding.named.mesh.axes and sharding.named.mesh.device_ids:
        return sharding.named.mesh.numbers[0]
    return sharding.device if sharding.kind == "maximal" else None


def run_on(i: HloInstruction, device: int, devices: int, collectives: CollectiveWriter) -> HloInstruction:
    """Emit a conditional that runs the call ``i`` on one device, and broadcasts of its results to all.

    Returns the broadcast results. ``device`` is the id of that device, ``devices`` the number of devices.
    """
    inserter = Inserter(i)
    number = inserter.op(PartitionId(), shape=Shape(U32, ()))
    is_device = inserter.compare(number, "EQ", inserter.scalar(device, U32))
    argument = inserter.op(Tuple(), *i.operands, shape=Shape.tuple_([o.shape for o in i.operands]))
    branches = [_branch_with_call(i, argument.shape), _branch_with_zeros(i, argument.shape)]
    result = inserter.op(Conditional(), is_device, argument, argument, shape=i.shape, computations=branches)
    return _broadcast(result, device, devices, collectives)


def _broadcast(
    value: HloInstruction, device: int, devices: int, collectives: CollectiveWriter
) -> HloInstruction:
    """Emit the broadcast of an array, or of each array of a tuple, from one device to all; return the result.

    ``device`` is the id of the sending device, ``devices`` the number of devices.
    """
    inserter = Inserter(value)
    if not value.shape.is_tuple:
        return collectives.broadcast_from(value, device, devices) if value.shape.is_array else value
    parts = [
        _broadcast(inserter.op(GetTupleElement(index=n), value, shape=shape), device, devices, collectives)
        for n, shape in enumerate(value.shape.tuple_shapes)
    ]
    return inserter.op(Tuple(), *parts, shape=value.shape)


def _empty_branch(i: HloInstruction, argument: Shape) -> tuple[HloComputation, HloInstruction]:
    """Add a computation with one parameter, of shape ``argument``, to the module of ``i``; return both.

    It becomes a branch of a conditional. Its name is derived from that of ``i``.
    """
    module = Inserter(i).module
    computation = module.add(HloComputation(module.unique_name(f"{i.name}.branch")))
    parameter = HloInstruction(module.unique_name("operands"), Parameter(parameter_number=0), argument)
    return computation, computation.add(parameter)


def _branch_with_call(i: HloInstruction, argument: Shape) -> HloComputation:
    """Add a computation that applies ``i`` to the elements of its only parameter, a tuple; return it.

    It is the branch of a conditional that one device takes. ``argument`` is the shape of the tuple.
    """
    computation, parameter = _empty_branch(i, argument)
    inserter = Inserter(parameter)
    operands = [
        inserter.op(GetTupleElement(index=n), parameter, shape=shape)
        for n, shape in enumerate(argument.tuple_shapes)
    ]
    call = i.clone(inserter.module.unique_name(i.name), operands=operands)
    call.sharding = None
    computation.add(call, root=True)
    return computation


def _branch_with_zeros(i: HloInstruction, argument: Shape) -> HloComputation:
    """Add a computation that returns zeros of the shape of ``i``; return it.

    It is the branch of a conditional for the devices that do not run ``i``. ``argument`` is the shape of its
    parameter, which it does not use.
    """
    computation, parameter = _empty_branch(i, argument)
    computation.root = _zero(Inserter(parameter), i.shape)
    return computation


def _zero(inserter: Inserter, shape: Shape) -> HloInstruction:
    if shape.is_tuple:
        parts = [_zero(inserter, part) for part in shape.tuple_shapes]
        return inserter.op(Tuple(), *parts, shape=shape)
    return inserter.full(0, shape) if shape.is_array else inserter.op(AfterAll(), shape=shape)
