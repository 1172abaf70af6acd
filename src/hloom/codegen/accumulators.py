"""Loops that carry accumulators in registers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from hloom.codegen.elements import Elements
from hloom.codegen.llvm import Value
from hloom.codegen.types import Element
from hloom.ir.affine import Index, Variable
from hloom.ir.indexing import Accumulation, Read


def flatten(elements: Sequence[Element]) -> list[Value]:
    """Return the registers of elements: two for a complex one."""
    return [v for e in elements for v in (e if isinstance(e, tuple) else (e,))]


def unflatten(values: Sequence[Value], like: Sequence[Element]) -> list[Element]:
    """Return elements of the same kinds as ``like`` from registers."""
    elements: list[Element] = []
    position = 0
    for element in like:
        if isinstance(element, tuple):
            elements.append((values[position], values[position + 1]))
            position += 2
        else:
            elements.append(values[position])
            position += 1
    return elements


def spread(e: Elements, element: Element) -> Element:
    """Repeat an element in every lane."""
    return (e.wide(element[0]), e.wide(element[1])) if isinstance(element, tuple) else e.wide(element)


def nested_reduction(
    e: Elements,
    variables: Sequence[Variable],
    start: list[Element],
    round_: Callable[[list[Element]], list[Element]],
) -> list[Element]:
    """Emit loops over variables that carry accumulators through ``round_``."""
    if not variables:
        return [spread(e, x) for x in round_(start)]
    first, *inner = variables
    with e.function.loop(0, first.trips, 1, flatten(start)) as loop, e.scope():
        first.value = loop.index
        totals = nested_reduction(e, inner, unflatten(loop.values, start), round_)
        loop.next(*flatten(totals))
    return unflatten(loop.values, start)


def accumulated(
    e: Elements,
    accumulation: Accumulation[Value],
    start: list[Element],
    step: Callable[[list[Element], Sequence[Read[Value]]], list[Element]],
) -> list[Element]:
    """Carry accumulators through the steps of an accumulation, in order; ``step`` adds its terms."""
    if accumulation.unrolled:
        for numbers in itertools.product(*map(range, accumulation.extents)):
            start = step(start, accumulation.terms(tuple(map(Index, numbers))))
        return start
    variables = [Variable(extent, "k") for extent in accumulation.extents]
    position = tuple(map(Index.of, variables))
    looped = [v for v in variables if v.extent != 1]
    return nested_reduction(e, looped, start, lambda values: step(values, accumulation.terms(position)))
