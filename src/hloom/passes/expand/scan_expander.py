"""scan-expander: expand scans into while loops that slice their inputs and update their outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hloom.analysis.instructions import operation_of
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.operations.arithmetic import Add, Subtract
from hloom.operations.comparison import Compare
from hloom.operations.control_flow import Call, While
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.movement import Broadcast
from hloom.operations.reshaping import Reshape
from hloom.operations.scan import Scan
from hloom.operations.structure import Constant, GetTupleElement, Parameter, Tuple
from hloom.passes.op_expander import OpExpander
from hloom.passes.registry import register
from hloom.passes.writing import Writer
from hloom.shape.element_type import PRED, S64
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape


@dataclass(frozen=True, slots=True)
class Parts:
    """The operands and results of a scan.

    Attributes:
        axis: the scanned dimension.
        steps: its size.
        inputs, carries: the operands.
        outputs, last: shapes of the stacked outputs, and of the final carries.
        slice: dimensions of the first input, output or carry without the axis.
    """

    axis: int
    steps: int
    inputs: tuple[HloInstruction, ...]
    carries: tuple[HloInstruction, ...]
    outputs: tuple[Shape, ...]
    last: tuple[Shape, ...]
    slice: tuple[int, ...]


def parts_of(i: HloInstruction) -> Parts:
    """Return the parts of a scan."""
    operation = operation_of(i, Scan)
    axis = operation.dimensions[0]
    count = len(i.operands) - operation.num_carries
    inputs, carries = tuple(i.operands[:count]), tuple(i.operands[count:])
    leaves = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
    outputs, last = leaves[: len(leaves) - len(carries)], leaves[len(leaves) - len(carries) :]
    sliced: list[Shape] = [*(o.shape for o in inputs), *outputs]
    slice_ = (
        _without(sliced[0].dimensions, axis) if sliced else carries[0].shape.dimensions if carries else ()
    )
    steps = sliced[0].dimensions[axis] if sliced else 0
    return Parts(axis, steps, inputs, carries, tuple(outputs), tuple(last), slice_)


def is_elementwise(i: HloInstruction) -> bool:
    """Return whether each step is elementwise on slices and carries of equal dimensions."""
    parts = parts_of(i)
    (step,) = i.called_computations
    shapes = [*(p.shape for p in step.parameters), *_leaves(step.root.shape)]
    if not all(s.is_array and s.is_static and s.dimensions == parts.slice for s in shapes):
        return False
    if not all(s.is_static for s in (*(o.shape for o in i.operands), *parts.outputs)):
        return False
    return all(_is_elementwise_step(m, parts.slice, step) for m in step.instructions)


def _is_elementwise_step(i: HloInstruction, dimensions: tuple[int, ...], step: HloComputation) -> bool:
    if isinstance(i.operation, Tuple):
        return i is step.root
    if isinstance(i.operation, Parameter):
        return True
    if isinstance(i.operation, Constant):
        return i.shape.is_array and i.shape.rank == 0
    if isinstance(i.operation, Broadcast):
        return i.operands[0].shape.rank == 0
    return i.operation.elementwise and i.shape.is_array and i.shape.dimensions in (dimensions, ())


@register
@dataclass(frozen=True, slots=True)
class ScanExpander(OpExpander):
    """``scan`` → ``while`` over a counter, inputs, carries and outputs.

    Attributes:
        keeps: scans that are not expanded.
    """

    keeps: Callable[[HloInstruction], bool] = lambda scan: False
    name: ClassVar[str] = "scan-expander"

    def matches(self, i: HloInstruction) -> bool:
        """Return whether an instruction is a static scan that no kernel runs."""
        return isinstance(i.operation, Scan) and _is_static(i) and not self.keeps(i)

    def expand(self, i: HloInstruction) -> None:
        """Write the scan as a loop."""
        expand(i)


def _is_static(i: HloInstruction) -> bool:
    (step,) = i.called_computations
    shapes = [*(o.shape for o in i.operands), *_leaves(i.shape), *(p.shape for p in step.parameters)]
    return all(s.is_array and s.is_static for s in (*shapes, *_leaves(step.root.shape)))


def expand(i: HloInstruction) -> None:
    """Replace one scan."""
    writer, parts = Writer(i), parts_of(i)
    counter = writer.scalar(0, S64)
    empty = [writer.full(0, shape.without_layout()) for shape in parts.outputs]
    state = writer.op(Tuple(), counter, *parts.inputs, *parts.carries, *empty)
    body = _Step(writer.module, "scan_body", state.shape)
    body.write(i, parts)
    condition = _Step(writer.module, "scan_condition", state.shape)
    going = condition.op(
        Compare(direction="LT"), condition.element(0), condition.scalar(parts.steps), shape=Shape(PRED)
    )
    condition.finish(going)
    loop = writer.op(
        While(), state, shape=state.shape, computations=[body.computation, condition.computation]
    )
    first = 1 + len(parts.inputs)
    carried = range(first, first + len(parts.carries))
    stacked = range(first + len(parts.carries), len(state.operands))
    leaves = [writer.op(GetTupleElement(index=n), loop) for n in (*stacked, *carried)]
    writer.replace(writer.op(Tuple(), *leaves, shape=i.shape) if i.shape.is_tuple else leaves[0])


class _Step:
    """A computation on the loop's state under construction."""

    def __init__(self, module: HloModule, name: str, state: Shape) -> None:
        self.module = module
        self.computation = HloComputation(module.unique_name(name))
        self.state = self.op(Parameter(parameter_number=0), shape=state)

    def op(
        self, operation: Operation, *operands: HloInstruction, shape: Shape | None = None,
        computations: Sequence[HloComputation] = (),
    ) -> HloInstruction:  # fmt: skip
        """Add an instruction; infer its shape from the operands unless it is stated."""
        name = self.module.unique_name(operation.opcode)
        instruction = HloInstruction(name, operation, shape or Shape.token(), operands, computations)
        if shape is None:
            instruction.shape = instruction.infer_shape()
        return self.computation.add(instruction)

    def scalar(self, value: int) -> HloInstruction:
        """Return a constant of the counter's type."""
        literal = Literal(np.asarray(value, np.int64), Shape(S64))
        return self.op(Constant(literal=literal), shape=literal.shape)

    def element(self, number: int) -> HloInstruction:
        """Return an element of the state."""
        return self.op(GetTupleElement(index=number), self.state)

    def finish(self, root: HloInstruction) -> None:
        """Set the root and add the computation to the module."""
        self.computation.root = root
        self.module.add(self.computation)

    def write(self, i: HloInstruction, parts: Parts) -> None:
        """Add one step: slice the inputs, call the computation, update the outputs."""
        operation = operation_of(i, Scan)
        (step,) = i.called_computations
        counter, zero = self.element(0), self.scalar(0)
        number = counter
        if operation.is_reverse:
            number = self.op(Subtract(), self.scalar(parts.steps - 1), counter)

        def starts(rank: int) -> list[HloInstruction]:
            return [number if d == parts.axis else zero for d in range(rank)]

        slices: list[HloInstruction] = []
        for n, array in enumerate(parts.inputs):
            sizes = _with(_without(array.shape.dimensions, parts.axis), parts.axis)
            cut = self.op(
                DynamicSlice(dynamic_slice_sizes=sizes), self.element(1 + n), *starts(array.shape.rank)
            )
            slices.append(self.op(Reshape(), cut, shape=step.parameters[n].shape.without_layout()))
        first = 1 + len(parts.inputs)
        carries = [self.element(first + n) for n in range(len(parts.carries))]
        call = self.op(Call(), *slices, *carries, shape=step.root.shape, computations=[step])
        leaves = [call]
        if step.root.shape.is_tuple:
            count = len(step.root.shape.tuple_shapes)
            leaves = [self.op(GetTupleElement(index=n), call) for n in range(count)]
        outputs: list[HloInstruction] = []
        for n, leaf in enumerate(leaves[: len(parts.outputs)]):
            sizes = _with(leaf.shape.dimensions, parts.axis)
            update = self.op(Reshape(), leaf, shape=Shape(leaf.shape.element_type, sizes))
            array = self.element(first + len(carries) + n)
            outputs.append(self.op(DynamicUpdateSlice(), array, update, *starts(array.shape.rank)))
        following = self.op(Add(), counter, self.scalar(1))
        inputs = [self.element(1 + n) for n in range(len(parts.inputs))]
        self.finish(self.op(Tuple(), following, *inputs, *leaves[len(parts.outputs) :], *outputs))


def _leaves(shape: Shape) -> tuple[Shape, ...]:
    return shape.tuple_shapes if shape.is_tuple else (shape,)


def _without(sizes: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return sizes[:axis] + sizes[axis + 1 :]


def _with(sizes: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*sizes[:axis], 1, *sizes[axis:])
