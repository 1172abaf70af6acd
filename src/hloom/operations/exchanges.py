"""Collectives that exchange values between devices without computing: all-to-all, permutations.

The pages "AllToAll", "RaggedAllToAll" and "CollectivePermute".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from hloom.error_bounds.rules import linear, moved
from hloom.errors import EvaluationError, ShapeError, plural
from hloom.ir.codec import Message, ScalarCodec, attribute, dims, flag
from hloom.ir.device import DeviceId, Pending
from hloom.ir.device_groups import (
    DeviceList,
    ReplicaGroups,
    channel_id,
    device_of,
    group_mode,
    integer_lists,
    replica_groups,
    source_target_pairs,
)
from hloom.ir.operation import Array, ErrorRun, ProgramShape, Run, Value, operation
from hloom.operations.collectives import (
    Collective,
    Communicating,
    Contributions,
    alone,
    check_group_size,
    second_of,
    waiting,
)
from hloom.operations.values import context, elements_of
from hloom.records import dataclass
from hloom.shape.element_type import S32, S64, U32
from hloom.shape.shape import Shape

# -- all-to-all


@operation("all-to-all", "*operands")
class AllToAll(Collective):
    """Every device sends a part of its data to every device of its group.

    Array form, with one operand: the operand is split along the split dimension into as many equal parts as
    the group has devices; part i goes to device i of the group, and the received parts are concatenated along
    the same dimension in the order of the group. Tuple form: operand i goes to device i of the group; the
    result is the tuple of the received values.

    Arguments:
        operands: one array, or as many of one shape as a group has devices.
        split_dimension: written ``dimensions={0}``; only in the array form.
        replica_groups, channel_id, constrain_layout: which devices work together; with a channel the numbers
            in the groups are partitions, without one replicas.
    """

    errors = linear
    channel_id: int | None = channel_id()
    replica_groups: ReplicaGroups = replica_groups()
    constrain_layout: bool = flag()
    split_dimension: tuple[int, ...] = dims(default=(), name="dimensions", proto="dimensions")

    def infer(self, *operands: Shape) -> Shape:
        """Return the operand's shape; the tuple of the operands' shapes."""
        self.check_groups()
        self.check_arrays(operands)
        groups = self.replica_groups.groups
        if len(operands) == 1 and self.split_dimension:
            dimension, operand = self.split_dimension[0], operands[0]
            if len(self.split_dimension) != 1 or not 0 <= dimension < operand.rank:
                message = f"split dimension {list(self.split_dimension)} of {operand}"
                raise ShapeError(message, rule="all-to-all.split-dimension")
            if groups and operand.dimensions[dimension] % len(groups[0]):
                message = (
                    f"dimension {dimension} of {operand} does not split into "
                    f"{plural(len(groups[0]), 'equal part')}"
                )
                raise ShapeError(message, rule="all-to-all.divisible")
            return operand
        for operand in operands:
            if not operand.compatible(operands[0]):
                message = f"operands of one shape wanted, got {', '.join(map(str, operands))}"
                raise ShapeError(message, rule="all-to-all.operands-equal")
        check_group_size(self, len(operands))
        return Shape.tuple_(operands)

    def combine(self, run: Run, values: Contributions, position: int) -> Value:
        """Return the parts that are addressed to this device."""
        count = len(values)
        if not run.shape.is_tuple:
            dimension = self.split_dimension[0]
            if values[0][0].shape[dimension] % count:
                message = (
                    f"dimension {dimension} of {list(values[0][0].shape)} does "
                    f"not split into {plural(count, 'part')}"
                )
                raise EvaluationError(message, rule="collective.group-size", instruction=run.instruction.name)
            parts = [np.split(operand, count, axis=dimension)[position] for (operand,) in values]
            return np.concatenate(parts, axis=dimension)
        if len(values[0]) != count:
            message = f"{plural(len(values[0]), 'operand')} for a group of {plural(count, 'device')}"
            raise EvaluationError(message, rule="collective.group-size", instruction=run.instruction.name)
        return tuple(operands[position] for operands in values)


# -- ragged-all-to-all


@operation("ragged-all-to-all", "input output input_offsets send_sizes output_offsets recv_sizes")
class RaggedAllToAll(Collective):
    """An all-to-all of pieces of different sizes along the outermost dimension.

    With n devices in the group, the four offset and size operands have k * n elements, k for each device. For
    the j-th of those for device i, ``input[input_offsets[j]:][:send_sizes[j]]`` is written to the output of
    device i, from row ``output_offsets[j]`` on. The result is ``output`` with the received rows written over
    it. Rows outside the input or the output are left out.

    Arguments:
        input: the rows to send.
        output: the first value of the result.
        input_offsets, send_sizes, output_offsets: integers, in a vector or, for k > 1, a matrix with a row
            for each device; ``output_offsets`` are offsets in the receivers' outputs.
        recv_sizes: the number of rows received in each piece; equal to the senders' send_sizes.
        replica_groups, channel_id: which devices work together.
    """

    channel_id: int | None = channel_id()
    replica_groups: ReplicaGroups = replica_groups()

    def infer(self, *operands: Shape) -> Shape:
        """Return the shape of ``output``."""
        self.check_groups()
        self.check_arrays(operands)
        source, output, *vectors = operands
        same = source.rank == output.rank > 0 and source.element_type is output.element_type
        if not same or source.dimensions[1:] != output.dimensions[1:]:
            message = f"input {source} and output {output} may differ in the outermost dimension only"
            raise ShapeError(message, rule="ragged-all-to-all.rows")
        if any(
            v.rank == 0 or v.element_type not in (S32, S64) or not v.compatible(vectors[0]) for v in vectors
        ):
            message = (
                f"offsets and sizes are four equal s32 or s64 arrays, got {', '.join(map(str, vectors))}"
            )
            raise ShapeError(message, rule="ragged-all-to-all.offsets")
        groups = self.replica_groups.groups
        if groups and vectors[0].dimensions[0] % len(groups[0]):
            message = (
                f"{plural(vectors[0].dimensions[0], 'offset')} for groups "
                f"of {plural(len(groups[0]), 'device')}"
            )
            raise ShapeError(message, rule="ragged-all-to-all.offset-count")
        return output

    def _checked(self, run: Run, members: tuple[DeviceId, ...], values: Contributions) -> Contributions:
        """Check the contributions; numbers of rows may differ between devices."""
        return values

    def combine(self, run: Run, values: Contributions, position: int) -> Value:
        """Write the pieces for this device over its output, sender by sender."""
        output = values[position][1].copy()
        for source, _, *vectors in values:
            input_offsets, send_sizes, output_offsets, _ = map(np.ravel, vectors)
            each, remainder = divmod(len(send_sizes), len(values))
            if remainder:
                message = f"{plural(len(send_sizes), 'size')} for a group of {plural(len(values), 'device')}"
                raise EvaluationError(message, rule="collective.group-size", instruction=run.instruction.name)
            for j in range(position * each, (position + 1) * each):
                copy_rows(source, int(input_offsets[j]), output, int(output_offsets[j]), int(send_sizes[j]))
        return output


def copy_rows(source: Array, start: int, target: Array, place: int, count: int) -> None:
    """Copy ``target[place:][:count] = source[start:][:count]`` without rows out of bounds of either."""
    ahead = max(0, -start, -place)
    count = min(count, len(source) - start, len(target) - place)
    if count > ahead:
        target[place + ahead : place + count] = source[start + ahead : start + count]


# -- collective-permute


def _slice_sizes_read(message: Message, field: str) -> tuple[tuple[int, ...], ...]:
    """Split the one list of a proto into slices; the result's rank is the length of each."""
    sizes = tuple(getattr(message, field))
    shape = message.shape
    while len(shape.tuple_shapes):
        shape = shape.tuple_shapes[0]
    rank = len(shape.dimensions)
    if not rank or len(sizes) % rank:
        return (sizes,) if sizes else ()
    return tuple(sizes[i : i + rank] for i in range(0, len(sizes), rank))


