"""Collectives: reductions, gathers, exchanges and permutations across replicas and partitions.

The pages "AllReduce", "AllGather", "ReduceScatter", "AllToAll", "RaggedAllToAll", "CollectivePermute",
"CollectiveBroadcast", "ReplicaId" and "PartitionId"; StableHLO's specification defines the groups.

The evaluation of a collective first contributes the operands to a rendezvous and then waits for the other
participants; the start and done forms perform these two steps separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np

from hloom.error_bounds.rules import linear, no_bound
from hloom.errors import EvaluationError, ShapeError, plural
from hloom.ir.codec import attribute, dims, flag
from hloom.ir.cursor import Cursor
from hloom.ir.device import DeviceId, Pending
from hloom.ir.device_groups import (
    ReplicaGroups,
    channel_id,
    group_mode,
    members_of,
    replica_groups,
)
from hloom.ir.operation import (
    Array,
    ErrorRun,
    Operation,
    ProgramShape,
    Run,
    Value,
    operation,
    require_dynamic,
)
from hloom.ir.traits import ElementCost, Family, Roundoff
from hloom.records import dataclass
from hloom.shape.shape import Shape

MODES = ("cross_replica", "cross_partition", "cross_replica_and_partition", "flattened_id")


class _ModeCodec:
    """``mode=flattened_id``: read and dropped, as in XLA; the mode follows from the other attributes."""

    def parse(self, cursor: Cursor) -> None:
        """Parse one of the group modes."""
        start = cursor.start()
        word = cursor.word()
        if word not in MODES:
            message = f"expected a group mode ({', '.join(MODES)}), found {word!r}"
            raise cursor.error(message, rule="collective.mode", position=start)

    def text(self, value: None) -> str:
        """Return "": the mode is never printed."""
        return ""

    def write(self, message: object, field: str, value: None) -> None:
        """Store nothing."""

    def read(self, message: object, field: str) -> None:
        """Read nothing."""


def mode_note() -> None:
    """Declare a ``mode=flattened_id`` attribute."""
    return attribute(_ModeCodec(), default=None, name="mode", proto="")


Contributions: TypeAlias = "Sequence[Sequence[Array]]"
"""The operands of every member of a group."""


class Communicating(Operation):
    """An operation by which devices exchange data, or its end."""

    __slots__ = ()
    family: ClassVar[Family] = Family.COLLECTIVE
    element_cost: ClassVar[ElementCost] = ElementCost.COMBINED
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    communicates: ClassVar[bool] = True


class Collective(Communicating):
    """An operation that groups of devices perform together."""

    __slots__ = ()
    channel_id: int | None
    replica_groups: ReplicaGroups
    equal_groups: ClassVar[bool] = True
    """Require all groups to have the same number of devices."""

    @property
    def group_mode(self) -> str:
        """The meaning of the numbers in the replica groups; see `group_mode`."""
        return group_mode(self.channel_id, getattr(self, "use_global_device_ids", None))

    def check_groups(self) -> None:
        """Check that numbers are unique, groups have devices, of equal number, and global ids a channel."""
        groups = self.replica_groups.groups
        numbers = [n for group in groups for n in group]
        if len(set(numbers)) != len(numbers) or any(n < 0 for n in numbers):
            message = f"{self.replica_groups.text()} has a negative number or one twice"
            raise ShapeError(message, rule=f"{self.opcode}.replica-groups-distinct")
        if not all(groups):
            message = f"a group has one device or more, got {self.replica_groups.text()}"
            raise ShapeError(message, rule=f"{self.opcode}.replica-groups-filled")
        if self.equal_groups and len({len(group) for group in groups}) > 1:
            message = f"groups of one size wanted, got {self.replica_groups.text()}"
            raise ShapeError(message, rule=f"{self.opcode}.replica-groups-equal")
        if getattr(self, "use_global_device_ids", None):
            if self.channel_id is None:
                message = "use_global_device_ids needs a channel_id"
                raise ShapeError(message, rule=f"{self.opcode}.global-ids-channel")
            if not groups:
                message = "use_global_device_ids needs replica_groups"
                raise ShapeError(message, rule=f"{self.opcode}.global-ids-groups")

    def check_arrays(self, operands: Sequence[Shape]) -> None:
        """Check that there are one or more operands, all arrays."""
        if not operands or not all(operand.is_array for operand in operands):
            message = f"{self.opcode} takes arrays, got {', '.join(map(str, operands)) or 'nothing'}"
            raise ShapeError(message, rule=f"{self.opcode}.operand-arrays")

    def begin(self, run: Run, *operands: Array) -> Pending:
        """Contribute the operands; the result is ready when all participants of the group have done so."""
        members = self.members(run)
        position = members.index(run.device.id)
        meeting = (self.kind, self.channel_id, members)
        met = run.device.exchange(meeting, members, operands, waiting(run))
        return met.then(lambda values: self.combine(run, self._checked(run, members, values), position))

    def _checked(self, run: Run, members: tuple[DeviceId, ...], values: Contributions) -> Contributions:
        """Refuse contributions that differ in types or dimensions."""
        forms = [[(a.dtype, a.shape) for a in value] for value in values]
        for member, form in zip(members, forms, strict=True):
            if form != forms[0]:
                ours, theirs = (f"{m} {_forms(f)}" for m, f in ((members[0], forms[0]), (member, form)))
                message = f"devices contribute different arrays: {ours}, {theirs}"
                raise EvaluationError(
                    message, rule="collective.same-operands", instruction=run.instruction.name
                )
        return values

    def members(self, run: Run) -> tuple[DeviceId, ...]:
        """Return the participants of this device's group; raises EvaluationError if it is in none."""
        members = members_of(self.replica_groups.groups, self.group_mode, run.device)
        if members is None:
            groups = self.replica_groups.text()
            message = f"device {run.device.id} is in no group of {groups} in mode {self.group_mode}"
            raise EvaluationError(message, rule="collective.device-in-group")
        return members

    @property
    def kind(self) -> str:
        """The opcode without ``-start``, so that start and plain forms meet at one rendezvous."""
        return self.opcode.removesuffix("-start")

    def combine(self, run: Run, values: Contributions, position: int) -> Value:
        """Return the result of member ``position`` from the operand tuples of all members."""
        raise EvaluationError(f"{self.opcode} has no value", rule="evaluate.no-value")

    def evaluate(self, run: Run, *operands: Array) -> Any:
        return self.begin(run, *operands).wait()


