"""Loops inside kernels: each vector of elements goes through all turns by itself."""

from __future__ import annotations

from hloom.analysis.loops import Loop, picks
from hloom.analysis.trip_count import TripCount
from hloom.codegen.accumulators import flatten, spread, unflatten
from hloom.codegen.elements import Elements, Indices, leaf_rule
from hloom.codegen.types import Element
from hloom.ir.instruction import HloInstruction


@leaf_rule("while")
def while_leaves(e: Elements, instruction: HloInstruction, indices: Indices) -> list[Element]:
    """The elements of a while's state at an index; see `hloom.passes.loops.elementwise_loop_fusion`.

    What is the same in every turn is no part of the result: in its place stands what comes first.
    """
    body, condition = instruction.called_computations
    count = instruction.annotation(TripCount)
    assert count is not None
    loop = Loop(instruction, body, condition, body.parameters[0], condition.parameters[0])
    carried = [n for n in range(loop.count) if not loop.is_invariant(n)]
    places = {n: indices if instruction.shape.tuple_shapes[n].rank else () for n in carried}
    for number in range(loop.count):
        if number not in carried:
            for pick in picks(loop.state, number):
                e.stand_for(pick, loop.initial(number))
    start = [_whole(e, e.element(loop.initial(n), places[n]), places[n]) for n in carried]
    requests = dict(e.requests)
    with e.function.loop(0, count.turns, 1, flatten(start)) as turns, e.scope():
        for number, value in zip(carried, unflatten(turns.values, start), strict=True):
            for pick in picks(loop.state, number):
                e.know(pick, places[number], value)
        following = [_whole(e, e.element(loop.following[n], places[n]), places[n]) for n in carried]
        turns.next(*flatten(following))
    e.requests = requests
    values = unflatten(turns.values, start)
    return [values[carried.index(n)] if n in carried else values[0] for n in range(loop.count)]


def _whole(e: Elements, value: Element, indices: Indices) -> Element:
    """Elements of arrays take a lane each even where they are all the same."""
    return spread(e, value) if indices else value
