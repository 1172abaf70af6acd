"""Messages between the participants of a collective in different processes.

A participant needs parts of the others' arrays: all of an operand to gather it, its own rows of an operand
to reduce and scatter it. A large all-reduce has two steps, as within a process: each participant gets its
part of all operands and reduces it, then gets the reduced parts of the others.

Processes send directly to each other, or, if there are many of them and little to gather, in rounds: in round
k each one passes on what it has to the process 2^k before it, so that every one has everything after log2(n)
rounds. Large contiguous segments are sent from, and received into, the arrays themselves; the others through
memory of their message.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hloom.buffers.buffers import leaf_bytes, leaves
from hloom.ir.instruction import HloInstruction
from hloom.operations.collectives import AllGather, AllReduce, ReduceScatter
from hloom.operations.exchanges import AllToAll
from hloom.shape.shape import Shape

SHARED_BYTES: Final = 1 << 16
"""Result size of an all-reduce from which each participant reduces one part and copies the other parts."""
IN_PLACE_BYTES: Final = 1 << 16
"""Size from which a contiguous segment is a message of its own."""
MOST_BYTES: Final = 1 << 30
"""Largest message: MPI counts in 32 bits."""
HEADER_BYTES: Final = 8
"""The form of the operands, at the start of a message through memory of its own."""
MOST_PEERS: Final = 8
"""Other processes to which each one sends directly, however little it has to send."""
LITTLE_BYTES: Final = 1 << 12
"""Operands of a process that are gathered in rounds."""
_ALIGNMENT: Final = 128


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of equal distance in an array of a participant.

    Attributes:
        position: the participant's, in its group.
        array: the number of the array, operands before results.
        offset: of the first row, in bytes.
        size: of a row, in bytes.
        stride: bytes from a row to the next.
        rows: their number.
    """

    position: int
    array: int
    offset: int
    size: int
    stride: int = 0
    rows: int = 1

    @property
    def bytes(self) -> int:
        return self.size * self.rows


@dataclass(frozen=True, slots=True)
class Message:
    """Segments that a process sends or receives at once.

    Attributes:
        rank: the other process.
        sends: whether this process sends it.
        segments: their order is the same on both sides.
        in_place: a single segment, sent from or received into the array itself.
    """

    rank: int
    sends: bool
    segments: tuple[Segment, ...]
    in_place: bool

    @property
    def bytes(self) -> int:
        return sum(s.bytes for s in self.segments) + (0 if self.in_place else HEADER_BYTES)


@dataclass(frozen=True, slots=True)
class ExchangePlan:
    """The messages of one process for a collective.

    Attributes:
        steps: for both steps the rounds, each of which begins when the one before it is complete.
        stand_ins: positions of the participants in other processes.
        places: for each array of theirs that is received the offset in the exchange's memory.
        buffers: for each message, in order, the offset of its memory; none if it is in place.
        size: bytes of the exchange's memory.
    """

    steps: tuple[tuple[tuple[Message, ...], ...], ...]
    stand_ins: tuple[int, ...]
    places: dict[tuple[int, int], int]
    buffers: tuple[int | None, ...]
    size: int

    @property
    def messages(self) -> list[Message]:
        return [message for rounds in self.steps for each in rounds for message in each]


def plan_exchange(
    i: HloInstruction, owners: Sequence[int], rank: int, sources: Sequence[int | None] = ()
) -> ExchangePlan:
    """Return the messages of a process.

    Args:
        i: the collective, of an opcode in `NATIVE_COLLECTIVES`.
        owners: the process of each participant, in the order of the group.
        rank: the process.
        sources: for a permutation, the participant whose operand each one gets; None for zeros.
    """
    pairs = frozenset((source, target) for target, source in enumerate(sources) if source is not None)
    steps = tuple([tuple(_rounds(i, owners, rank, step, pairs)) for step in (1, 2)])
    sizes = _array_bytes(i)
    messages = [message for rounds in steps for each in rounds for message in each]
    received = dict.fromkeys((s.position, s.array) for m in messages if not m.sends for s in m.segments)
    size = 0
    places: dict[tuple[int, int], int] = {}
    for position, array in received:
        places[position, array] = size
        size += _aligned(sizes[array])
    buffers: list[int | None] = []
    for message in messages:
        buffers.append(None if message.in_place else size)
        size += 0 if message.in_place else _aligned(message.bytes)
    stand_ins = tuple([n for n, owner in enumerate(owners) if owner != rank])
    return ExchangePlan(steps, stand_ins, places, tuple(buffers), size)


def reduces_in_parts(i: HloInstruction) -> bool:
    """Return whether an all-reduce has two steps."""
    return i.opcode == "all-reduce" and sum(leaf_bytes(s) for _, s in leaves(i.shape)) >= SHARED_BYTES


