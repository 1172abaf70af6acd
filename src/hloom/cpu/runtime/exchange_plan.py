"""Messages between the processes of a collective.

A participant receives parts of the others' arrays: whole operands in an all-gather, its rows in a
reduce-scatter. A large all-reduce has two steps, as within a process: a reduce-scatter, then an all-gather of
the reduced parts.

Processes send directly to each other. Small all-gathers of many processes run in log2(n) rounds instead: in
round k each process sends all the arrays that it holds to the process 2^k ranks before it. Large contiguous
segments are sent from, and received into, the arrays; other segments are packed into a buffer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from hloom.buffers.buffers import leaf_bytes, leaves
from hloom.ir.instruction import HloInstruction
from hloom.operations.collectives import AllGather, AllReduce, ReduceScatter
from hloom.operations.exchanges import AllToAll
from hloom.records import dataclass
from hloom.shape.shape import Shape

SHARED_BYTES: Final = 1 << 16
"""Result size from which an all-reduce has two steps."""
IN_PLACE_BYTES: Final = 1 << 16
"""Size from which a contiguous segment is sent in place, as its own message."""
MOST_BYTES: Final = 1 << 30
"""Largest message: MPI counts bytes in 32 bits."""
HEADER_BYTES: Final = 8
"""Header of a packed message: the signature id of the operands."""
MOST_PEERS: Final = 8
"""Number of other processes up to which messages are direct, whatever their size."""
LITTLE_BYTES: Final = 1 << 12
"""Size of a process's operands up to which an all-gather runs in rounds."""
_ALIGNMENT: Final = 128


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a participant's array to send to another process: rows of equal size at equal distances.

    Attributes:
        position: the position of the participant in its replica group.
        array: the index of the array in the list of the participant's operands, then its results.
        offset: the bytes before the first row.
        size: the bytes of a row.
        stride: the bytes from the start of one row to the next.
        rows: the number of rows.
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
    """A message from or to another process.

    Attributes:
        rank: the MPI rank of the other process.
        sends: whether this process is the sender.
        segments: the parts of arrays that it carries, in the same order on both sides.
        in_place: whether its only segment is sent from, or received into, the array itself; otherwise
            segments are packed into a buffer.
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
    """The messages that one process sends and receives in a collective, and the layout of their memory.

    Attributes:
        steps: for each of two steps of the collective, its rounds of messages; a round begins when the round
            before it is complete. Only a large all-reduce needs the second step; else it has no rounds.
        stand_ins: the positions, in the replica group, of the participants that other processes run.
        places: where arrays are received: (position of the participant, index of the array) to the offset in
            the exchange's memory.
        buffers: for each message, in the order of `messages`, the offset of its buffer in the exchange's
            memory; None for a message in place.
        size: the bytes of the exchange's memory.
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
    """Plan the messages that one process exchanges with others to run a collective.

    Args:
        i: the collective, of an opcode in `NATIVE_COLLECTIVES`.
        owners: the rank of each participant's process, in the order of the group.
        rank: the rank of this process.
        sources: for a collective-permute, the position of each participant's source; None for a participant
            that receives zeros.
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
    """Return whether an instruction is a large all-reduce, which runs as reduce-scatter and all-gather."""
    return i.opcode == "all-reduce" and sum(leaf_bytes(s) for _, s in leaves(i.shape)) >= SHARED_BYTES


def part_size(elements: int, count: int) -> int:
    """Return the number of elements per part if ``elements`` are divided into ``count`` parts.

    It is rounded up to a multiple of 64, so that the last parts may be smaller or empty.
    """
    return (-(-elements // count) + 63) & -64


def rows_of(shape: Shape, dimension: int) -> tuple[int, int]:
    """Return the product of a shape's sizes before ``dimension``, and that of the sizes from it on."""
    sizes = shape.dimensions
    return math.prod(sizes[:dimension]), math.prod(sizes[dimension:])


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _array_bytes(i: HloInstruction) -> list[int]:
    return [leaf_bytes(o.shape) for o in i.operands] + [leaf_bytes(s) for _, s in leaves(i.shape)]


# -- segments


def _needed(i: HloInstruction, count: int, step: int, source: int, target: int) -> Iterator[Segment]:
    """Yield the parts of participant ``source``'s arrays that participant ``target`` receives in a step.

    ``count``: the number of participants; ``step``: 1, or 2 for the all-gather in a large all-reduce. Some
    segments may be empty.
    """
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
    """Return whether a collective is to send all operands to all ``count`` participants, and they are small.

    An all-gather is, and an all-reduce that is not divided into parts. For such collectives, many processes
    pass operands on in rounds instead of sending them directly.
    """
    gathers = isinstance(i.operation, (AllGather, AllReduce)) and not reduces_in_parts(i)
    return gathers and sum(leaf_bytes(o.shape) for o in i.operands) * count <= LITTLE_BYTES * MOST_PEERS


def _passed_on(
    ranks: Sequence[int], rank: int, blocks: dict[int, list[Segment]]
) -> Iterator[tuple[Message, ...]]:
    """Yield the rounds of messages by which process ``rank`` gathers the segments of all n ``ranks``.

    In each of log2(n) rounds, every process passes on the segments that it has (Bruck's algorithm).
    ``blocks``: by rank, the segments that each process has at first.
    """
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
    """Yield messages that carry segments: first those that pack small segments, then one per large segment.

    Small segments are packed into a buffer behind a header; a large one is sent from, or received into, the
    array that it is part of. ``rank``: the other process; ``sends``: whether this process sends the messages.
    """
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
    """Yield pieces of a segment that each fit in a message: parts of one long row, or several short rows."""
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
