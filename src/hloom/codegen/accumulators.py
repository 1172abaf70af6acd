"""Loops that carry accumulators in registers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Final

from hloom.codegen.elements import Elements
from hloom.codegen.llvm import I1, I8, I64, Operand, Value
from hloom.codegen.types import Element
from hloom.ir.affine import Index, Variable
from hloom.ir.indexing import Accumulation, Read
from hloom.records import dataclass


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


def plus(a: Element, b: Element) -> Element:
    """Return the sum of two elements."""
    if isinstance(a, tuple):
        assert isinstance(b, tuple)
        return a[0] + b[0], a[1] + b[1]
    assert isinstance(b, Value)
    return a | b if a.type.scalar is I1 else a + b


BLOCK: Final = 128
"""Terms of a rounded sum that are added up before their sum is added to that of the blocks before.

The rounding error of a sum grows with the number of additions that a term passes through.
"""
SHORT: Final = 8
"""Number of terms up to which the sum of an inner loop is not worth accumulators of its own."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The initial sums of a block of terms, and the function ``add(total, sums)`` for the total."""

    start: list[Element]
    add: Callable[[list[Element], list[Element]], list[Element]]


def carried(
    e: Elements,
    limits: tuple[Operand, Operand, int],
    start: list[Element],
    body: Callable[[Value, list[Element]], list[Element]],
    blocks: Blocks | None = None,
) -> list[Element]:
    """Emit a loop over ``range(*limits)`` that carries accumulators through ``body(index, accumulators)``.

    With ``blocks``, a long loop adds up blocks of terms. Masks are carried as bytes: where processors have no
    registers for masks, LLVM carries each of their lanes in a register of its own.
    """
    as_masks = [v.type.scalar is I1 and v.type.lanes > 1 for v in flatten(start)]

    def bytes_of(elements: list[Element]) -> list[Value]:
        pairs = zip(flatten(elements), as_masks, strict=True)
        return [v.cast("sext", I8) if mask else v for v, mask in pairs]

    def elements_of(values: Sequence[Value], like: list[Element]) -> list[Element]:
        pairs = zip(values, as_masks, strict=True)
        return unflatten([v.compare("slt", 0) if mask else v for v, mask in pairs], like)

    def loop_over(low: Operand, high: Operand, step: int, start: list[Element]) -> list[Element]:
        with e.function.loop(low, high, step, bytes_of(start)) as loop, e.scope():
            loop.next(*bytes_of(body(loop.index, elements_of(loop.values, start))))
        return elements_of(loop.values, start)

    low, high, step = limits
    is_short = isinstance(low, int) and isinstance(high, int) and len(range(low, high, step)) <= BLOCK
    if blocks is None or is_short:
        return loop_over(low, high, step, start)
    last = high if isinstance(high, Value) else e.function.constant(I64, high)
    with e.function.loop(low, high, BLOCK * step, flatten(start)) as loop:
        end = e.function.intrinsic("smin", loop.index + BLOCK * step, last)
        sums = loop_over(loop.index, end, step, blocks.start)
        loop.next(*flatten(blocks.add(unflatten(loop.values, start), sums)))
    return unflatten(loop.values, start)


def nested_reduction(
    e: Elements,
    variables: Sequence[Variable],
    start: list[Element],
    round_: Callable[[list[Element]], list[Element]],
    blocks: Blocks | None = None,
    terms: int = 1,
) -> list[Element]:
    """Emit loops over variables that carry accumulators through ``round_``, which adds ``terms`` terms."""
    if not variables:
        return [spread(e, x) for x in round_(start)]
    first, *inner = variables
    apart = blocks if terms * math.prod(v.trips for v in inner) > SHORT else None

    def body(index: Value, totals: list[Element]) -> list[Element]:
        first.value = index
        with e.prefetching(first):
            return summed(totals)

    def summed(totals: list[Element]) -> list[Element]:
        if apart is None:
            return nested_reduction(e, inner, totals, round_, blocks, terms)
        return apart.add(totals, nested_reduction(e, inner, apart.start, round_, blocks, terms))

    return carried(e, (0, first.trips, 1), start, body, blocks)


def accumulated(
    e: Elements,
    accumulation: Accumulation[Value],
    start: list[Element],
    step: Callable[[list[Element], Sequence[Read[Value]]], list[Element]],
    blocks: Blocks | None = None,
) -> list[Element]:
    """Carry accumulators through the steps of an accumulation; ``step`` adds its terms.

    The terms are taken in order; with ``blocks``, sums of blocks are added.
    """
    if accumulation.unrolled:
        for numbers in itertools.product(*map(range, accumulation.extents)):
            start = step(start, accumulation.terms(tuple(map(Index, numbers))))
        return start
    variables = [Variable(extent, "k") for extent in accumulation.extents]
    position = tuple(map(Index.of, variables))
    looped = [v for v in variables if v.extent != 1]
    return nested_reduction(
        e, looped, start, lambda values: step(values, accumulation.terms(position)), blocks
    )