def part_size(elements: int, count: int) -> int:
    """Return the elements of each of ``count`` parts of an array; the last ones may be shorter or empty."""
    return (-(-elements // count) + 63) & -64


def rows_of(shape: Shape, dimension: int) -> tuple[int, int]:
    """Return the numbers of elements of the dimensions before one, and from it on."""
    sizes = shape.dimensions
    return math.prod(sizes[:dimension]), math.prod(sizes[dimension:])


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _array_bytes(i: HloInstruction) -> list[int]:
    return [leaf_bytes(o.shape) for o in i.operands] + [leaf_bytes(s) for _, s in leaves(i.shape)]


# -- who needs what


def _needed(i: HloInstruction, count: int, step: int, source: int, target: int) -> Iterator[Segment]:
    """Yield what one participant needs of another one's arrays; some segments may be empty."""
    operands = [o.shape for o in i.operands]
    match i.operation:
        case _ if reduces_in_parts(i):
            part, first = (target, 0) if step == 1 else (source, len(operands))
            for n, shape in enumerate(operands):
                each, width = part_size(shape.element_count, count), _element_bytes(shape)
                begin, end = (min(k * each, shape.element_count) * width for k in (part, part + 1))
                yield Segment(source, first + n, begin, end - begin)
        case _ if step == 2:
            pass
        case ReduceScatter(scatter_dimensions=(d,)):
            results = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
            for n, shape in enumerate(results):
                outer, row = rows_of(shape, d)
                size = row * _element_bytes(shape)
                yield Segment(source, n, target * size, size, count * size, outer)
        case AllToAll(split_dimension=(d,)) if i.shape.is_array:
            outer, row = rows_of(i.shape, d)
            row_bytes = row * _element_bytes(i.shape)
            yield Segment(source, 0, target * (row_bytes // count), row_bytes // count, row_bytes, outer)
        case AllToAll():
            yield Segment(source, target, 0, leaf_bytes(operands[target]))
        case _ if i.opcode == "collective-broadcast" and source > 0:
            pass
        case _:
            for n, shape in enumerate(operands):
                yield Segment(source, n, 0, leaf_bytes(shape))


def _element_bytes(shape: Shape) -> int:
    return leaf_bytes(shape) // max(1, shape.element_count)


# -- messages


def _rounds(
    i: HloInstruction, owners: Sequence[int], rank: int, step: int, permuted: frozenset[tuple[int, int]]
) -> Iterator[tuple[Message, ...]]:
    ranks = sorted(set(owners))
    positions = {r: [n for n, owner in enumerate(owners) if owner == r] for r in ranks}

    def needed(source: int, target: int) -> list[Segment]:
        pairs = ((a, b) for a in positions[source] for b in positions[target])
        if i.opcode == "collective-permute":
            pairs = (pair for pair in pairs if pair in permuted)
        segments = (s for a, b in pairs for s in _needed(i, len(owners), step, a, b) if s.bytes)
        return list(dict.fromkeys(segments))

    if len(ranks) - 1 > MOST_PEERS and _gathers_little(i, len(owners)):
        yield from _passed_on(ranks, rank, {r: needed(r, rank) for r in ranks})
        return
    messages: list[Message] = []
    for other in ranks:
        if other != rank:
            messages += _messages(other, False, needed(other, rank))
            messages += _messages(other, True, needed(rank, other))
    if messages:
        yield tuple(messages)


def _gathers_little(i: HloInstruction, count: int) -> bool:
    """Return whether everyone needs all operands of all others, and these are small."""
    gathers = isinstance(i.operation, (AllGather, AllReduce)) and not reduces_in_parts(i)
    return gathers and sum(leaf_bytes(o.shape) for o in i.operands) * count <= LITTLE_BYTES * MOST_PEERS


def _passed_on(
    ranks: Sequence[int], rank: int, blocks: dict[int, list[Segment]]
) -> Iterator[tuple[Message, ...]]:
    """Yield the rounds in which every process gets the blocks of all."""
    count, here, distance = len(ranks), ranks.index(rank), 1
    while distance < count:
        passed = min(distance, count - distance)

        def of(first: int, number: int = passed) -> list[Segment]:
            return [s for n in range(number) for s in blocks[ranks[(first + n) % count]]]

        before, after = ranks[(here - distance) % count], ranks[(here + distance) % count]
        received = _messages(after, False, of(here + distance))
        yield (*received, *_messages(before, True, of(here)))
        distance *= 2


def _messages(rank: int, sends: bool, segments: Sequence[Segment]) -> Iterator[Message]:
    """Yield the messages for segments; the first one has the form of the operands."""
    if not segments:
        return
    pieces = [piece for segment in segments for piece in _pieces(segment)]
    collected: list[Segment] = []
    for piece in pieces:
        if piece.size < IN_PLACE_BYTES:
            if sum(s.bytes for s in collected) + piece.bytes > MOST_BYTES:
                yield Message(rank, sends, tuple(collected), in_place=False)
                collected = []
            collected.append(piece)
    if collected or pieces[0].size >= IN_PLACE_BYTES:
        yield Message(rank, sends, tuple(collected), in_place=False)
    for piece in pieces:
        if piece.size >= IN_PLACE_BYTES:
            yield Message(rank, sends, (piece,), in_place=True)


def _pieces(segment: Segment) -> Iterator[Segment]:
    """Divide a segment into contiguous ones, or, if its rows are short, into ones of many rows."""
    s = segment
    if s.size < IN_PLACE_BYTES:
        most = MOST_BYTES // (2 * s.size)
        for row in range(0, s.rows, most):
            yield replace(s, offset=s.offset + row * s.stride, rows=min(most, s.rows - row))
        return
    for row in range(s.rows):
        for start in range(0, s.size, MOST_BYTES):
            size = min(MOST_BYTES, s.size - start)
            yield Segment(s.position, s.array, s.offset + row * s.stride + start, size)