class _SliceSizesCodec(ScalarCodec):
    """``{{1,8,128},{1,8,128}}``: the sizes of the slices that an in-place permutation moves."""

    def __init__(self) -> None:
        super().__init__(integer_lists, lambda value: DeviceList(value).text())

    def write(self, message: Message, field: str, value: tuple[tuple[int, ...], ...]) -> None:
        getattr(message, field).extend(size for sizes in value for size in sizes)

    def read(self, message: Message, field: str) -> tuple[tuple[int, ...], ...]:
        return _slice_sizes_read(message, field)


def _slice_sizes() -> tuple[tuple[int, ...], ...]:
    return attribute(_SliceSizesCodec(), default=(), name="slice_sizes", proto="dynamic_slice_sizes")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Permuting(Communicating):
    """Common to the plain and the start form of collective-permute."""

    channel_id: int | None = channel_id()
    source_target_pairs: tuple[tuple[int, int], ...] = source_target_pairs()
    slice_sizes: tuple[tuple[int, ...], ...] = _slice_sizes()

    def permuted(self, operands: Sequence[Shape]) -> Shape:
        """Return the result's shape: that of the operands, in place that of the output buffer."""
        if not operands:
            raise ShapeError(f"{self.opcode} needs an operand", rule=f"{self.opcode}.operands")
        times = max(1, len(self.slice_sizes))
        for side, name in enumerate(("source", "target")):
            numbers = [pair[side] for pair in self.source_target_pairs]
            for number in numbers:
                if number < 0 or numbers.count(number) > times:
                    message = (
                        f"device {number} is {name} of {numbers.count(number)} pairs, at most {times} wanted"
                    )
                    raise ShapeError(message, rule=f"{self.opcode}.pairs-distinct")
        if not self.slice_sizes:
            if any(not operand.is_array for operand in operands):
                message = f"{self.opcode} takes arrays, got {', '.join(map(str, operands))}"
                raise ShapeError(message, rule=f"{self.opcode}.operands")
            return Shape.maybe_tuple(operands)
        if len(operands) != 4:
            message = (
                "with slice_sizes: input, output, start indices in both, "
                f"got {plural(len(operands), 'operand')}"
            )
            raise ShapeError(message, rule=f"{self.opcode}.in-place-operands")
        source, output, sent, written = operands
        alike = source.is_tuple == output.is_tuple and len(source.tuple_shapes) == len(output.tuple_shapes)
        if not (alike and _places(source, sent) and _places(output, written)):
            message = f"{sent} and {written} are no start indices of slices of {source} and {output}"
            raise ShapeError(message, rule=f"{self.opcode}.in-place-starts")
        return output

    def begin(self, run: Run, *operands: object) -> Pending:
        """Send this device's values to its targets and request those addressed to it."""
        me, mode = run.device.id, group_mode(self.channel_id, None)
        sources: list[tuple[int, int, Pending]] = []
        occurrences: dict[tuple[str, int], int] = {}
        for source, target in self.source_target_pairs:
            here = [device_of(n, mode, me, run.device.num_partitions) for n in (source, target)]
            self._check_range(run, here, (source, target))
            sent, received = (
                occurrences.setdefault(key, -1) + 1 for key in (("source", source), ("target", target))
            )
            occurrences["source", source], occurrences["target", target] = sent, received
            channel = ("collective-permute", self.channel_id, *here, sent)
            if here[0] == me:
                run.device.send(channel, self.outgoing(operands, sent), waiting(run))
            if here[1] == me:
                sources.append((received, sent, run.device.receive(channel, waiting(run))))
        return Pending(
            lambda: self.arrived(run, operands, [(received, p.wait()) for received, _, p in sources])
        )

    def _check_range(self, run: Run, devices: list[tuple[int, int]], pair: tuple[int, int]) -> None:
        for replica, partition in devices:
            if replica >= run.device.num_replicas or partition >= run.device.num_partitions:
                message = (
                    f"pair {list(pair)} is out of range: {plural(run.device.num_replicas, 'replica')}, "
                    f"{plural(run.device.num_partitions, 'partition')}"
                )
                raise EvaluationError(
                    message, rule="collective.device-range", instruction=run.instruction.name
                )

    def outgoing(self, operands: Sequence[object], occurrence: int) -> Any:
        """Return the value to send in the ``occurrence``-th pair with this device as source."""
        if not self.slice_sizes:
            return tuple(operands)
        source, _, starts, _ = operands
        return [
            _window(array, windows, self.slice_sizes, occurrence)
            for array, windows in _paired(source, starts)
        ]

    def arrived(self, run: Run, operands: Sequence[Any], messages: list[tuple[int, Any]]) -> Value:
        """Return the received values, or zeros; in place, the output buffer with the slices written."""
        if not self.slice_sizes:
            return alone(messages[0][1]) if messages else alone([np.zeros_like(o) for o in operands])
        _, output, _, starts = operands
        buffers = [(array.copy(), windows) for array, windows in _paired(output, starts)]
        for occurrence, slices in messages:
            for (buffer, windows), piece in zip(buffers, slices, strict=True):
                window = _clamped(buffer, _starts(windows, occurrence), piece.shape)
                buffer[window] = piece
        return tuple(b for b, _ in buffers) if isinstance(output, tuple) else buffers[0][0]


