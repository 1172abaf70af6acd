"""Structural differences of two programs.

Instructions are matched by equal subgraphs, then by name, by operation and shape, by position in the graph,
and by opcode. Matched instructions that differ in more than their names are changed; unmatched ones are
added or removed.
"""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterator
from dataclasses import field
from functools import partial
from typing import Any, Final

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.records import dataclass

_HEADER: Final = (
    "entry_layout",
    "is_scheduled",
    "aliases",
    "buffer_donors",
    "replica_count",
    "num_partitions",
)


@dataclass
class ComputationDifference:
    """The differences of two computations.

    Attributes:
        left, right: the computations; left is None for an added one, right for a removed one.
        pairs: the matched left instruction of each right one.
        changed: matched pairs (left, right) that differ in more than their names.
        removed, added: unmatched instructions of the left, and of the right computation.
    """

    left: HloComputation | None
    right: HloComputation | None
    pairs: dict[HloInstruction, HloInstruction] = field(default_factory=dict[HloInstruction, HloInstruction])
    changed: list[tuple[HloInstruction, HloInstruction]] = field(
        default_factory=list[tuple[HloInstruction, HloInstruction]]
    )
    removed: list[HloInstruction] = field(default_factory=list[HloInstruction])
    added: list[HloInstruction] = field(default_factory=list[HloInstruction])

    @property
    def is_equal(self) -> bool:
        return (
            self.left is not None
            and self.right is not None
            and not (self.changed or self.removed or self.added)
        )


def differences(left: HloModule, right: HloModule) -> list[ComputationDifference]:
    """Return a difference for each pair of computations, also equal ones, the entries last."""
    return _Comparison(left, right).all()


def header_differences(left: HloModule, right: HloModule) -> Iterator[tuple[str, str, str]]:
    """Yield (name, left, right) for each property of the modules' headers that differs."""
    for name in _HEADER:
        ours, theirs = getattr(left.config, name), getattr(right.config, name)
        if ours != theirs:
            yield name.replace("_", " "), str(ours), str(theirs)


