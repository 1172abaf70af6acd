"""Memory of a device over the schedule of a partitioned program, and the live arrays at the peak.

The schedule is post-order. A value is live from its definition to its last use, which may be the use of an
alias (tuple, tuple element, barrier). Arguments and constants are always live. Results are live until the
end, in the buffer of a donated argument if there is one. Loops update carried values in place. Elementwise
operations and updates of slices reuse the buffer of a dead operand of equal size. Fusion is not modelled: a
backend that fuses needs less. Bytes include the padding of tiled layouts where the program has layouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from hloom.analysis.origin import op_name, source_line
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.traits import shape_bytes
from hloom.operations.control_flow import While
from hloom.operations.dynamic_slicing import DynamicUpdateSlice
from hloom.operations.structure import Constant, GetTupleElement, Parameter, Tuple
from hloom.records import dataclass
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.partitioner import Partitioned


@dataclass(frozen=True, slots=True)
class LiveArray:
    """An array that is live when the memory use of a device is highest.

    Attributes:
        name, opcode: the defining instruction; ``p{1}`` is element 1 of the tuple ``p``.
        op_name, source: the framework's operation and source line; "" if not recorded.
        shape: the shape of the device's tile, as HLO text.
        bytes: the size in memory, padding of tiled layouts included.
        padding: the bytes of padding.
    """

    name: str
    opcode: str
    op_name: str
    source: str
    shape: str
    bytes: int
    padding: int


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """The memory that a device uses in one run of a partitioned program, in bytes.

    Attributes:
        argument_bytes, result_bytes: the sizes of the entry's parameters and of its result.
        donated_bytes: the size of those results that are written to the buffers of donated arguments.
        peak_bytes: the maximum of live bytes, arguments and results included.
        padding_bytes: the bytes of padding of tiled layouts at the peak.
        at: the name of the instruction that runs at the peak.
        peak: the arrays that are live at the peak, the largest first.
        timeline: (name, live bytes) of the instructions of the entry in the order in which they run; tuples,
            aliases and parameters are left out.
    """

    argument_bytes: int
    result_bytes: int
    donated_bytes: int
    peak_bytes: int
    padding_bytes: int
    at: str
    peak: tuple[LiveArray, ...]
    timeline: tuple[tuple[str, int], ...]


@dataclass(slots=True, eq=False)
class _Buffer:
    """The memory of one leaf of the value of an instruction.

    Attributes:
        instruction, index: the defining instruction, and the shape index of the leaf.
        shape: the shape of the tile, with the layout of the global array.
        bytes: the size; 0 if the memory belongs to a different buffer or to the caller.
        last: the position of the last use in the schedule; -1 for no use.
        is_read_only: True if no result may be written to it.
    """

    instruction: HloInstruction
    index: tuple[int, ...]
    shape: Shape
    bytes: int
    last: int = -1
    is_read_only: bool = False


@dataclass(frozen=True, slots=True)
class _Peak:
    """The peak of a computation's memory use.

    Attributes:
        at: the name of the instruction that runs at the peak.
        buffers: the buffers that are live at the peak.
    """

    at: str
    buffers: list[_Buffer]


def memory_of(partitioned: Partitioned, original: HloModule) -> MemoryUsage:
    """Return the memory that a device uses when it runs a partitioned program.

    ``original`` is the program before partitioning, which states the donated arguments.
    """
    entry = partitioned.module.entry
    donated = _donated(original, entry)
    run = _Schedule(partitioned.global_shapes, donated)
    timeline = zip(entry.post_order(), run.computation(entry), strict=True)
    peak = run.peaks[entry]
    arrays = tuple(sorted(map(_live_array, peak.buffers), key=lambda array: -array.bytes))
    leaves = [leaf for _, leaf in run.laid_out(entry.root, entry.root.shape).leaves()]
    return MemoryUsage(
        sum(shape_bytes(run.laid_out(p, p.shape)) for p in entry.parameters),
        sum(map(shape_bytes, leaves)),
        sum(shape_bytes(leaf) for number, leaf in enumerate(leaves) if number in donated),
        sum(array.bytes for array in arrays),
        sum(array.padding for array in arrays),
        peak.at,
        arrays,
        tuple((i.name, size) for i, size in timeline if not _is_free(i)),
    )


def _live_array(buffer: _Buffer) -> LiveArray:
    i = buffer.instruction
    name = i.name + "".join(f"{{{n}}}" for n in buffer.index)
    padding = buffer.bytes - buffer.shape.unpadded_byte_size
    shape = buffer.shape.to_string(layout=bool(padding))
    return LiveArray(name, i.opcode, op_name(i), source_line(i), shape, buffer.bytes, max(padding, 0))


def _is_free(i: HloInstruction) -> bool:
    """Return true if ``i`` allocates no array: an alias, tuple, get-tuple-element or parameter."""
    return i.operation.aliases_operand or isinstance(i.operation, Tuple | GetTupleElement | Parameter)


def _donated(original: HloModule, entry: HloComputation) -> frozenset[int]:
    """Return the indices of those leaves of the result that are written to buffers of donated arguments.

    A donated argument without an alias donates its buffer to the first result of the same shape that has
    none, as in XLA. ``original`` is the program before partitioning, ``entry`` the entry of the partitioned
    one.
    """
    outputs = list(entry.root.shape.leaves())
    number_of = {index: number for number, (index, _) in enumerate(outputs)}
    aliases = original.config.aliases
    donated = {number_of[index] for index in aliases if index in number_of}
    aliased = {(alias.parameter_number, tuple(alias.parameter_index)) for alias in aliases.values()}
    for parameter, index in original.config.buffer_donors:
        if (parameter, tuple(index)) in aliased or parameter >= len(entry.parameters):
            continue
        shape = dict(entry.parameters[parameter].shape.leaves()).get(tuple(index))
        match = next((n for n, (_, s) in enumerate(outputs) if n not in donated and s == shape), None)
        if match is not None:
            donated.add(match)
    return frozenset(donated)


@dataclass(slots=True)
class _Schedule:
    """Simulates the allocation of buffers over the schedule of a partitioned program.

    Attributes:
        global_shapes: the global shapes of values, with layouts.
        donated: the indices of the leaves of the entry's result that are written to buffers of arguments.
        peaks: the peak of each computation that was simulated.
    """

    global_shapes: Mapping[HloInstruction, Shape]
    donated: frozenset[int]
    peaks: dict[HloComputation, _Peak] = field(default_factory=dict[HloComputation, "_Peak"])

    def computation(self, computation: HloComputation, in_place: bool = False) -> list[int]:
        """Simulate the memory use of a computation; return the live bytes at each instruction.

        Also records the peak of the computation in ``self.peaks``.

        Args:
            computation: the computation; unless it is the entry, its caller owns the parameters.
            in_place: True if results may be written to the buffers of parameters.
        """
        order = computation.post_order()
        is_entry = _is_entry(computation)
        buffers_of: dict[HloInstruction, tuple[_Buffer, ...]] = {}
        defined: list[list[_Buffer]] = []
        for position, i in enumerate(order):
            buffers_of[i], new = self._buffers(i, buffers_of)
            defined.append(new)
            for operand in () if _is_free(i) else i.operands:
                for buffer in buffers_of[operand]:
                    buffer.last = position
        for number, buffer in enumerate(buffers_of[computation.root]):
            buffer.last = len(order)
            if is_entry and number in self.donated:
                buffer.bytes = 0
        for position, i in enumerate(order):
            if isinstance(i.operation, Parameter):
                for buffer in defined[position]:
                    buffer.is_read_only = not in_place
                    buffer.bytes = buffer.bytes if is_entry else 0
        for position, i in enumerate(order):
            self._reuse_operand(position, i, buffers_of, defined[position])
        return self._simulated(computation, order, defined)

    def _buffers(
        self, i: HloInstruction, buffers_of: Mapping[HloInstruction, tuple[_Buffer, ...]]
    ) -> tuple[tuple[_Buffer, ...], list[_Buffer]]:
        """Return the buffers of the leaves of the value of ``i``, and a list of those that ``i`` allocates.

        The others belong to operands. ``buffers_of`` has the buffers of the operands.
        """
        operation = i.operation
        if isinstance(operation, Tuple):
            return tuple(buffer for o in i.operands for buffer in buffers_of[o]), []
        if isinstance(operation, GetTupleElement):
            (operand,) = i.operands
            before = sum(map(_leaf_count, operand.shape.tuple_shapes[: operation.index]))
            return buffers_of[operand][before : before + _leaf_count(i.shape)], []
        if operation.aliases_operand and i.operands and not isinstance(operation, While):
            return buffers_of[i.operands[0]], []
        leaves = [(n, tuple(index), leaf) for n, (index, leaf) in enumerate(i.shape.leaves())]
        if isinstance(operation, While):  # copies operands that its body changes but must not overwrite
            initial = buffers_of[i.operands[0]]
            copied = {n for n in _changed_leaves(i) if _is_constant(initial[n])}
            copies = {n: self._buffer(i, index, leaf) for n, index, leaf in leaves if n in copied}
            return tuple(copies.get(n, buffer) for n, buffer in enumerate(initial)), list(copies.values())
        new = [self._buffer(i, index, leaf) for _, index, leaf in leaves]
        return tuple(new), new

    def _buffer(self, i: HloInstruction, index: tuple[int, ...], leaf: Shape) -> _Buffer:
        laid_out = self.laid_out(i, leaf, index)
        return _Buffer(
            i, index, laid_out, shape_bytes(laid_out), is_read_only=isinstance(i.operation, Constant)
        )

    def laid_out(self, i: HloInstruction, leaf: Shape, index: tuple[int, ...] = ()) -> Shape:
        """Return the shape of a tile, with the layout of the global array if that layout is tiled.

        Args:
            i: the instruction of the partitioned program.
            leaf: the shape of its value, or the part of it at ``index``: a tile, or a tuple of tiles.
            index: the shape index of ``leaf`` in the value.
        """
        if leaf.is_tuple:
            parts = enumerate(leaf.tuple_shapes)
            return Shape.tuple_([self.laid_out(i, part, (*index, n)) for n, part in parts])
        shape = self.global_shapes.get(i, leaf)
        for n in index if shape.is_tuple else ():
            shape = shape.tuple_shapes[n]
        if not leaf.is_array or not shape.is_array or shape.layout is None or not shape.layout.tiles:
            return leaf
        return leaf.with_layout(shape.layout) if shape.rank == leaf.rank else leaf

    def _reuse_operand(
        self,
        position: int,
        i: HloInstruction,
        buffers_of: Mapping[HloInstruction, tuple[_Buffer, ...]],
        defined: Sequence[_Buffer],
    ) -> None:
        """Let an elementwise operation or a dynamic-update-slice write its result over an operand.

        The operand must have the size of the result, and ``i`` must be its last use.

        Args:
            position: the position of the instruction in the schedule.
            i: the instruction.
            buffers_of: the buffers of all values.
            defined: the buffers that the instruction allocates.
        """
        is_update = isinstance(i.operation, DynamicUpdateSlice)
        if len(defined) != 1 or not (i.operation.elementwise or is_update):
            return
        (new,) = defined
        for operand in i.operands[:1] if is_update else i.operands:
            for old in buffers_of[operand]:
                same = shape_bytes(old.shape) == new.bytes > 0
                if same and old.last == position and not old.is_read_only:
                    if old.bytes:
                        old.last = position - 1
                    else:
                        new.bytes = 0  # the caller's memory
                    return

    def _simulated(
        self, computation: HloComputation, order: Sequence[HloInstruction], defined: Sequence[list[_Buffer]]
    ) -> list[int]:
        """Sum up the live buffers at each instruction of a computation; return their bytes.

        Also records the peak of the computation in ``self.peaks``. ``order`` is the schedule; ``defined`` has
        the buffers that each of its instructions allocates.
        """
        buffers = [buffer for new in defined for buffer in new if buffer.bytes]
        position_of = {i: position for position, i in enumerate(order)}
        starts = {
            b: -1 if isinstance(b.instruction.operation, Parameter | Constant) else position_of[b.instruction]
            for b in buffers
        }
        change = [0] * (len(order) + 2)
        for buffer in buffers:
            end = len(order) if starts[buffer] < 0 else max(buffer.last, starts[buffer])
            change[max(starts[buffer], 0)] += buffer.bytes
            change[end + 1] -= buffer.bytes
        timeline: list[int] = []
        total, best = 0, (-1, 0, list[_Buffer]())
        for position, i in enumerate(order):
            total += change[position]
            result = sum(b.bytes for b in defined[position] if starts.get(b, -1) == position)
            called = self._peak_of_calls(i)
            inside = sum(buffer.bytes for buffer in called)
            replaces = not isinstance(i.operation, While)  # the result is allocated after the call
            timeline.append(total + max(0, inside - result if replaces else inside))
            if timeline[-1] > best[0]:
                best = (timeline[-1], position, called if inside > result or not replaces else [])
        _, at, called = best
        replaced = bool(called) and not isinstance(order[at].operation, While)
        live: list[_Buffer] = []
        for buffer in buffers:
            start, end = starts[buffer], max(buffer.last, starts[buffer])
            if start < 0 or (start <= at <= end and not (replaced and start == at)):
                live.append(buffer)
        self.peaks[computation] = _Peak(order[at].name, [*live, *called])
        return timeline

    def _peak_of_calls(self, i: HloInstruction) -> list[_Buffer]:
        """Return the buffers that are live at the peak of the computation that an instruction calls.

        If it calls several, the one with the highest peak counts. Returns an empty list if it calls none.
        """
        peaks: list[list[_Buffer]] = [[]]
        if i.operation.calls_program:
            for called in i.called_computations:
                if called not in self.peaks:
                    self.computation(called, isinstance(i.operation, While))
                peaks.append(self.peaks[called].buffers)
        return max(peaks, key=lambda buffers: sum(buffer.bytes for buffer in buffers))


def _is_constant(buffer: _Buffer) -> bool:
    """Return true if a buffer holds an entry argument or a constant, and so must not be overwritten."""
    i = buffer.instruction
    return isinstance(i.operation, Constant) or (
        isinstance(i.operation, Parameter) and i.parent is not None and _is_entry(i.parent)
    )


def _changed_leaves(loop: HloInstruction) -> set[int]:
    """Return the indices of the leaves of a while loop's state that its body may change.

    The body passes on all other leaves unchanged.
    """
    (body, _) = loop.called_computations
    root, (parameter,) = body.root, body.parameters
    leaves = range(_leaf_count(loop.shape))
    if not isinstance(root.operation, Tuple) or any(s.is_tuple for s in loop.shape.tuple_shapes):
        return set(leaves)
    return {
        n
        for n, value in enumerate(root.operands)
        if not (
            isinstance(value.operation, GetTupleElement)
            and value.operation.index == n
            and value.operands[0] is parameter
        )
    }


def _is_entry(computation: HloComputation) -> bool:
    return computation.module is not None and computation is computation.module.entry


def _leaf_count(shape: Shape) -> int:
    return sum(1 for _ in shape.leaves())
