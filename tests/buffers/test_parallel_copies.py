"""Copies that happen at once: in their order, sources have what they had before."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hloom.buffers.buffers import Buffer
from hloom.buffers.parallel_copies import in_order
from hloom.cpu.native import compile_or_load
from hloom.ir.module import HloModule


def arena(offset: int, size: int = 4) -> Buffer:
    return Buffer(size, "temp", offset=offset)


def run(copies: list[tuple[Buffer, Buffer]]) -> list[tuple[Buffer, Buffer]]:
    """Check an order against copies that are really made at once; returns it."""
    memory = list(range(200))
    others: dict[int, list[int]] = {}

    def read(b: Buffer) -> list[int]:
        if b.kind == "temp":
            return memory[b.offset : b.offset + b.size]
        return others.setdefault(id(b), [1000 + len(others)] * b.size)

    wanted = [(t, list(read(s))) for s, t in copies if s is not t]
    order = in_order(copies, 200)
    for source, target in order:
        values = list(read(source))
        if target.kind == "temp":
            memory[target.offset : target.offset + target.size] = values
        else:
            others[id(target)] = values
    for target, values in wanted:
        assert read(target) == values
    return order


def test_copies_that_have_nothing_to_do_with_each_other_stay() -> None:
    copies = [(arena(4 * n), arena(100 + 4 * n)) for n in range(9)]
    assert run(copies) == copies


def test_a_chain_begins_with_its_end() -> None:
    a, b, c = arena(0), arena(4), arena(8)
    assert run([(a, b), (b, c)]) == [(b, c), (a, b)]


def test_an_exchange_puts_one_aside() -> None:
    a, b = arena(0), arena(4)
    order = run([(a, b), (b, a)])
    assert [t.kind for _, t in order].count("stack") == 1


def test_copies_that_wait_for_an_exchange_of_others_end() -> None:
    """The first copy waits for the second, that for the exchange of two sources, of which it is no part."""
    first, second, small, large = arena(30), arena(20), arena(0), arena(8, 8)
    copies = [(first, second), (second, arena(12)), (small, arena(8)), (large, arena(0, 8))]
    assert len(run(copies)) <= 6


def test_a_target_that_overlaps_its_own_source() -> None:
    order = run([(arena(0), arena(2))])
    assert [t.kind for _, t in order] == ["stack", "temp"]


@pytest.mark.parametrize("seed", range(200))
def test_random_copies(seed: int) -> None:
    """Disjoint sources, each copied up to three times, to disjoint targets that overlap sources anyhow."""
    draw = random.Random(seed)

    def pieces() -> list[Buffer]:
        found, place = [], draw.randint(0, 3)
        while place < 40:
            size = draw.choice([2, 4])
            found.append(arena(place, size))
            place += size + draw.choice([0, 0, 1, 3])
        return found

    sources, targets = pieces(), pieces()
    shared = {(s.offset, s.size): s for s in sources}
    targets = [shared.get((t.offset, t.size), t) for t in targets]
    targets += [Buffer(draw.choice([2, 4]), "result") for _ in range(3)]
    draw.shuffle(targets)
    copies = []
    for target in targets:
        fitting = [s for s in sources if s.size == target.size]
        if fitting:
            copies.append((draw.choice(fitting), target))
    run(copies)


def test_ten_thousand_copies_take_no_time_to_speak_of() -> None:
    """The order is found by looking up, not by comparing all with all: that would be 10**8 comparisons."""
    copies = [(arena(4 * n), arena(4 * n + 4)) for n in range(10_000)]
    shared = {b.offset: b for pair in copies for b in pair}
    order = in_order([(shared[s.offset], shared[t.offset]) for s, t in copies], 200)
    assert [s.offset for s, _ in order] == [4 * n for n in reversed(range(10_000))]


def test_large_values_are_saved_behind_the_arena_and_small_ones_on_the_stack() -> None:
    small, other = Buffer(256, "result"), Buffer(256, "result")
    large, another = Buffer(1000, "result"), Buffer(1000, "result")
    order = in_order([(small, other), (other, small), (large, another), (another, large)], 640)
    saved = [target for _, target in order if target.kind != "result"]
    assert [(b.kind, b.size, b.offset) for b in saved] == [("stack", 256, 0), ("temp", 1000, 640)]


TURN = """
HloModule turn
body {
  s = (s32[], f32[N], f32[N], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[N] get-tuple-element(s), index=1
  b = f32[N] get-tuple-element(s), index=2
  d = f32[8] get-tuple-element(s), index=3
  turned = f32[8] reverse(d), dimensions={0}
  one = s32[] constant(1)
  n = s32[] add(i, one)
  ROOT r = (s32[], f32[N], f32[N], f32[8]) tuple(n, b, a, turned)
}
condition {
  s = (s32[], f32[N], f32[N], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  most = s32[] constant(99)
  ROOT less = pred[] compare(i, most), direction=LT
}
ENTRY e {
  x = f32[N] parameter(0)
  y = f32[N] parameter(1)
  z = f32[8] parameter(2)
  zero = s32[] constant(0)
  init = (s32[], f32[N], f32[N], f32[8]) tuple(zero, x, y, z)
  w = (s32[], f32[N], f32[N], f32[8]) while(init), condition=condition, body=body
  p = f32[N] get-tuple-element(w), index=1
  q = f32[N] get-tuple-element(w), index=2
  d = f32[8] get-tuple-element(w), index=3
  ROOT r = (f32[N], f32[N], f32[8]) tuple(p, q, d)
}
"""


def test_a_loop_may_turn_arrays_that_are_larger_than_the_stack() -> None:
    count = 5 << 20
    program = compile_or_load(HloModule.from_text(TURN.replace("N]", f"{count}]")))
    x, y = np.full(count, 1, np.float32), np.full(count, 2, np.float32)
    first, second, _ = program.caller.run([x, y, np.arange(8, dtype=np.float32)])
    assert (first == 2).all() and (second == 1).all() and program.loaded.memory.temp >= 4 * count