def _places(buffer: Shape, starts: Shape) -> bool:
    """Return whether start indices are those of slices of a buffer, or of each of a tuple of buffers."""
    parts = starts.tuple_shapes if starts.is_tuple else ()
    if buffer.is_tuple:
        same = len(parts) == len(buffer.tuple_shapes)
        return same and all(map(_places, buffer.tuple_shapes, parts))
    if parts and all(part.is_tuple for part in parts):
        return all(_places(buffer, part) for part in parts)
    return len(parts) == buffer.rank and all(p.is_scalar and p.element_type.is_integer for p in parts)


def _paired(arrays: Any, starts: Any) -> Iterator[tuple[Array, Any]]:
    """Pair every buffer with its start indices."""
    several = elements_of(arrays)
    if several is None:
        yield arrays, starts
    else:
        yield from zip(several, starts, strict=True)


def _starts(windows: Any, occurrence: int) -> list[int]:
    """Return the start indices of slice ``occurrence`` from one tuple of scalars, or one per slice."""
    window = windows[min(occurrence, len(windows) - 1)] if isinstance(windows[0], tuple) else windows
    return [int(index) for index in window]


def _clamped(array: Array, starts: list[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    """Return a window shifted to lie inside the array, as in dynamic-slice."""
    return tuple(
        slice(max(0, min(start, extent - size)), max(0, min(start, extent - size)) + size)
        for start, extent, size in zip(starts, array.shape, sizes, strict=False)
    )


def _window(array: Array, windows: object, sizes: Sequence[tuple[int, ...]], occurrence: int) -> Array:
    size = sizes[min(occurrence, len(sizes) - 1)]
    return array[_clamped(array, _starts(windows, occurrence), size)]


@operation("collective-permute", "*operands")
class CollectivePermute(_Permuting):
    """Sends the operand of the source of each pair to its target; a device that is no target gets zeros.

    In place, with ``slice_sizes``, the operands are input, output, and the start indices of slices in both:
    each slice of the source's input is written over its place in the target's output. A device may then be in
    as many pairs as there are slices.

    Arguments:
        operands: an array, several arrays, or the four operands of the in-place form.
        source_target_pairs: pairs of replicas or, with a channel, of partitions.
        channel_id: see `group_mode`.
        slice_sizes: the sizes of the slices.
    """

    def infer(self, *operands: Shape) -> Shape:
        """Return the operands' shape, or that of the output buffer."""
        return self.permuted(operands)

    def evaluate(self, run: Run, *operands: Any) -> Value:
        return self.begin(run, *operands).wait()

    def errors(self, run: ErrorRun) -> Array:
        """Move the errors of the data; start indices of slices stay as they are."""
        return moved(run, 2 if self.slice_sizes else len(run.operands))


@operation("collective-permute-start", "*operands")
class CollectivePermuteStart(_Permuting):
    """Begins a collective-permute; ``collective-permute-done`` returns the result. Same arguments.

    The shape is a tuple of the operands' shape, the result's shape, and any number of u32[] contexts.
    """

    pending_index: ClassVar[tuple[int, ...] | None] = (1,)

    def infer(self, *operands: Shape) -> Shape:
        """Return (operand, result, u32[], u32[])."""
        result = self.permuted(operands)
        source = operands[0] if self.slice_sizes else result
        return Shape.tuple_([source, result, Shape(U32), Shape(U32)])

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check the form; contexts may be left out."""
        inferred = self.infer(*operands)
        elements = shape.tuple_shapes if shape.is_tuple else ()
        if len(elements) < 2 or not all(
            s.compatible(w)
            for s, w in zip(
                elements, (*inferred.tuple_shapes[:2], *[Shape(U32)] * len(elements)), strict=False
            )
        ):
            message = f"the shape is stated as {shape}, but {inferred} follows from the operands"
            raise ShapeError(message, rule="collective-permute-start.shape-matches")

    def evaluate(self, run: Run, *operands: Any) -> Value:
        """Send without waiting."""
        pending: Any = self.begin(run, *operands)
        source = operands[0] if self.slice_sizes else alone(operands)
        return (source, pending, *[context()] * (len(run.shape.tuple_shapes) - 2))


@operation("collective-permute-done", "start")
class CollectivePermuteDone(Communicating):
    """The result of the collective-permute that ``start`` began."""

    begun_by: ClassVar[tuple[str, ...]] = ("collective-permute-start",)
    pending_index: ClassVar[tuple[int, ...] | None] = (1,)

    def infer(self, start: Shape) -> Shape:
        return second_of(self.opcode, start)

    def evaluate(self, run: Run, start: tuple[Any, ...]) -> Value:
        return start[1].wait()
