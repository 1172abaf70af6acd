"""Messages between processes: both sides agree on them, and they bring what every participant needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloom.cpu.runtime import exchange_plan
from hloom.cpu.runtime.exchange_plan import Message, Segment, plan_exchange
from hloom.ir.instruction import HloInstruction
from tests.evaluation import parse
from tests.runtime.collective_programs import permute, single

OPCODES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-broadcast")
Sources: TypeAlias = "Sequence[int | None]"
SIZES = (3, 3000, 30000)


def collective(opcode: str, count: int, rows: int, dimension: int = 0) -> HloInstruction:
    """Return a collective of ``count`` devices."""
    numbers = ",".join(map(str, range(count)))
    rows = count * -(-rows // count)
    text = single(opcode, "f32", f"replica_groups={{{{{numbers}}}}}", count, rows, dimension)
    return parse(text.replace("[3,16]", f"[3,{16 * count}]")).entry.root


def sizes_of(i: HloInstruction) -> list[int]:
    return [i.operands[0].shape.element_count * 4, i.shape.element_count * 4]


class Process:
    """The arrays of one process: its own participants' are known, the others' are received."""

    def __init__(self, i: HloInstruction, owners: Sequence[int], rank: int, sources: Sources) -> None:
        self.plan = plan_exchange(i, owners, rank, sources)
        self.arrays = {
            (position, array): np.full(size, -1, np.int64) if owner != rank else known(position, array, size)
            for position, owner in enumerate(owners)
            for array, size in enumerate(sizes_of(i))
        }

    def messages(self, step: int, number: int, rank: int, sends: bool) -> list[Message]:
        """Return the messages of a round to or from a process."""
        rounds = self.plan.steps[step]
        chosen = rounds[number] if number < len(rounds) else ()
        return [m for m in chosen if m.rank == rank and m.sends == sends]

    def bytes_of(self, segment: Segment) -> list[np.ndarray]:
        """Return views of the rows of a segment."""
        array = self.arrays[segment.position, segment.array]
        starts = [segment.offset + row * segment.stride for row in range(segment.rows)]
        return [array[start : start + segment.size] for start in starts]


def known(position: int, array: int, size: int) -> np.ndarray:
    return np.arange(size, dtype=np.int64) * 1000 + position * 10 + array


def exchanged(i: HloInstruction, owners: Sequence[int], sources: Sources) -> list[Process]:
    """Return the processes after all messages."""
    processes = [Process(i, owners, rank, sources) for rank in range(max(owners) + 1)]
    for step in (0, 1):
        for number in range(max(len(p.plan.steps[step]) for p in processes)):
            under_way = [
                (receiver, segment, np.concatenate(sender.bytes_of(segment)))
                for here, sender in enumerate(processes)
                for there, receiver in enumerate(processes)
                for segment in sent(sender, receiver, here, there, step, number)
            ]
            for receiver, segment, values in under_way:
                for row, target in enumerate(receiver.bytes_of(segment)):
                    target[...] = values[row * segment.size : (row + 1) * segment.size]
    return processes


def sent(sender: Process, receiver: Process, here: int, there: int, step: int, number: int) -> list[Segment]:
    """Return the segments of a round that one process sends to another, which expects the same messages."""
    messages = sender.messages(step, number, there, sends=True)
    expected = receiver.messages(step, number, here, sends=False)
    assert [(m.segments, m.in_place) for m in messages] == [(m.segments, m.in_place) for m in expected]
    most = exchange_plan.MOST_BYTES + exchange_plan.HEADER_BYTES
    assert all(0 < m.bytes <= most for m in messages)
    return [segment for m in messages for segment in m.segments]


def check(i: HloInstruction, owners: Sequence[int], sources: Sources = ()) -> None:
    count = len(owners)
    for rank, process in enumerate(exchanged(i, owners, sources)):
        for source in range(count):
            for target in (n for n, owner in enumerate(owners) if owner == rank):
                if sources and sources[target] != source:
                    continue
                for step in (1, 2):
                    for segment in exchange_plan._needed(i, count, step, source, target):
                        if not segment.bytes:
                            continue
                        array = segment.array
                        whole = known(source, array, sizes_of(i)[array])
                        rows = [segment.offset + row * segment.stride for row in range(segment.rows)]
                        wanted = np.concatenate([whole[row : row + segment.size] for row in rows])
                        assert np.array_equal(np.concatenate(process.bytes_of(segment)), wanted)


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("opcode", OPCODES)
def test_every_participant_gets_what_it_needs(opcode: str, rows: int) -> None:
    check(collective(opcode, 5, rows), [0, 2, 1, 0, 2])


@pytest.mark.parametrize("opcode", ["all-gather", "reduce-scatter", "all-to-all"])
def test_columns(opcode: str) -> None:
    check(collective(opcode, 4, 3, dimension=1), [0, 0, 1, 1])


@settings(max_examples=15)
@given(st.lists(st.integers(0, 20), min_size=21, max_size=30), st.sampled_from(OPCODES))
def test_many_processes(owners: list[int], opcode: str) -> None:
    owners[:21] = range(21)
    i = collective(opcode, len(owners), 1)
    check(i, owners)


@pytest.mark.parametrize("rows", [6, 40000])
def test_a_permutation_sends_to_the_target_of_each_pair(rows: int) -> None:
    i = parse(permute("f32", "{{0,1},{1,2},{2,0}}", rows=rows)).entry.root
    check(i, [0, 1, 1, 2], sources=[2, 0, 1, None])
    segments = [m.segments for m in plan_exchange(i, [0, 1, 1, 2], 2, [2, 0, 1, None]).messages]
    assert segments == []


def test_little_data_of_many_processes_takes_few_messages() -> None:
    i = collective("all-reduce", 21, 1)
    assert [len(plan_exchange(i, list(range(21)), 4).messages)] == [2 * 5]


def test_large_messages_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_plan, "MOST_BYTES", 1 << 17)
    check(collective("all-gather", 2, 30000), [0, 1])
    monkeypatch.setattr(exchange_plan, "IN_PLACE_BYTES", 1 << 20)
    monkeypatch.setattr(exchange_plan, "MOST_BYTES", 1 << 12)
    check(collective("all-to-all", 2, 200, dimension=1), [0, 1])
