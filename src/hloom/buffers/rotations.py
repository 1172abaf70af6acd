"""Rotations: exchanges of addresses that replace copies at control-flow joins.

A loop that swaps two carried arrays, or returns an old and a new one, would copy arrays in every iteration.
Instead, the addresses of the buffers are variables that the join permutes: ``a, b = b, a``. A chain of copies
``f → a → b`` becomes the cycle ``f, a, b = b, f, a``, since the old value of b is dead.

Buffers that exchange addresses form a group. Which member has which memory is known at run time only, so that
the group is one block of memory, live while any member is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final, TypeAlias

from hloom.buffers.buffers import ALIGNMENT, Buffer, BufferCopy
from hloom.ir.instruction import HloInstruction
from hloom.records import dataclass

LEAST: Final = 1 << 10
"""Minimum size in bytes of buffers that exchange addresses; copies of smaller ones are as cheap."""

Join: TypeAlias = tuple[HloInstruction, int]
"""The end of a loop's body (number 0) or of a branch: the instruction, and the number of the branch."""
Rotation: TypeAlias = list[tuple[Buffer, Buffer]]
"""Pairs (source, target): after the join the target has the address of the source before it."""


@dataclass(slots=True)
class RotationGroup:
    """Buffers of one size that exchange addresses, and the memory for all of them."""

    members: list[Buffer]
    memory: Buffer = field(init=False)

    def __post_init__(self) -> None:
        stride = -(-self.members[0].size // ALIGNMENT) * ALIGNMENT
        self.memory = Buffer(stride * len(self.members))
        for member in self.members:
            for first, last in member.spans:
                self.memory.hold(first, last)
        for member in self.members:
            member.spans, member.rotates = self.memory.spans, True

    def lay_out(self) -> None:
        """Set the offset of each member at the start of the program."""
        stride = self.memory.size // len(self.members)
        for number, member in enumerate(self.members):
            member.offset = self.memory.offset + number * stride


def rotate(copies: Mapping[Join, list[BufferCopy]], times: Mapping[Join, int]) -> dict[Join, Rotation]:
    """Replace copies at joins by rotations where possible; remove these copies from the lists.

    Args:
        copies: the parallel copies of each join, after the merging of buffers.
        times: the time of each join: sources are read at it, targets written at the next half step.
    """
    rotations: dict[Join, Rotation] = {}
    for join, parallel in copies.items():
        following = _following(parallel, times[join] + 1)
        if not following:
            continue
        rotation = rotations[join] = _closed(following)
        moved = dict(rotation)
        parallel[:] = [
            BufferCopy(moved.get(c.source.find(), c.source), c.target, c.index)
            for c in parallel
            if following.get(c.source.find()) is not c.target.find()
        ]
    return rotations


def groups(rotations: Mapping[Join, Rotation]) -> list[RotationGroup]:
    """Return the groups of buffers that exchange addresses in any rotation."""
    group_of: dict[Buffer, list[Buffer]] = {}
    for rotation in rotations.values():
        for source, target in rotation:
            a, b = group_of.setdefault(source, [source]), group_of.setdefault(target, [target])
            if a is b:
                continue
            small, large = sorted((a, b), key=len)
            large += small
            group_of.update(dict.fromkeys(small, large))
    return [RotationGroup(members) for members in {id(g): g for g in group_of.values()}.values()]


def _following(copies: Sequence[BufferCopy], written: int) -> dict[Buffer, Buffer]:
    """Return the target that takes over the address of each source: chains and cycles without forks.

    A source gives up its address only if it gets another one, or is dead at the time ``written``.
    """
    pairs = [(c.source.find(), c.target.find()) for c in copies]
    pairs = [(s, t) for s, t in pairs if s is not t and s.kind == t.kind == "temp" and s.size >= LEAST]
    sources = {s for s, _ in pairs}
    following: dict[Buffer, Buffer] = {}
    for source, target in pairs:
        if source not in following or (target in sources and following[source] not in sources):
            following[source] = target
    before = {target: source for source, target in following.items()}
    waiting = [s for s in following if s not in before and s.is_live(written)]
    while waiting:
        target = following.pop(waiting.pop())
        if target in following and target.is_live(written):
            waiting.append(target)
    return following


def _closed(following: Mapping[Buffer, Buffer]) -> Rotation:
    """Return the rotation that closes each chain: its last buffer gives its address to the first."""
    rotation = list(following.items())
    targets = set(following.values())
    for first in following:
        if first not in targets:
            last = first
            while last in following:
                last = following[last]
            rotation.append((last, first))
    return rotation
