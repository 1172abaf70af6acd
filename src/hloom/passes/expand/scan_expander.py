"""scan-expander: expand scans into while loops that slice their inputs and update their outputs."""

from __future__ import annotations

from collections.abc import Callable

from hloom.analysis.instructions import operation_of
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.arithmetic import Add, Subtract
from hloom.operations.control_flow import Call, While
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.movement import Broadcast
from hloom.operations.reshaping import Reshape
from hloom.operations.scan import Scan
from hloom.operations.structure import Constant, GetTupleElement, Parameter, Tuple
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Body, Writer
from hloom.records import dataclass
from hloom.shape.element_type import S64
from hloom.shape.shape import Shape


@dataclass(frozen=True, slots=True)
class Parts:
    """The operands and results of a scan.

    Attributes:
        axis: the scanned dimension.
        steps: the size of this dimension: the number of iterations.
        inputs, carries: the operands that are sliced, and those that are the initial carries.
        outputs, last: the shapes of the stacked outputs, and of the final carries.
        slice: the dimensions of the first input, output or carry, without the scanned one.
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


class ScanExpander(OpExpander, name="scan-expander", of=Scan):
    """``scan`` → ``while`` over a counter, inputs, carries and outputs.

    Attributes:
        keeps: scans that are not expanded.
    """

    keeps: Callable[[HloInstruction], bool] = lambda scan: False

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        """Return the results of a static scan as a loop; None for the scans that have a kernel."""
        if not _is_static(i) or self.keeps(i):
            return None
        parts = parts_of(i)
        counter = w.scalar(0, S64)
        empty = [w.full(0, shape.without_layout()) for shape in parts.outputs]
        state = w.op(Tuple(), counter, *parts.inputs, *parts.carries, *empty)
        body = _body(w.module, i, parts, state.shape)
        condition = _condition(w.module, parts, state.shape)
        loop = w.op(While(), state, shape=state.shape, computations=[body, condition])
        first = 1 + len(parts.inputs)
        carried = range(first, first + len(parts.carries))
        stacked = range(first + len(parts.carries), len(state.operands))
        leaves = [w.op(GetTupleElement(index=n), loop) for n in (*stacked, *carried)]
        return w.op(Tuple(), *leaves, shape=i.shape) if i.shape.is_tuple else leaves[0]


def _is_static(i: HloInstruction) -> bool:
    (step,) = i.called_computations
    shapes = [*(o.shape for o in i.operands), *_leaves(i.shape), *(p.shape for p in step.parameters)]
    return all(s.is_array and s.is_static for s in (*shapes, *_leaves(step.root.shape)))


def _condition(module: HloModule, parts: Parts, state: Shape) -> HloComputation:
    """Return the loop's condition: the counter is less than the number of steps."""
    w = Body(module, "scan_condition")
    counter = w.op(GetTupleElement(index=0), w.parameter(state))
    w.computation.root = w.compare(counter, "LT", w.scalar(parts.steps, S64))
    return w.computation


def _body(module: HloModule, i: HloInstruction, parts: Parts, state: Shape) -> HloComputation:
    """Return the loop's body: it slices the inputs, calls the scan's computation and updates the outputs."""
    w = Body(module, "scan_body")
    (step,) = i.called_computations
    before = w.parameter(state)

    def element(number: int) -> HloInstruction:
        return w.op(GetTupleElement(index=number), before)

    counter, zero = element(0), w.scalar(0, S64)
    number = counter
    if operation_of(i, Scan).is_reverse:
        number = w.op(Subtract(), w.scalar(parts.steps - 1, S64), counter)

    def starts(rank: int) -> list[HloInstruction]:
        return [number if d == parts.axis else zero for d in range(rank)]

    slices: list[HloInstruction] = []
    for n, array in enumerate(parts.inputs):
        sizes = _with(_without(array.shape.dimensions, parts.axis), parts.axis)
        cut = w.op(DynamicSlice(dynamic_slice_sizes=sizes), element(1 + n), *starts(array.shape.rank))
        slices.append(w.op(Reshape(), cut, shape=step.parameters[n].shape.without_layout()))
    first = 1 + len(parts.inputs)
    carries = [element(first + n) for n in range(len(parts.carries))]
    call = w.op(Call(), *slices, *carries, shape=step.root.shape, computations=[step])
    leaves = [call]
    if call.shape.is_tuple:
        leaves = [w.op(GetTupleElement(index=n), call) for n in range(len(call.shape.tuple_shapes))]
    outputs: list[HloInstruction] = []
    for n, leaf in enumerate(leaves[: len(parts.outputs)]):
        sizes = _with(leaf.shape.dimensions, parts.axis)
        update = w.op(Reshape(), leaf, shape=Shape(leaf.shape.element_type, sizes))
        array = element(first + len(carries) + n)
        outputs.append(w.op(DynamicUpdateSlice(), array, update, *starts(array.shape.rank)))
    following = w.op(Add(), counter, w.scalar(1, S64))
    inputs = [element(1 + n) for n in range(len(parts.inputs))]
    w.computation.root = w.op(Tuple(), following, *inputs, *leaves[len(parts.outputs) :], *outputs)
    return w.computation


def _leaves(shape: Shape) -> tuple[Shape, ...]:
    return shape.tuple_shapes if shape.is_tuple else (shape,)


def _without(sizes: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return sizes[:axis] + sizes[axis + 1 :]


def _with(sizes: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*sizes[:axis], 1, *sizes[axis:])
