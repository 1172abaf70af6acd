"""Updates: instructions that write into the memory of a value, and the reads that must come before them.

A dynamic-update-slice, a scatter, a loop that carries an array, and a conditional whose branches do any of
these can work in the memory of an operand if nothing reads the operand's old value later. So the other
readers have to run first, wherever dependences allow it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from hloom.analysis.values import start_numbers
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.control_flow import Conditional, Fusion, While
from hloom.operations.conversion import BitcastConvert
from hloom.operations.dynamic_slicing import DynamicSlice
from hloom.operations.movement import Slice, slices_of_one
from hloom.operations.structure import (
    AfterAll,
    Constant,
    GetTupleElement,
    Parameter,
    Tuple,
    parameter_number,
)
from hloom.shape.element_type import PRED
from hloom.shape.shape import Shape

ShapeIndex: TypeAlias = tuple[int, ...]
Leaf: TypeAlias = tuple[HloInstruction, ShapeIndex]
"""An array in the result of an instruction."""

SMALL: Final = 256
"""Maximum size in bytes of arrays whose updates may copy them: they do not change the order."""
_LEAST: Final = 4
"""A read that is materialized before the update has at most a quarter of the updated elements."""
_NEAREST: Final = 64
"""Maximum number of instructions that are searched for those on which an update depends."""


def is_alias(i: HloInstruction) -> bool:
    """Return whether an instruction's result has the bytes of its first operand."""
    if isinstance(i.operation, BitcastConvert):
        before, after = i.operands[0].shape.element_type, i.shape.element_type
        return before.bits % 8 == 0 and after.bits % 8 == 0 and after is not PRED
    return i.operation.aliases_operand


def origin(i: HloInstruction, index: ShapeIndex = ()) -> Leaf:
    """Return the leaf that first had the memory of a leaf, before tuples, tuple elements and aliases."""
    while True:
        match i.operation:
            case GetTupleElement(index=number):
                i, index = i.operands[0], (number, *index)
            case Tuple() if index:
                i, index = i.operands[index[0]], index[1:]
            case _ if is_alias(i):
                i = i.operands[0]
            case _:
                return i, index


def is_handed_on(body: HloComputation, index: ShapeIndex) -> bool:
    """Return whether the body of a loop returns a leaf of its state unchanged."""
    leaf, leaf_index = origin(body.root, index)
    return isinstance(leaf.operation, Parameter) and leaf_index == index


class Updates:
    """The updates in a module.

    Attributes:
        changed: the leaves of the parameters that a computation updates, by computation: the number of the
            parameter and the index in it.
    """

    def __init__(self, module: HloModule) -> None:
        given_away = {(a.parameter_number, tuple(a.parameter_index)) for a in module.config.aliases.values()}
        self.kept = {
            (p, index)
            for p in module.entry.parameters
            for index, _ in p.shape.leaves()
            if (parameter_number(p), index) not in given_away
        }
        """The leaves of arguments that the caller does not give away."""
        self.changed: dict[HloComputation, set[ShapeIndex]] = {}
        for computation in module.post_order():
            leaves = (leaf for i in computation.instructions for leaf in self.of(i))
            self.changed[computation] = {
                (parameter_number(i), *index) for i, index in leaves if isinstance(i.operation, Parameter)
            }

    def of(self, i: HloInstruction) -> Iterator[Leaf]:
        """Yield the origins of the leaves that an instruction updates."""
        match i.operation:
            case While():
                body = i.called_computations[0]
                for index, _ in i.shape.leaves():
                    if not is_handed_on(body, index):
                        yield origin(i.operands[0], index)
            case Conditional():
                for number, branch in enumerate(i.called_computations, 1):
                    for _, *index in self.changed[branch]:
                        yield origin(i.operands[number], tuple(index))
            case _:
                for _, operand in updated_operands(i):
                    yield origin(operand)

    def last(self, order: Sequence[HloInstruction]) -> dict[Leaf, HloInstruction]:
        """Return the last update of every leaf, in an order of the instructions of a computation.

        A value that a loop carries is also updated by the elementwise instruction that computes the next one
        from it. Constants, arguments that the caller keeps and small arrays are left out.
        """
        updates = {leaf: i for i in order for leaf in self.of(i)}
        updates |= _carried_updates(order)
        return {
            leaf: i
            for leaf, i in updates.items()
            if not isinstance(leaf[0].operation, Constant) and leaf not in self.kept and size(leaf) > SMALL
        }


def updated_operands(i: HloInstruction) -> list[tuple[int, HloInstruction]]:
    """Return the operands of which an update, or a fusion that ends in one, replaces a part, by result."""
    if isinstance(i.operation, Fusion):
        changed = updated_operands(i.called_computations[0].root)
        return [
            (number, i.operands[parameter_number(operand)])
            for number, operand in changed
            if isinstance(operand.operation, Parameter)
        ]
    if not i.operation.updates_operand:
        return []
    return list(enumerate(i.operands[: len(i.shape.tuple_shapes) if i.shape.is_tuple else 1]))


