"""Offsets of temporaries: the lowest free gap, no overlap of live values, steps that grow as the program."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from hloom.buffers import arena
from hloom.buffers.arena import assign_offsets
from hloom.buffers.buffers import ALIGNMENT, Buffer, merge


def drawn(random: Random, count: int) -> list[Buffer]:
    """Return buffers of a few sizes, most of them short-lived, some with several spans."""
    buffers: list[Buffer] = []
    for number in range(count):
        buffer = Buffer(random.choice((1, 64, 100, 256, 4096)))
        for _ in range(random.choice((1, 1, 1, 3))):
            first = random.randrange(2 * count)
            buffer.hold(first, first + random.choice((0, 3, 8, count)))
        buffer.number = number
        buffers.append(buffer)
    return buffers


def lowest_offset(buffer: Buffer, placed: list[Buffer]) -> int:
    """Return the lowest aligned offset at which a buffer disturbs no other one, by trying all."""
    others = [other for other in placed if other.overlaps(buffer)]
    candidates = sorted({0, *(-(-(o.offset + o.size) // ALIGNMENT) * ALIGNMENT for o in others)})
    return next(
        start
        for start in candidates
        if all(start + buffer.size <= o.offset or o.offset + o.size <= start for o in others)
    )


@pytest.mark.parametrize("seed", range(20))
def test_each_buffer_takes_the_lowest_gap(seed: int):
    buffers = drawn(Random(seed), 60)
    total = assign_offsets(buffers)
    placed: list[Buffer] = []
    for buffer in sorted(buffers, key=lambda b: (-b.size, b.spans)):
        assert buffer.offset == lowest_offset(buffer, placed)
        placed.append(buffer)
    assert total == -(-max(b.offset + b.size for b in buffers) // ALIGNMENT) * ALIGNMENT


def test_large_buffers_begin_with_a_page():
    buffers = [Buffer(size) for size in (arena.LARGE, 64, arena.LARGE + 1, 100, 3 * arena.LARGE + 64)]
    for buffer in buffers:
        buffer.hold(0, 1)
    assign_offsets(buffers)
    assert all(buffer.offset % arena.PAGE == 0 for buffer in buffers if buffer.size >= arena.LARGE)


def test_no_buffer_needs_no_memory():
    assert assign_offsets([]) == 0


@pytest.mark.parametrize("seed", range(10))
def test_spans_stay_disjoint_and_cover_what_was_held(seed: int):
    random = Random(seed)
    a, b = Buffer(64), Buffer(64)
    held: dict[int, set[int]] = {id(a): set(), id(b): set()}
    for _ in range(30):
        buffer, first, length = random.choice((a, b)), random.randrange(200), random.randrange(6)
        buffer.hold(first, first + length)
        held[id(buffer)] |= set(range(first, first + length + 1))
    assert a.overlaps(b) == bool(held[id(a)] & held[id(b)])
    times = held[id(a)] | held[id(b)]
    if not merge(a, b):
        a, times = b, held[id(b)]
    spans = a.find().spans
    assert {t for first, last in spans for t in range(first, last + 1)} == times
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(spans))


def test_steps_grow_with_the_number_of_buffers(monkeypatch: pytest.MonkeyPatch):
    """A value that lives long beside each short-lived one: as in a derivative, half of them overlap."""
    steps = 0
    obstacle = arena._Ranges.obstacle

    def counted(self: arena._Ranges, start: int, size: int) -> int:
        nonlocal steps
        steps += 1
        return obstacle(self, start, size)

    monkeypatch.setattr(arena._Ranges, "obstacle", counted)

    def steps_of(count: int) -> int:
        nonlocal steps
        steps = 0
        buffers = [Buffer(64) for _ in range(2 * count)]
        for n in range(count):
            buffers[2 * n].hold(4 * n, 8 * count - 4 * n)
            buffers[2 * n + 1].hold(4 * n, 4 * n + 3)
        assign_offsets(buffers)
        return steps

    assert steps_of(2000) < 2.5 * steps_of(1000)