def waiting(run: Run) -> str:
    """Return the name of an instruction in a deadlock report."""
    return f"{run.instruction.opcode} %{run.instruction.name}"


def _forms(form: Sequence[tuple[np.dtype, tuple[int, ...]]]) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for dtype, shape in form)


def alone(values: Sequence[Array]) -> Value:
    """Return the only value, or the tuple of several."""
    return values[0] if len(values) == 1 else tuple(values)


def as_stated(run: Run, results: Sequence[Array], shape: Shape, members: int) -> Value:
    """Return the only result or the tuple of several; raises EvaluationError for sizes other than stated.

    The sizes follow from the number of devices in a group, which is not always known statically.
    """
    shapes = shape.tuple_shapes if shape.is_tuple else (shape,)
    for array, declared in zip(results, shapes, strict=True):
        if declared.is_static and array.shape != declared.dimensions:
            message = (
                f"a group of {plural(members, 'device')} makes "
                f"{array.dtype}{list(array.shape)}, stated is {declared}"
            )
            raise EvaluationError(message, rule="collective.group-size", instruction=run.instruction.name)
    return alone(results)


# -- all-reduce


class Reducing(Collective):
    """A collective that combines values of devices by a called computation."""

    roundoff: ClassVar[Roundoff] = Roundoff.COMBINED
    __slots__ = ()

    def errors(self, run: ErrorRun) -> Value:
        """Return zeros for exact operands of one device; errors of several devices are sampled."""
        if run.inexact or isinstance(run.value, tuple):
            raise no_bound(run)
        return np.zeros(np.shape(run.value))

    def check_reducer(self, operands: Sequence[Shape], computations: tuple[ProgramShape, ...]) -> None:
        """Check for (T, T) -> T on scalars of the operands' type T, or floats of another precision."""
        (to_apply,) = computations
        result = to_apply.result
        sound = len(to_apply.parameters) == 2 and all(
            p.is_scalar and p.element_type is result.element_type for p in (*to_apply.parameters, result)
        )
        if not sound:
            message = f"to_apply is (T[], T[]) -> T[], got {to_apply}"
            raise ShapeError(message, rule=f"{self.opcode}.reducer")
        for operand in operands:
            floats = operand.element_type.is_floating and result.element_type.is_floating
            if operand.element_type is not result.element_type and not floats:
                message = f"to_apply reduces {result.element_type.name}, an operand is {operand}"
                raise ShapeError(message, rule=f"{self.opcode}.reducer")

    def reduced(self, run: Run, values: Contributions) -> list[Array]:
        """Reduce the operands of all members in the order of the group, in the reducer's precision."""
        dtype = run.instruction.called_computations[0].root.shape.element_type.dtype

        def combined(a: Array, b: Array) -> Array:
            return cast("Array", run.map(0, a, b))

        return [
            reduce(combined, [array.astype(dtype, copy=False) for array in arrays]).astype(
                arrays[0].dtype, copy=False
            )
            for arrays in zip(*values, strict=True)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _AllReducing(Reducing):
    equal_groups: ClassVar[bool] = False
    channel_id: int | None = channel_id()
    replica_groups: ReplicaGroups = replica_groups()
    constrain_layout: bool = flag()
    use_global_device_ids: bool = flag()
    mode: None = mode_note()

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """Return the shapes of the operands."""
        self.check_groups()
        self.check_arrays(operands)
        self.check_reducer(operands, computations)
        return Shape.maybe_tuple(operands)

    def combine(self, run: Run, values: Contributions, position: int) -> Value:
        """Return the same value for every member."""
        return alone(self.reduced(run, values))


@operation("all-reduce", "*operands", computations=["to_apply"])
class AllReduce(_AllReducing):
    """Reduces arrays across the devices of each group, element by element; all of them get the result.

    Arguments:
        operands: one or more arrays of any dimensions.
        to_apply: the reduction of two scalars.
        replica_groups: which devices work together; ``{}`` for one group of all.
        channel_id, use_global_device_ids: the meaning of the numbers in the groups; see `group_mode`.
        constrain_layout: the operands' layouts must not change.
        mode: read and dropped.
    """


@operation("all-reduce-start", "*operands", computations=["to_apply"])
class AllReduceStart(_AllReducing):
    """Begins an all-reduce; ``all-reduce-done`` returns the result. Arguments as for all-reduce."""

    pending_index: ClassVar[tuple[int, ...] | None] = ()

    def evaluate(self, run: Run, *operands: Array) -> Pending:
        return self.begin(run, *operands)


@operation("all-reduce-done", "start")
class AllReduceDone(Communicating):
    """The result of the all-reduce that ``start`` began."""

    roundoff: ClassVar[Roundoff] = Roundoff.ACCUMULATED
    begun_by: ClassVar[tuple[str, ...]] = ("all-reduce-start",)
    pending_index: ClassVar[tuple[int, ...] | None] = ()

    def infer(self, start: Shape) -> Shape:
        return start

    def evaluate(self, run: Run, start: Pending) -> Value:
        return start.wait()


# -- all-gather


@dataclass(frozen=True, slots=True, kw_only=True)
class _AllGathering(Collective):
    channel_id: int | None = channel_id()
    replica_groups: ReplicaGroups = replica_groups()
    constrain_layout: bool = flag()
    all_gather_dimensions: tuple[int, ...] = dims(name="dimensions", proto="dimensions")
    use_global_device_ids: bool = flag()

    @property
    def dimension(self) -> int:
        """Return the dimension along which the operands are joined; raises ShapeError if there is not one."""
        if len(self.all_gather_dimensions) != 1:
            message = f"one dimension wanted, got {list(self.all_gather_dimensions)}"
            raise ShapeError(message, rule=f"{self.opcode}.one-dimension")
        return self.all_gather_dimensions[0]

    def gathered(self, operands: Sequence[Shape], count: int) -> Shape:
        """Return the result for groups of ``count`` devices."""
        self.check_groups()
        self.check_arrays(operands)
        return Shape.maybe_tuple([scaled(self.opcode, self.dimension, o, count) for o in operands])

    def shard_count(self, operand: Shape, result: Shape) -> int:
        """Return the number of operands in the result; that of the first group if the sizes do not fit."""
        first = result.tuple_shapes[0] if result.is_tuple and result.tuple_shapes else result
        is_divided = operand.is_array and first.is_array and first.rank == operand.rank > self.dimension >= 0
        if is_divided:
            small, large = (s.dimensions[self.dimension] for s in (operand, first))
            if 0 < small <= large and large % small == 0:
                return large // small
        listed = [len(group) for group in self.replica_groups.groups]
        return listed[0] if listed else 1

    def combine(self, run: Run, values: Contributions, position: int) -> Value:
        """Concatenate the operands of all members."""
        gathered = [np.concatenate(arrays, axis=self.dimension) for arrays in zip(*values, strict=True)]
        return as_stated(run, gathered, self.result_shape(run.shape), len(values))

    def result_shape(self, shape: Shape) -> Shape:
        """Return the shape of the result in the instruction's shape."""
        return shape


def scaled(opcode: str, dimension: int, operand: Shape, count: int, *, down: bool = False) -> Shape:
    """Return the shape with one dimension multiplied (or, if ``down``, divided) by ``count``."""
    if not 0 <= dimension < operand.rank:
        raise ShapeError(f"dimension {dimension} is not one of {operand}", rule=f"{opcode}.dimension-range")
    size = operand.dimensions[dimension]
    if down and size % count:
        message = f"dimension {dimension} of {operand} does not split into {plural(count, 'equal part')}"
        raise ShapeError(message, rule=f"{opcode}.divisible")
    if size != Shape.UNBOUNDED:
        size = size // count if down else size * count
    sizes = (*operand.dimensions[:dimension], size, *operand.dimensions[dimension + 1 :])
    return Shape(operand.element_type, sizes, operand.dynamic_dimensions)


@operation("all-gather", "*operands")
class AllGather(_AllGathering):
    """Concatenates the operands of the devices of a group along one dimension; all devices get the result.

    Arguments:
        operands: one or more arrays.
        all_gather_dimensions: the one dimension, written ``dimensions={0}``.
        replica_groups: which devices work together, in which order; ``{}`` for one group of all.
        channel_id, use_global_device_ids: the meaning of the numbers in the groups; see `group_mode`.
        constrain_layout: the operands' layouts must not change.
    """

    errors = linear

    def infer(self, *operands: Shape) -> Shape:
        """Return the result for the number of devices that the groups state."""
        self.check_groups()
        groups = self.replica_groups.groups
        if not groups or self.group_mode == "cross_replica_and_partition":
            message = "the number of devices in a group is not known, so the shape must be stated"
            raise ShapeError(message, rule="all-gather.shape-stated")
        return self.gathered(operands, len(groups[0]))

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check that the stated shape holds a whole number of operands."""
        self.check_arrays(operands)
        inferred = self.gathered(operands, self.shard_count(operands[0], shape))
        if not inferred.compatible(shape):
            message = f"the shape is stated as {shape}, but {inferred} follows from the operands"
            raise ShapeError(message, rule="all-gather.shape-matches")
        require_dynamic(shape, inferred)
        check_group_size(self, self.shard_count(operands[0], shape))


def check_group_size(self: Collective, count: int) -> None:
    """Refuse groups whose stated size is not ``count``."""
    groups = self.replica_groups.groups
    if groups and self.group_mode != "cross_replica_and_partition" and len(groups[0]) != count:
        message = f"the shapes want groups of {plural(count, 'device')}, got {self.replica_groups.text()}"
        raise ShapeError(message, rule=f"{self.opcode}.group-size")


@operation("all-gather-start", "*operands")
class AllGatherStart(_AllGathering):
    """Begins an all-gather; ``all-gather-done`` returns the result. Arguments as for all-gather.

    The shape is a tuple of the operands' shape and the result's shape.
    """

    pending_index: ClassVar[tuple[int, ...] | None] = (1,)
    infers: ClassVar[bool] = False

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check for (operands, results): each an array, or a tuple of one element per operand."""
        self.check_arrays(operands)
        if not shape.is_tuple or len(shape.tuple_shapes) != 2:
            message = f"the shape is a tuple of operands and results, not {shape}"
            raise ShapeError(message, rule="all-gather-start.shape-form")
        operand_shape, result = shape.tuple_shapes
        count = self.shard_count(operands[0], result)
        inferred = Shape.tuple_([Shape.maybe_tuple(operands), self.gathered(operands, count)])
        if not inferred.compatible(Shape.tuple_([operand_shape, result])):
            message = f"the shape is stated as {shape}, but {inferred} follows from the operands"
            raise ShapeError(message, rule="all-gather-start.shape-matches")
        check_group_size(self, count)

    def result_shape(self, shape: Shape) -> Shape:
        """Return the second element."""
        return shape.tuple_shapes[1]

    def evaluate(self, run: Run, *operands: Array) -> Value:
        """Contribute without waiting."""
        pending: Any = self.begin(run, *operands)
        return alone(operands), pending


@operation("all-gather-done", "start")
class AllGatherDone(Communicating):
    """The result of the all-gather that ``start`` began."""

    begun_by: ClassVar[tuple[str, ...]] = ("all-gather-start",)
    pending_index: ClassVar[tuple[int, ...] | None] = (1,)

    def infer(self, start: Shape) -> Shape:
        return second_of(self.opcode, start)

    def evaluate(self, run: Run, start: tuple[Value, Pending]) -> Value:
        return start[1].wait()


def second_of(opcode: str, start: Shape) -> Shape:
    """Return the result's shape in the tuple that a start operation gives."""
    if not start.is_tuple or len(start.tuple_shapes) < 2:
        message = f"{opcode} takes a tuple of operands and results, got {start}"
        raise ShapeError(message, rule=f"{opcode}.operand-form")
    return start.tuple_shapes[1]


# -- reduce-scatter


@operation("reduce-scatter", "*operands", computations=["to_apply"])
class ReduceScatter(Reducing):
    """Reduces arrays across the devices of each group and scatters the result in equal parts.

    The device at place i of its group gets part i along the scatter dimension.

    Arguments:
        operands: one or more arrays.
        scatter_dimensions: the one dimension, written ``dimensions={0}``.
        to_apply: the reduction of two scalars.
        replica_groups, channel_id, use_global_device_ids, constrain_layout, mode: as for all-reduce.
    """

    channel_id: int | None = channel_id()
    replica_groups: ReplicaGroups = replica_groups()
    constrain_layout: bool = flag()
    use_global_device_ids: bool = flag()
    scatter_dimensions: tuple[int, ...] = dims(name="dimensions", proto="dimensions")
    mode: None = mode_note()

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """Return the result for the number of devices that the groups state."""
        self.check_groups()
        groups = self.replica_groups.groups
        if not groups or self.group_mode == "cross_replica_and_partition":
            message = "the number of devices in a group is not known, so the shape must be stated"
            raise ShapeError(message, rule="reduce-scatter.shape-stated")
        return self.scattered(operands, computations, len(groups[0]))

    def scattered(
        self, operands: Sequence[Shape], computations: tuple[ProgramShape, ...], count: int
    ) -> Shape:
        """Return the result for groups of ``count`` devices."""
        self.check_groups()
        self.check_arrays(operands)
        self.check_reducer(operands, computations)
        if len(self.scatter_dimensions) != 1:
            message = f"one dimension wanted, got {list(self.scatter_dimensions)}"
            raise ShapeError(message, rule="reduce-scatter.one-dimension")
        dimension = self.scatter_dimensions[0]
        return Shape.maybe_tuple([scaled(self.opcode, dimension, o, count, down=True) for o in operands])

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check that the operands hold a whole number of the stated parts."""
        self.check_arrays(operands)
        count = self.shard_count(operands[0], shape)
        inferred = self.scattered(operands, computations, count)
        if not inferred.compatible(shape):
            message = f"the shape is stated as {shape}, but {inferred} follows from the operands"
            raise ShapeError(message, rule="reduce-scatter.shape-matches")
        require_dynamic(shape, inferred)
        check_group_size(self, count)

    def shard_count(self, operand: Shape, result: Shape) -> int:
        """Return the number of parts of the operand if the shapes state it; otherwise 1."""
        first = result.tuple_shapes[0] if result.is_tuple and result.tuple_shapes else result
        dimension = self.scatter_dimensions[0] if self.scatter_dimensions else -1
        if not (first.is_array and first.rank == operand.rank > dimension >= 0):
            return 1
        large, small = operand.dimensions[dimension], first.dimensions[dimension]
        return large // small if small > 0 and large >= small else 1

    def combine(self, run: Run, values: Contributions, position: int) -> Value:
        """Reduce, split, and take the part at this device's position."""
        dimension, count = self.scatter_dimensions[0], len(values)
        parts: list[Array] = []
        for reduced in self.reduced(run, values):
            size = reduced.shape[dimension] // count
            part = slice(position * size, (position + 1) * size)
            parts.append(reduced[(slice(None),) * dimension + (part,)])
        return as_stated(run, parts, run.shape, count)
