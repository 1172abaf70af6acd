"""Loops inside kernels: all iterations of one vector of elements run in registers."""

from __future__ import annotations

from hloom.analysis.loops import TupleLoop, picks
from hloom.analysis.trip_count import TripCount
from hloom.codegen.accumulators import flatten, spread, unflatten
from hloom.codegen.elements import Elements, leaf_rule
from hloom.codegen.types import Element
from hloom.ir.affine import Indices
from hloom.ir.instruction import HloInstruction


@leaf_rule("while")
def while_leaves(e: Elements, instruction: HloInstruction, indices: Indices) -> list[Element]:
    """Emit the elements of a while's state at an index; see `hloom.passes.loops.elementwise_loop_fusion`.

    Loop-invariant leaves are not emitted; the first carried element stands in for each of them.
    """
    count = instruction.annotation(TripCount)
    assert count is not None
    loop, shapes = TupleLoop.of(instruction), instruction.shape.tuple_shapes
    carried, dimensions = loop.carried, shapes[loop.carried_arrays[0]].dimensions
    places = {n: indices if shapes[n].rank else () for n in carried}
    for number in range(loop.count):
        if number not in carried:
            for pick in picks(loop.state, number):
                e.stand_for(pick, loop.initial(number))
            if shapes[number].dimensions == dimensions:
                e.element(loop.initial(number), indices)  # before the loop, which then finds it in the scope
    start = [_whole(e, e.element(loop.initial(n), places[n]), places[n]) for n in carried]
    with e.function.loop(0, count.iterations, 1, flatten(start)) as iteration, e.scope():
        for number, value in zip(carried, unflatten(iteration.values, start), strict=True):
            for pick in picks(loop.state, number):
                e.know(pick, places[number], value)
        following = [_whole(e, e.element(loop.following[n], places[n]), places[n]) for n in carried]
        iteration.next(*flatten(following))
    values = unflatten(iteration.values, start)
    return [values[carried.index(n)] if n in carried else values[0] for n in range(loop.count)]


def _whole(e: Elements, value: Element, indices: Indices) -> Element:
    """Return an element as one value per lane, even if all lanes are equal."""
    return spread(e, value) if indices else value
