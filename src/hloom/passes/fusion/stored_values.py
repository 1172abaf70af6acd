"""Values that a later loop recomputes from others that it reads, so that no loop stores them.

A loop of a forward pass that computes a GELU stores what the gradient reads: its argument, a square, a tanh.
Memory takes longer than arithmetic: the loop of the gradient reads the argument alone, and computes the rest
again. Used by `fusion`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.passes.fusion.group import Group
from hloom.plan.evaluations import element_work

LEAST_BYTES: Final = 1 << 19
"""Fewest bytes of a value that is recomputed: smaller ones stay in the caches until they are read."""
MOST_WORK: Final = 10
"""Most work of recomputing an element, in vector instructions, for each array that is not stored."""


def recompute_stored_values(
    groups: Sequence[Group],
    consumers: Callable[[HloInstruction], Sequence[Group]],
    position: Mapping[HloInstruction, int],
) -> None:
    """Move results of loops into the loops that read them.

    Args:
        groups: the groups of a computation.
        consumers: returns the groups that use a value.
        position: the numbers of the instructions in the order of execution.
    """
    for group in groups:
        if group.is_plain and len(group.outputs) > 1:
            _move_results(group, consumers, position)


def _move_results(
    group: Group,
    consumers: Callable[[HloInstruction], Sequence[Group]],
    position: Mapping[HloInstruction, int],
) -> None:
    moved, work = 0, 0
    for value in sorted(group.outputs, key=position.__getitem__):
        readers = [g for g in consumers(value) if g is not group]
        chains = [_recomputed(value, group, reader) for reader in readers]
        if value.is_root or value.shape.byte_size < LEAST_BYTES or not chains:
            continue
        paid = work + sum(element_work(i) for chain in chains for i in chain or ())
        if any(chain is None for chain in chains) or paid > MOST_WORK * (moved + 1):
            continue
        moved, work = moved + 1, paid
        for reader, chain in zip(readers, chains, strict=True):
            reader.members.update(dict.fromkeys(chain or ()))
        group.outputs.remove(value)
    _drop_unused(group)


def _recomputed(value: HloInstruction, group: Group, reader: Group) -> list[HloInstruction] | None:
    """Return the members of a group that a loop has to compute again for a value; None if it cannot.

    It can if it has the same iterations, and each of them reads what these members are computed from.
    """
    if not reader.is_plain or reader.dimensions != group.dimensions:
        return None
    if not reader.evaluations.requests(value, reader.index) or reader.reads(value) > 1:
        return None
    chain: dict[HloInstruction, None] = {}
    waiting = [value]
    while waiting:
        i = waiting.pop()
        if i in chain or i in reader.members:
            continue
        if i is not value and reader.evaluations.requests(i, reader.index):
            continue
        is_local = i in group.members and (i.operation.elementwise or not _is_array(i.operands))
        if not is_local or i.has_control_dependencies:
            return None
        chain[i] = None
        waiting.extend(i.operands)
    return list(chain)


def _is_array(operands: Sequence[HloInstruction]) -> bool:
    return any(o.shape.rank for o in operands)


def _drop_unused(group: Group) -> None:
    """Remove the members whose users have all left."""
    waiting = [m for m in group.members if m not in group.outputs]
    while waiting:
        m = waiting.pop()
        if m in group.members and m not in group.outputs and not any(u in group.members for u in m.users):
            del group.members[m]
            waiting.extend(m.operands)
