"""Memory of a device over the schedule of a partitioned program, and what lives at the peak.

Values are computed in post-order, as the backends compute programs that communicate. A value lives from the
instruction that makes it to the last one that reads it, through tuples, their elements, barriers and other
aliases; arguments and constants live all the time; results from their making on, in the memory of a donated
argument if the program says so. A loop changes what it carries in place. An elementwise operation and an
update of a slice take over the memory of an operand of the same size that nothing reads any more. Fusion is
not modelled: a backend that fuses needs less. Bytes include the padding of tiled layouts, where the program
states layouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hloom.analysis.origin import op_name, source_line
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.traits import shape_bytes
from hloom.operations.control_flow import While
from hloom.operations.dynamic_slicing import DynamicUpdateSlice
from hloom.operations.structure import Constant, GetTupleElement, Parameter, Tuple
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.partitioner import Partitioned


@dataclass(frozen=True, slots=True)
class LiveArray:
    """An array that lives at the peak.

    Attributes:
        name, opcode: of the instruction that made it; ``%p{1}`` is an element of a tuple.
        op_name, source: the framework's operation and source line; "" if not recorded.
        shape: of the tile.
        bytes: in memory, padding included.
        padding: those that hold no element.
    """

    name: str
    opcode: str
    op_name: str
    source: str
    shape: str
    bytes: int
    padding: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a device, in bytes.

    Attributes:
        argument_bytes, result_bytes: of the entry's parameters and of its result.
        donated_bytes: results that take the memory of arguments.
        peak_bytes: the most that lives at the same time, arguments and results included.
        padding_bytes: those of the peak that are padding of tiled layouts.
        at: the instruction during which the peak is reached.
        peak: what lives then, the largest first.
        timeline: for each instruction of the entry that computes: its name, and what lives while it runs.
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
    """Memory of a leaf of a value.

    Attributes:
        instruction, index: what made it.
        shape: the shape of the tile, with the layout of the whole array.
        bytes: its size; 0 if it is memory of another buffer, or of the caller.
        last: the place of the last instruction that reads it.
        is_kept: no result may take it over.
    """

    instruction: HloInstruction
    index: tuple[int, ...]
    shape: Shape
    bytes: int
    last: int = -1
    is_kept: bool = False


@dataclass(frozen=True, slots=True)
class _Peak:
    """The peak of a computation: the instruction that runs, and what lives."""

    at: str
    buffers: list[_Buffer]


def memory_of(partitioned: Partitioned, given: HloModule) -> Memory:
    """Return the memory of a device for a partitioned program, and for the one that it was made of."""
    entry = partitioned.module.entry
    donated = _donated(given, entry)
    run = _Run(partitioned.whole, donated)
    timeline = zip(entry.post_order(), run.computation(entry), strict=True)
    peak = run.peaks[entry]
    arrays = tuple(sorted(map(_live_array, peak.buffers), key=lambda array: -array.bytes))
    leaves = [leaf for _, leaf in run.laid_out(entry.root, entry.root.shape).leaves()]
    return Memory(
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
    """Return true for instructions that make no array of their own."""
    return i.operation.aliases_operand or isinstance(i.operation, Tuple | GetTupleElement | Parameter)


def _donated(given: HloModule, entry: HloComputation) -> frozenset[int]:
    """Return the numbers of the result's leaves that take the memory of donated arguments.

    Donors without an output of their own take outputs of the same tile, in order, as XLA lets them.
    """
    outputs = list(entry.root.shape.leaves())
    index = {place: number for number, (place, _) in enumerate(outputs)}
    found = {index[place] for place in given.config.aliases if place in index}
    taken = {
        (alias.parameter_number, tuple(alias.parameter_index)) for alias in given.config.aliases.values()
    }
    for parameter, place in given.config.buffer_donors:
        if (parameter, tuple(place)) in taken or parameter >= len(entry.parameters):
            continue
        shape = dict(entry.parameters[parameter].shape.leaves()).get(tuple(place))
        match = next((n for n, (_, s) in enumerate(outputs) if n not in found and s == shape), None)
        if match is not None:
            found.add(match)
    return frozenset(found)


@dataclass(slots=True)
class _Run:
    """The values of a program over its schedule.

    Attributes:
        whole: the shapes of the whole values, whose layouts count.
        donated: the leaves of the entry's result that take no memory of their own.
        peaks: for each computation the instruction and the buffers at its peak.
    """

    whole: Mapping[HloInstruction, Shape]
    donated: frozenset[int]
    peaks: dict[HloComputation, _Peak] = field(default_factory=dict[HloComputation, "_Peak"])

    def computation(self, computation: HloComputation, in_place: bool = False) -> list[int]:
        """Find the peak of a computation; return the bytes that live in each step.

        Args:
            computation: the computation; the memory of its parameters is the caller's, except for the entry.
            in_place: results may take over the memory of parameters.
        """
        order = computation.post_order()
        is_entry = _is_entry(computation)
        held: dict[HloInstruction, tuple[_Buffer, ...]] = {}
        made: list[list[_Buffer]] = []
        for place, i in enumerate(order):
            held[i], own = self._held(i, held)
            made.append(own)
            for operand in () if _is_free(i) else i.operands:
                for buffer in held[operand]:
                    buffer.last = place
        for number, buffer in enumerate(held[computation.root]):
            buffer.last = len(order)
            if is_entry and number in self.donated:
                buffer.bytes = 0
        for place, i in enumerate(order):
            if isinstance(i.operation, Parameter):
                for buffer in made[place]:
                    buffer.is_kept = not in_place
                    buffer.bytes = buffer.bytes if is_entry else 0
        for place, i in enumerate(order):
            self._take_over(place, i, held, made[place])
        return self._simulated(computation, order, made)

    def _held(
        self, i: HloInstruction, held: Mapping[HloInstruction, tuple[_Buffer, ...]]
    ) -> tuple[tuple[_Buffer, ...], list[_Buffer]]:
        """Return the buffers of a value's leaves, and those that are new."""
        operation = i.operation
        if isinstance(operation, Tuple):
            return tuple(buffer for o in i.operands for buffer in held[o]), []
        if isinstance(operation, GetTupleElement):
            (operand,) = i.operands
            before = sum(map(_leaf_count, operand.shape.tuple_shapes[: operation.index]))
            return held[operand][before : before + _leaf_count(i.shape)], []
        carried: list[_Buffer] = []
        if isinstance(operation, While):
            changed = _changed(i)
            carried = [b for n, b in enumerate(held[i.operands[0]]) if not (n in changed and _is_kept(b))]
            if len(carried) == _leaf_count(i.shape):
                return held[i.operands[0]], []
        elif operation.aliases_operand and i.operands:
            return held[i.operands[0]], []
        leaves = enumerate(i.shape.leaves())
        own = {n: self._buffer(i, tuple(index), leaf) for n, (index, leaf) in leaves}
        if isinstance(operation, While):  # copies what it changes but may not change in place
            given = held[i.operands[0]]
            own = {n: buffer for n, buffer in own.items() if given[n] not in carried}
            return tuple(own.get(n, buffer) for n, buffer in enumerate(given)), list(own.values())
        return tuple(own.values()), list(own.values())

    def _buffer(self, i: HloInstruction, index: tuple[int, ...], leaf: Shape) -> _Buffer:
        laid_out = self.laid_out(i, leaf, index)
        return _Buffer(i, index, laid_out, shape_bytes(laid_out), is_kept=isinstance(i.operation, Constant))

    def laid_out(self, i: HloInstruction, leaf: Shape, index: tuple[int, ...] = ()) -> Shape:
        """Return a tile, or a tuple of them, with the layouts of the whole arrays."""
        if leaf.is_tuple:
            parts = enumerate(leaf.tuple_shapes)
            return Shape.tuple_([self.laid_out(i, part, (*index, n)) for n, part in parts])
        whole = self.whole.get(i, leaf)
        for n in index if whole.is_tuple else ():
            whole = whole.tuple_shapes[n]
        if not leaf.is_array or not whole.is_array or whole.layout is None or not whole.layout.tiles:
            return leaf
        return leaf.with_layout(whole.layout) if whole.rank == leaf.rank else leaf

    def _take_over(
        self,
        place: int,
        i: HloInstruction,
        held: Mapping[HloInstruction, tuple[_Buffer, ...]],
        made: Sequence[_Buffer],
    ) -> None:
        """Let the result of an elementwise operation or an update take over memory that is not read later."""
        is_update = isinstance(i.operation, DynamicUpdateSlice)
        if len(made) != 1 or not (i.operation.elementwise or is_update):
            return
        (new,) = made
        for operand in i.operands[:1] if is_update else i.operands:
            for old in held[operand]:
                same = shape_bytes(old.shape) == new.bytes > 0
                if same and old.last == place and not old.is_kept:
                    if old.bytes:
                        old.last = place - 1
                    else:
                        new.bytes = 0  # the caller's memory
                    return

    def _simulated(
        self, computation: HloComputation, order: Sequence[HloInstruction], made: Sequence[list[_Buffer]]
    ) -> list[int]:
        """Return the bytes that live in each step, and note the peak."""
        buffers = [buffer for own in made for buffer in own if buffer.bytes]
        place_of = {i: place for place, i in enumerate(order)}
        starts = {
            b: -1 if isinstance(b.instruction.operation, Parameter | Constant) else place_of[b.instruction]
            for b in buffers
        }
        change = [0] * (len(order) + 2)
        for buffer in buffers:
            end = len(order) if starts[buffer] < 0 else max(buffer.last, starts[buffer])
            change[max(starts[buffer], 0)] += buffer.bytes
            change[end + 1] -= buffer.bytes
        timeline: list[int] = []
        total, best = 0, (-1, 0, list[_Buffer]())
        for place, i in enumerate(order):
            total += change[place]
            own = sum(b.bytes for b in made[place] if starts.get(b, -1) == place)
            below = self._inside(i)
            inside = sum(buffer.bytes for buffer in below)
            replaces = not isinstance(i.operation, While)  # the result comes after what makes it
            timeline.append(total + max(0, inside - own if replaces else inside))
            if timeline[-1] > best[0]:
                best = (timeline[-1], place, below if inside > own or not replaces else [])
        _, at, below = best
        replaced = bool(below) and not isinstance(order[at].operation, While)
        live: list[_Buffer] = []
        for buffer in buffers:
            start, end = starts[buffer], max(buffer.last, starts[buffer])
            if start < 0 or (start <= at <= end and not (replaced and start == at)):
                live.append(buffer)
        self.peaks[computation] = _Peak(order[at].name, [*live, *below])
        return timeline

    def _inside(self, i: HloInstruction) -> list[_Buffer]:
        """Return the buffers at the highest peak of the computations that an instruction runs."""
        found: list[list[_Buffer]] = [[]]
        if i.operation.calls_program:
            for called in i.called_computations:
                if called not in self.peaks:
                    self.computation(called, isinstance(i.operation, While))
                found.append(self.peaks[called].buffers)
        return max(found, key=lambda buffers: sum(buffer.bytes for buffer in buffers))


def _is_kept(buffer: _Buffer) -> bool:
    """Return true for memory that may not change: of arguments of the entry, of constants."""
    i = buffer.instruction
    return isinstance(i.operation, Constant) or (
        isinstance(i.operation, Parameter) and i.parent is not None and _is_entry(i.parent)
    )


def _changed(loop: HloInstruction) -> set[int]:
    """Return the leaves that a loop changes: all but those that its body hands on as they are."""
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