class _Comparison:
    """Matches the computations and instructions of two modules."""

    def __init__(self, left: HloModule, right: HloModule) -> None:
        self.left, self.right = left, right
        self.hashes: dict[HloComputation, int] = {}
        self.partners: dict[HloComputation, HloComputation] = {}

    def all(self) -> list[ComputationDifference]:
        order = self.right.post_order()
        self.match_computations()
        compared = [self.compare(self.partners.get(c), c) for c in order]
        matched = set(self.partners.values())
        compared += [ComputationDifference(c, None) for c in self.left.post_order() if c not in matched]
        return compared

    def match_computations(self) -> None:
        """Match right computations with left ones: the entries, then by content, then by name."""
        self.partners[self.right.entry] = self.left.entry
        free = [c for c in self.left.post_order() if c is not self.left.entry]
        unmatched = [c for c in self.right.post_order() if c is not self.right.entry]
        by_name = {c.name: c for c in free}
        by_content: dict[int, list[HloComputation]] = {}
        for computation in free:
            by_content.setdefault(self.content(computation), []).append(computation)
        for computation in unmatched:
            named = by_name.get(computation.name)
            equal = by_content.get(self.content(computation), [])
            partner = named if named in equal else next((c for c in equal if c in free), named)
            if partner is not None and partner in free:
                self.partners[computation] = partner
                free.remove(partner)

    def content(self, computation: HloComputation) -> int:
        """Return a hash of a computation that does not depend on names."""
        value = self.hashes.get(computation)
        if value is None:
            self.hashes[computation] = 0
            value = self.hashes[computation] = hash(self.graph_hashes(computation)[computation.root])
        return value

    def graph_hashes(self, computation: HloComputation) -> dict[HloInstruction, int]:
        """Return a hash of each instruction with its transitive operands."""
        hashes: dict[HloInstruction, int] = {}
        for instruction in computation.post_order():
            operands = tuple(hashes[operand] for operand in instruction.operands)
            hashes[instruction] = hash((self.own(instruction), operands))
        return hashes

    def own(self, instruction: HloInstruction) -> Hashable:
        """Return a key of an instruction's operation, shape and called computations."""
        called = tuple(self.content(c) for c in instruction.called_computations)
        return (_operation_key(instruction), instruction.shape, called)

    def compare(self, left: HloComputation | None, right: HloComputation) -> ComputationDifference:
        difference = ComputationDifference(left, right)
        if left is None:
            return difference
        self.match_instructions(left, right, difference.pairs)
        for instruction in right.post_order():
            partner = difference.pairs.get(instruction)
            if partner is None:
                difference.added.append(instruction)
            elif not self.same(partner, instruction, difference.pairs):
                difference.changed.append((partner, instruction))
        matched = set(difference.pairs.values())
        difference.removed = [i for i in left.post_order() if i not in matched]
        return difference

    def same(
        self, left: HloInstruction, right: HloInstruction, pairs: dict[HloInstruction, HloInstruction]
    ) -> bool:
        """Return whether matched instructions have equal operations and matched operands and callees."""
        return (
            _operation_key(left) == _operation_key(right)
            and left.shape == right.shape
            and left.is_root == right.is_root
            and [pairs.get(o) for o in right.operands] == left.operands
            and [self.partners.get(c) for c in right.called_computations] == list(left.called_computations)
        )

    def match_instructions(
        self, left: HloComputation, right: HloComputation, pairs: dict[HloInstruction, HloInstruction]
    ) -> None:
        ours, theirs = left.post_order(), right.post_order()
        hashes, other_hashes = self.graph_hashes(left), self.graph_hashes(right)
        _pair_in_order(ours, theirs, hashes.__getitem__, other_hashes.__getitem__, pairs)
        _pair_in_order(ours, theirs, _name_key, _name_key, pairs)
        _pair_in_order(ours, theirs, self.own, self.own, pairs)
        _pair_in_order(ours, theirs, _place_key, partial(_place_key, pairs=pairs), pairs)
        _pair_in_order(ours, theirs, _kind_key, _kind_key, pairs)


def _operation_key(instruction: HloInstruction) -> Hashable:
    # operations without attributes have equal hashes, so the opcode is part of the key
    return instruction.opcode, instruction.function_key


def _name_key(instruction: HloInstruction) -> Hashable:
    return instruction.opcode, instruction.name


def _place_key(
    instruction: HloInstruction, pairs: dict[HloInstruction, HloInstruction] | None = None
) -> Hashable:
    """Return a key of shape and operands; right operands are replaced by the matched left ones."""
    operands = instruction.operands if pairs is None else [pairs.get(o, o) for o in instruction.operands]
    return (instruction.shape, *map(id, operands)) if operands else (instruction.opcode, instruction.shape)


def _kind_key(instruction: HloInstruction) -> Hashable:
    return instruction.opcode


def _pair_in_order(
    left: list[HloInstruction],
    right: list[HloInstruction],
    left_key: Any,
    right_key: Any,
    pairs: dict[HloInstruction, HloInstruction],
) -> None:
    """Match unmatched instructions of equal keys, first in a common order, then in any."""
    matched = set(pairs.values())
    ours = [i for i in left if i not in matched]
    theirs = [i for i in right if i not in pairs]
    numbers: dict[Hashable, int] = {}
    a = [numbers.setdefault(left_key(i), len(numbers)) for i in ours]
    b = [numbers.setdefault(right_key(i), len(numbers)) for i in theirs]
    for block in difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks():
        pairs.update(
            zip(theirs[block.b : block.b + block.size], ours[block.a : block.a + block.size], strict=True)
        )
    free: dict[int, list[HloInstruction]] = {}
    matched = set(pairs.values())
    for instruction, key in zip(ours, a, strict=True):
        if instruction not in matched:
            free.setdefault(key, []).append(instruction)
    for instruction, key in zip(theirs, b, strict=True):
        if instruction not in pairs and free.get(key):
            pairs[instruction] = free[key].pop(0)
