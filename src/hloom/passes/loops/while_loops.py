"""Views of while loops as tuples of state elements, and changes of the carried elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloom.analysis.instructions import operation_of
from hloom.analysis.loops import TupleLoop, element_number, picks
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.control_flow import While
from hloom.operations.structure import GetTupleElement, Tuple
from hloom.passes.writing import Writer, copy_into
from hloom.shape.shape import Shape


def loop_of(i: HloInstruction) -> TupleLoop | None:
    """Return a while as a loop over tuple elements; None for other states or control dependencies."""
    if (
        not isinstance(i.operation, While)
        or not i.shape.is_tuple
        or i.control_predecessors
        or i.control_successors
    ):
        return None
    body, condition = i.called_computations
    loop = TupleLoop(i, body, condition, body.parameters[0], condition.parameters[0])
    for state in (loop.state, loop.tested, i):
        take_apart(state)
    if not isinstance(body.root.operation, Tuple):
        body.root = _elements_again(body.root)
    if not isinstance(i.operands[0].operation, Tuple):
        i.replace_operand(0, _elements_again(i.operands[0]))
    return loop


def loops_of(module: HloModule) -> Iterator[TupleLoop]:
    """Yield the loops of a module as `loop_of` gives them, inner ones first."""
    for computation in module.post_order():
        for instruction in computation:
            loop = loop_of(instruction)
            if loop is not None:
                yield loop


def take_apart(whole: HloInstruction) -> None:
    """Replace the users of a tuple by users of its elements, or of a new tuple of them."""
    others = [u for u in whole.users if not isinstance(u.operation, GetTupleElement)]
    if not others and not whole.is_root:
        return
    again = _elements_again(whole)
    whole.replace_uses_in(others, again)
    if whole.is_root:
        assert again.parent is not None
        again.parent.root = again


def _elements_again(whole: HloInstruction) -> HloInstruction:
    """Add a new tuple of the elements of a tuple."""
    w = Writer(whole)
    parts = [w.op(GetTupleElement(index=n), whole) for n in range(len(whole.shape.tuple_shapes))]
    return w.op(Tuple(), *parts, shape=whole.shape)


def rebuild(
    loop: TupleLoop, kept: Sequence[int], extra: Sequence[HloInstruction] = ()
) -> list[HloInstruction]:
    """Replace a loop's while by one that carries only some elements, and additional invariant ones.

    An element that is dropped may have no uses but its own next value; its value after the loop is the
    initial one.

    Returns:
        The additional elements in the body.
    """
    old = loop.instruction
    w = Writer(old)
    initial = [loop.initial(n) for n in kept] + list(extra)
    shape = Shape.tuple_(x.shape for x in initial)
    position = {number: n for n, number in enumerate(kept)}
    following = [loop.following[n] for n in kept]
    for state in (loop.state, loop.tested):
        _renumber(state, position, shape)
    body = Writer(loop.body.root)
    inside = [body.op(GetTupleElement(index=len(kept) + n), loop.state) for n in range(len(extra))]
    root = body.op(Tuple(), *following, *inside)
    old_root, loop.body.root = loop.body.root, root
    if not old_root.users:
        old_root.bypass_control_dependencies()
        loop.body.remove(old_root)
    for owner, state in ((loop.body, loop.state), (loop.condition, loop.tested)):
        for user in list(state.users):
            if not user.users and not user.is_root and not user.control_successors:
                user.drop_control_dependencies()
                owner.remove(user)
    new = w.op(While(), w.op(Tuple(), *initial), shape=shape, computations=old.called_computations)
    new.frontend_attributes = old.frontend_attributes
    for user in list(old.users):
        number = element_number(user, old)
        if number in position:
            user.operation = GetTupleElement(index=position[number])
            user.replace_operand(0, new)
        elif number is not None:
            user.replace_all_uses_with(loop.initial(number))
    values = [
        w.op(GetTupleElement(index=position[n]), new) if n in position else loop.initial(n)
        for n in range(loop.count if old.users or old.is_root else 0)
    ]
    if values:
        result = w.op(Tuple(), *values)
        result.shape = old.shape
        w.replace(result)
    else:
        w.computation.remove(old)
    loop.instruction = new
    return inside


def carry(
    loop: TupleLoop, initial: Sequence[HloInstruction], following: Sequence[HloInstruction]
) -> list[HloInstruction]:
    """Add elements to the state of a loop, with values before it and after each iteration.

    Returns:
        The elements in the body.
    """
    count = loop.count
    inside = rebuild(loop, range(count), initial)
    for number, value in enumerate(following, count):
        loop.body.root.replace_operand(number, value)
    return inside


def _renumber(whole: HloInstruction, place: dict[int, int], shape: Shape) -> None:
    """Renumber the get-tuple-elements of a parameter; those of dropped elements are dead."""
    whole.shape = shape
    for user in list(whole.users):
        number = operation_of(user, GetTupleElement).index
        if number in place:
            user.operation = GetTupleElement(index=place[number])


def sink(loop: TupleLoop, number: int, value: HloInstruction) -> bool:
    """Recompute an invariant element in body and condition; return whether either uses it."""
    changed = False
    for state in (loop.state, loop.tested):
        computation = state.parent
        assert computation is not None
        for pick in picks(state, number):
            carried = loop.body.root, number
            places = [(u, n) for u in pick.users for n, o in enumerate(u.operands) if o is pick]
            places = [position for position in places if position != carried]
            if not places and not pick.is_root:
                continue
            copy = copy_into(computation, value)
            for user, position in places:
                user.replace_operand(position, copy)
            if pick.is_root:
                computation.root = copy
            changed = True
    return changed