def reads_replaced(part: HloInstruction, update: HloInstruction, members: Container[HloInstruction]) -> bool:
    """Return whether a kernel that updates an array in place may read an instruction in the array.

    It is the part that a dynamic-update-slice replaces, and only elementwise operations among the kernel's
    members use it, so that each element is read for the one that replaces it.
    """
    array, value, *starts = update.operands
    if part.operands[:1] != [array] or part.shape.dimensions != value.shape.dimensions:
        return False
    match part.operation:
        case DynamicSlice():
            is_replaced = part.operands[1:] == starts
        case Slice(slice=ranges):
            room = [n - size for n, size in zip(array.shape.dimensions, value.shape.dimensions, strict=True)]
            numbers = start_numbers(starts, room)
            is_replaced = [(r.start, r.stride) for r in ranges] == [(start, 1) for start in numbers or ()]
        case _:
            is_replaced = False
    waiting = [part] if is_replaced else []
    seen = {part, update}
    while waiting:
        users = [user for user in waiting.pop().users if user in members and user not in seen]
        if not all(u.operation.elementwise and u.shape.dimensions == part.shape.dimensions for u in users):
            return False
        seen.update(users)
        waiting += users
    return is_replaced


def _carried_updates(order: Sequence[HloInstruction]) -> dict[Leaf, HloInstruction]:
    root = order[-1].parent.root if order and order[-1].parent is not None else None
    if root is None or not isinstance(root.operation, Tuple):
        return {}
    updates: dict[Leaf, HloInstruction] = {}
    for number in range(len(root.operands)):
        following, index = origin(root, (number,))
        if index or not (following.operation.elementwise or isinstance(following.operation, Fusion)):
            continue
        for operand in following.operands:
            leaf = origin(operand)
            same_size = operand.shape.element_count == following.shape.element_count
            if leaf[1] == (number,) and isinstance(leaf[0].operation, Parameter) and same_size:
                updates[leaf] = following
    return updates


def readers(order: Iterable[HloInstruction]) -> dict[Leaf, dict[HloInstruction, None]]:
    """Return the instructions that read each leaf, with those that read it as an element of a tuple."""
    users: dict[Leaf, dict[HloInstruction, None]] = {}
    for i in order:
        if is_alias(i) or isinstance(i.operation, Tuple | GetTupleElement | AfterAll):
            continue
        for operand in i.operands:
            for index, _ in operand.shape.leaves():
                users.setdefault(origin(operand, index), {})[i] = None
    return users


def early_reads(order: Sequence[HloInstruction], updates: Updates) -> set[HloInstruction]:
    """Return the small reads of updated values that must not be delayed until their users run.

    A slice of the old value that is used after the update has to be computed before it, so that the update
    can be made in place.
    """
    last = updates.last(order)
    if not last:
        return set()
    early: set[HloInstruction] = set()
    read = readers(order)
    for leaf, update in last.items():
        others = [r for r in read[leaf] if r is not update and is_small(r.shape, leaf) and not _is_joined(r)]
        if not others:
            continue
        before = _nearest_ancestors(update)
        direct = update.operands[0] if updated_operands(update) else None
        for reader in others:
            is_direct = direct is not None and direct in reader.operands
            fits = all(user in before or (user is update and is_direct) for user in reader.users)
            if not fits or not is_direct:
                early.add(reader)
    return early


def _is_joined(reader: HloInstruction) -> bool:
    """Return whether a slice is only part of rotations and extensions, which read the whole array."""
    return bool(reader.users) and all(slices_of_one(user) is not None for user in reader.users)


def _shape(leaf: Leaf) -> Shape:
    shape = leaf[0].shape
    for number in leaf[1]:
        shape = shape.tuple_shapes[number]
    return shape


def size(leaf: Leaf) -> int:
    """Return the bytes of a leaf; 0 of tokens and unbounded arrays."""
    shape = _shape(leaf)
    if not shape.is_array or shape.is_unbounded:
        return 0
    return shape.element_count * shape.element_type.bytes


def is_small(shape: Shape, leaf: Leaf) -> bool:
    """Return whether an array has much fewer elements than a leaf."""
    leaf_shape = _shape(leaf)
    return shape.is_array and leaf_shape.is_array and shape.element_count * _LEAST <= leaf_shape.element_count


def _nearest_ancestors(i: HloInstruction) -> set[HloInstruction]:
    """Return instructions on which one depends, the nearest first, at most `_NEAREST`."""
    seen = dict.fromkeys(i.operands)
    for ancestor in (waiting := list(seen)):
        if len(seen) > _NEAREST:
            break
        for operand in ancestor.operands:
            if operand not in seen:
                seen[operand] = None
                waiting.append(operand)
    return set(seen)
