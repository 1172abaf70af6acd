"""The reference evaluator: walks a computation and calls each operation's ``evaluate``.

A computation is planned once (order of instructions, a slot for every value, when a value is no longer
needed) and run many times, so that the overhead of loops with small bodies is low.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import getrecursionlimit
from typing import Any, Final, cast

import numpy as np

from hloom.devices.world import World
from hloom.errors import EvaluationError, HloError, plural
from hloom.ir.computation import HloComputation
from hloom.ir.device import DeviceContext, Passed, Pending
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, Value
from hloom.operations.control_flow import Call, Fusion
from hloom.operations.conversion import BitcastConvert
from hloom.operations.movement import Broadcast
from hloom.operations.random import RandomState
from hloom.operations.structure import Constant, GetTupleElement, OptimizationBarrier, Parameter, Tuple
from hloom.shape.shape import Shape, ShapeIndex


class Evaluator:
    """The evaluator of the computations of one module on one device.

    Without a device it creates one: replica 0 of 1, partition 0 of 1.
    """

    def __init__(self, device: DeviceContext | None = None) -> None:
        self.alone: World | None = None
        if device is None:
            self.alone = World(1, 1)
            device = self.alone.devices[0]
        self.device = device
        self.random_state = RandomState()
        self._plans: dict[HloComputation, _Plan] = {}
        self._steps: dict[HloInstruction, _Step] = {}
        self._mappable: dict[HloComputation, bool] = {}

    def run(self, computation: HloComputation, arguments: Sequence[Value]) -> Value:
        """Return the value of the root for these arguments; raises EvaluationError.

        Overflow, division by zero and NaN give values, never numpy warnings.
        """
        with np.errstate(all="ignore"):
            if self.alone is not None:
                return self.alone.run(lambda _: self.call(computation, arguments))[0]
            return self.call(computation, arguments)

    def call(self, computation: HloComputation, arguments: Sequence[Value]) -> Value:
        """Evaluate the root, inside a run."""
        return self._plan(computation).run(arguments)

    def begin(self, computation: HloComputation, arguments: Sequence[Value]) -> Value | Pending:
        """Evaluate the root; return it pending if the root waits for other devices."""
        return self._plan(computation).run(arguments, wait=False)

    def apply(self, instruction: HloInstruction, operands: Sequence[Passed]) -> Passed:
        """Evaluate one instruction on values of its operands, inside a run; errors name it."""
        step = self._steps.get(instruction)
        if step is None:
            slots = dict.fromkeys([*instruction.operands, instruction], 0)
            step = self._steps[instruction] = _Step(instruction, self, slots)
        return _evaluated(step, step.evaluate, list(operands))

    def evaluation(self, instruction: HloInstruction) -> Callable[..., Any]:
        """Return the function that evaluates an instruction; a subclass may observe values here."""
        return instruction.operation.evaluate

    def _plan(self, computation: HloComputation) -> _Plan:
        plan = self._plans.get(computation)
        if plan is None:
            plan = self._plans[computation] = _Plan(computation, self)
        return plan

    def map(self, computation: HloComputation, arguments: Sequence[Array]) -> Value:
        """Evaluate a computation of scalars at every index of broadcast arrays."""
        shape = np.broadcast_shapes(*(a.shape for a in arguments))
        if self.mappable(computation):
            return _broadcast(self.call(computation, arguments), shape)
        return self._map_one_by_one(computation, arguments, shape)

    def mappable(self, computation: HloComputation) -> bool:
        """Return whether every instruction is elementwise or forwards values, so that arrays may pass."""
        is_mappable = self._mappable.get(computation)
        if is_mappable is None:
            is_mappable = self._mappable[computation] = all(
                _maps_arrays(i) and all(self.mappable(c) for c in i.called_computations)
                for i in computation.instructions
            )
        return is_mappable

    def _map_one_by_one(
        self, computation: HloComputation, arguments: Sequence[Array], shape: tuple[int, ...]
    ) -> Value:
        result = computation.root.shape
        leaves = [np.empty(shape, leaf.element_type.dtype) for leaf in _scalars(result)]
        spread = [np.broadcast_to(a, shape) for a in arguments]
        for index in np.ndindex(*shape):
            value = self.call(computation, [a[(*index, ...)] for a in spread])
            for leaf, scalar in zip(leaves, value if isinstance(value, tuple) else (value,), strict=True):
                leaf[index] = scalar
        return tuple(leaves) if result.is_tuple else leaves[0]


def _scalars(shape: Shape) -> tuple[Shape, ...]:
    return shape.tuple_shapes if shape.is_tuple else (shape,)


def _broadcast(value: Value, shape: tuple[int, ...]) -> Value:
    if isinstance(value, tuple):
        return tuple(_broadcast(v, shape) for v in value)
    return value if value is None or value.shape == shape else np.broadcast_to(value, shape)


class _Step:
    """One instruction of a plan; the ``run`` argument of its ``evaluate``."""

    __slots__ = (
        "computations",
        "dtype",
        "evaluate",
        "evaluator",
        "instruction",
        "operands",
        "release",
        "shape",
        "slot",
    )

    def __init__(
        self, instruction: HloInstruction, evaluator: Evaluator, slots: dict[HloInstruction, int]
    ) -> None:
        self.instruction = instruction
        self.shape = instruction.shape
        self.dtype: Any = instruction.shape.element_type.dtype
        self.evaluator = evaluator
        self.computations = instruction.called_computations
        self.evaluate: Callable[..., Value] = evaluator.evaluation(instruction)
        if _mixes_sizes(instruction):
            self.evaluate = _up_to_actual_sizes(self.evaluate)
        self.operands = [slots[o] for o in instruction.operands]
        self.slot = slots[instruction]
        self.release: list[int] = []

    def call(self, index: int, *arguments: Value) -> Value:
        """Evaluate a called computation."""
        return self.evaluator.call(self.computations[index], arguments)

    def begin(self, index: int, *arguments: Value) -> Value | Pending:
        """Evaluate a called computation without waiting for other devices at its root."""
        return self.evaluator.begin(self.computations[index], arguments)

    def map(self, index: int, *arguments: Array) -> Value:
        """Evaluate a called computation of scalars on whole arrays."""
        return self.evaluator.map(self.computations[index], arguments)

    @property
    def device(self) -> Any:
        """The virtual device."""
        return self.evaluator.device

    @property
    def random_state(self) -> RandomState:
        """The state of the stateful random operations."""
        return self.evaluator.random_state


def _mixes_sizes(i: HloInstruction) -> bool:
    """Return whether elementwise operands are of static size where another one is of dynamic size."""
    if not i.operation.elementwise or not i.shape.is_array or not i.shape.is_dynamic:
        return False
    shapes = [o.shape for o in i.operands if o.shape.rank == i.shape.rank]
    return len({shape.dynamic_dimensions for shape in shapes}) > 1


def _up_to_actual_sizes(evaluate: Callable[..., Value]) -> Callable[..., Value]:
    """Cut what is of static size to the actual size of an operand that is of dynamic size there."""

    def evaluate_up_to(run: _Step, *operands: Array) -> Value:
        flags = [o.shape.dynamic_dimensions for o in run.instruction.operands]
        ends = [
            next((x.shape[d] for x, dynamic in zip(operands, flags) if dynamic and dynamic[d]), None)
            for d in range(run.shape.rank)
        ]
        cuts = [
            tuple(slice(None if is_dynamic else end) for end, is_dynamic in zip(ends, dynamic))
            for dynamic in flags
        ]
        return evaluate(run, *(x[cut] for x, cut in zip(operands, cuts, strict=True)))

    return evaluate_up_to


def live(order: Sequence[HloInstruction]) -> list[HloInstruction]:
    """Drop instructions without side effects whose values no other one needs; a compiled program has none."""
    needed: set[HloInstruction] = set()
    for i in reversed(order):
        if i.is_root or i.opcode == "parameter" or i.has_side_effect or not needed.isdisjoint(i.users):
            needed.add(i)
    return [i for i in order if i in needed]


class _Plan:
    """A computation ready to run: its live steps in order, a slot for every value, and its constants."""

    def __init__(self, computation: HloComputation, evaluator: Evaluator) -> None:
        order = live(computation.post_order())
        slots = {instruction: slot for slot, instruction in enumerate(order)}
        self.parameters = [slots[p] for p in computation.parameters]
        self.root = slots[computation.root]
        steps = [_Step(i, evaluator, slots) for i in order if i.opcode != "parameter"]
        self.constants = [step for step in steps if step.instruction.opcode == "constant"]
        self.steps = [step for step in steps if step.instruction.opcode != "constant"]
        self.blank: list[Value] = [None] * len(order)
        self.constants_known = False
        self.name = computation.name
        seen = {self.root, *(step.slot for step in self.constants)}
        for step in reversed(self.steps):
            step.release = [s for s in dict.fromkeys(step.operands) if s not in seen]
            seen.update(step.operands)

    def run(self, arguments: Sequence[Value], *, wait: bool = True) -> Any:
        """Run the steps; return the root's value, or with ``wait=False`` the result of its ``begin``."""
        if not self.constants_known:
            for step in self.constants:
                self.blank[step.slot] = _evaluated(step, step.evaluate, [])
            self.constants_known = True
        values = self.blank.copy()
        if len(arguments) != len(self.parameters):
            message = f"%{self.name} takes {plural(len(self.parameters), 'argument')}, got {len(arguments)}"
            raise EvaluationError(message, rule="evaluate.argument-count")
        for slot, argument in zip(self.parameters, arguments, strict=True):
            values[slot] = argument
        for step in self.steps:
            evaluate = step.evaluate
            if not wait and step.slot == self.root:
                evaluate = getattr(step.instruction.operation, "begin", evaluate)
            values[step.slot] = _evaluated(step, evaluate, [values[s] for s in step.operands])
            for slot in step.release:
                values[slot] = None
        return values[self.root]


