"""Copies at control-flow joins replaced by exchanges of addresses.

A loop that carries two arrays and returns them in the other order, or an old and a new one, would copy
arrays at the end of every iteration. Instead, the addresses of these buffers are variables of the program,
which the join permutes: ``a, b = b, a``. A chain of copies ``f → a → b`` becomes the cycle
``f, a, b = b, f, a``, as the old value of b is dead.

The buffers that exchange addresses form a group. Each of them may have the memory of any other at a time that
is known at run time only, so the group is one block of memory that is live while any of them is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from hloom.buffers.buffers import ALIGNMENT, Buffer, BufferCopy
from hloom.ir.instruction import HloInstruction

LEAST: Final = 1 << 10
"""Minimum size in bytes of buffers that exchange addresses: copies of smaller ones cost as little."""

Join: TypeAlias = tuple[HloInstruction, int]
"""A loop or conditional, and the number of the branch (0 for the body of a loop)."""
Rotation: TypeAlias = list[tuple[Buffer, Buffer]]
"""Pairs (source, target): after the join, the target has the address that the source had before."""


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
        """Give each member its part of the memory, the one that it has at the beginning of the program."""
        stride = self.memory.size // len(self.members)
        for number, member in enumerate(self.members):
            member.offset = self.memory.offset + number * stride


def rotate(copies: Mapping[Join, list[BufferCopy]], times: Mapping[Join, int]) -> dict[Join, Rotation]:
    """Replace copies at joins by rotations where that is possible; remove these copies from the lists.

    Args:
        copies: the parallel copies of each join, whose sources and targets have been merged where they can.
        times: the time of each join, at which the sources are read; the targets are written at the next.
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
    """Return the groups of buffers that exchange addresses, also in several rotations."""
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
    """Return for each source the target that takes over its address; chains and cycles without forks.

    The address of a source may go elsewhere only if the source is given another one, or is dead.
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
    """Return the pairs of a rotation: the end of each chain goes to its beginning."""
    rotation = list(following.items())
    targets = set(following.values())
    for first in following:
        if first not in targets:
            last = first
            while last in following:
                last = following[last]
            rotation.append((last, first))
    return rotation