MOST_DIMENSIONS: Final = 64
"""Maximum rank of a numpy array."""
MOST_BYTES: Final = 1 << 62


def _beyond_numpy(leaf: tuple[ShapeIndex, Shape]) -> bool:
    """Return whether a shape has more dimensions or elements than a numpy array can have."""
    shape = leaf[1]
    return shape.is_array and (shape.rank > MOST_DIMENSIONS or 16 * shape.element_count > MOST_BYTES)


def _evaluated(step: _Step, evaluate: Callable[..., object], operands: list[Passed]) -> Any:
    """Evaluate one step; errors name its instruction.

    Where numpy gives a scalar for arrays without dimensions, the value is such an array.
    """
    try:
        value = evaluate(step, *operands)
        return np.asarray(cast("Any", value)) if isinstance(value, np.generic) else value
    except HloError as error:
        raise error.at(instruction=step.instruction.name) from error.__cause__
    except MemoryError:
        message = f"not enough memory for {step.shape}, {plural(step.shape.byte_size, 'byte')}"
        raise EvaluationError(message, rule="evaluate.memory", instruction=step.instruction.name) from None
    except RecursionError:
        message = (
            f"computations call each other more deeply than Python's recursion limit, {getrecursionlimit()}, "
            "allows the evaluator; compile for the cpu backend, which inlines calls, or raise the limit by "
            "sys.setrecursionlimit"
        )
        raise EvaluationError(message, rule="evaluate.call-depth") from None
    except (ValueError, IndexError) as error:
        if any(map(_beyond_numpy, step.shape.leaves())):
            message = f"{step.shape} is more than numpy can hold: {error}"
            raise EvaluationError(
                message, rule="evaluate.memory", instruction=step.instruction.name
            ) from None
        if not any(operand.shape.is_dynamic for operand in step.instruction.operands):
            raise
        message = f"the actual sizes of dynamic dimensions do not fit together: {error}"
        raise EvaluationError(
            message, rule="evaluate.actual-sizes", instruction=step.instruction.name
        ) from None


def _maps_arrays(i: HloInstruction) -> bool:
    """Return whether an instruction of a scalar computation may be evaluated on whole arrays."""
    match i.operation:
        case (
            Parameter() | Constant() | Tuple() | GetTupleElement() | OptimizationBarrier() | Call() | Fusion()
        ):
            return True
        case BitcastConvert():
            return i.operands[0].shape.element_type.bits == i.shape.element_type.bits
        case operation:
            return operation.elementwise or (isinstance(operation, Broadcast) and not i.shape.rank)
