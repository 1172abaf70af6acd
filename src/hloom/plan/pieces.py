"""Pieces of a loop: the interior, in which no index passes an end of its dimension, and the rims.

A rotated, padded or concatenated array needs tests of the index, or elements from two places, only in the
few iterations near the ends. The loop over a piece knows the range of its variable, so that tests are decided
while code is emitted: the interior has loads of whole vectors. The innermost loop is cut into pieces. Outer
loops have one test in each iteration, which tells their interior from their rims.

A loop of three iterations is one of two and one of one: without masks, small arrays can stay in registers.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Final

from hloom.ir.affine import Index, Variable
from hloom.ir.traits import ElementCost
from hloom.plan.iteration import accesses_of, is_nested
from hloom.plan.parts import KernelParts
from hloom.plan.space import Space
from hloom.records import dataclass

MOST_PIECES: Final = 5
"""Maximum number of pieces of a loop. Each has code of its own."""
SHORTEST: Final = 24
"""Minimum number of iterations of a loop in an interior and rims."""
MOST_DECIDED: Final = 4
"""Maximum number of iterations of outer loops that have code of their own."""
TINY: Final = 16
"""Number of iterations below which a loop is divided into two powers of two, or three of cheap operations."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of the innermost loop.

    Attributes:
        space: the iteration space of the piece, whose innermost variable counts from the piece's beginning.
        low: the first iteration.
    """

    space: Space
    low: int


@dataclass(frozen=True, slots=True)
class Interior:
    """The iterations of the outer loops in which their indices pass no end.

    Attributes:
        space: the iteration space, with variables of their own for narrowed loops.
        narrowed: for each narrowed loop, its variable in the larger space, the one here, and where it begins.
    """

    space: Space
    narrowed: tuple[tuple[Variable, Variable, int], ...]


def interior(parts: KernelParts, space: Space) -> Interior | None:
    """Return the interior of the outer loops; None if they have no rims, or more rims than interior."""
    outer = [v for v in space.variables[:-1] if v.trips == v.extent]
    bounds = _bounds(parts, space) if outer and _moves(parts) else ()
    indices = space.indices
    variables = dict(zip(space.variables, space.variables, strict=True))
    narrowed: list[tuple[Variable, Variable, int]] = []
    share = 1.0
    for variable in outer:
        starts = _starts(variable, bounds)
        if len(starts) == 1:
            continue
        low, high = _longest(starts, variable.extent)
        share *= (high - low) / variable.extent
        inner = variables[variable] = Variable(high - low)
        narrowed.append((variable, inner, low))
        indices = tuple(_replaced(index, variable, Index.of(inner) + low) for index in indices)
    if not narrowed or share < 0.5:
        return None
    return Interior(Space(tuple(variables.values()), indices), tuple(narrowed))


def loop_pieces(parts: KernelParts, space: Space) -> list[Piece]:
    """Return the pieces of the innermost loop: powers of two if it is tiny, else `pieces_by_bounds`."""
    inner = space.variables[-1] if space.variables else Variable(1)
    if inner.trips != inner.extent or any(map(is_nested, parts.members)):
        return [Piece(space, 0)]
    powers = [1 << bit for bit in reversed(range(4)) if inner.trips >> bit & 1]
    costly = any(m.operation.element_cost is ElementCost.TRANSCENDENTAL for m in parts.members)
    if inner.trips < TINY and 1 < len(powers) <= (2 if costly else 3):
        return _divided(space, [0, *itertools.accumulate(powers[:-1])])
    return pieces_by_bounds(parts, space)


def pieces_by_bounds(parts: KernelParts, space: Space) -> list[Piece]:
    """Return the pieces of the innermost loop between which bounds checks change; of many, the longest."""
    inner = space.variables[-1] if space.variables else Variable(1)
    if inner.trips != inner.extent or inner.trips < SHORTEST or not _moves(parts):
        return [Piece(space, 0)]
    starts = _starts(inner, _bounds(parts, space))
    if len(starts) == 1:
        return [Piece(space, 0)]
    if len(starts) > MOST_PIECES:
        starts = sorted({0, *_longest(starts, inner.extent)} - {inner.extent})
    return _divided(space, starts)


def _divided(space: Space, starts: Sequence[int]) -> list[Piece]:
    """Return the pieces of the innermost loop that begin at some iterations."""
    *outer, inner = space.variables
    pieces: list[Piece] = []
    for low, high in zip(starts, [*starts[1:], inner.extent], strict=True):
        variable = Variable(high - low)
        indices, separate = (
            tuple(_replaced(index, inner, Index.of(variable) + low) for index in each)
            for each in (space.indices, space.separate)
        )
        merged = (*space.merged[:-1], (variable,)) if space.merged else ()
        pieces.append(Piece(Space((*outer, variable), indices, merged, separate), low))
    return pieces


def replaced_loop(space: Space, loop: Variable, loops: tuple[Variable, Variable], low: int) -> Space:
    """Return a space with two nested loops in place of one, whose iterations begin at its ``low``-th."""
    outer, inner = loops
    number = space.variables.index(loop)
    index = Index.of(outer) * inner.extent + Index.of(inner) + low
    indices, separate = (
        tuple(_replaced(each, loop, index) for each in both) for both in (space.indices, space.separate)
    )
    merged = space.merged
    if merged:
        merged = (*merged[:number], (outer,), (inner,), *merged[number + 1 :])
    return Space(
        (*space.variables[:number], *loops, *space.variables[number + 1 :]), indices, merged, separate
    )


def decided_iterations(parts: KernelParts, space: Space, loops: Collection[Variable]) -> list[Space]:
    """Return the loops for each iteration of those short ones along which bounds checks change.

    Their variables are constants there: an array joined of few others along a loop is read without tests.
    The order is that of the iterations.
    """
    short = [v for v in loops if 1 < v.trips <= MOST_DECIDED and v.trips == v.extent]
    bounds = _bounds(parts, space) if short and _moves(parts) else ()
    spaces = [space]
    for variable in short:
        if len(_starts(variable, bounds)) > 1 and len(spaces) * variable.extent <= MOST_DECIDED:
            spaces = [_at_iteration(s, variable, number) for s in spaces for number in range(variable.extent)]
    return spaces


def _at_iteration(space: Space, loop: Variable, iteration: int) -> Space:
    number = space.variables.index(loop)
    indices, separate = (
        tuple(_replaced(each, loop, Index(iteration)) for each in both)
        for both in (space.indices, space.separate)
    )
    variables = (*space.variables[:number], *space.variables[number + 1 :])
    return Space(variables, indices, (*space.merged[:number], *space.merged[number + 1 :]), separate)


def _moves(parts: KernelParts) -> bool:
    """Return whether members move elements by indices that may be outside, and none has loops of its own."""
    return parts.moves_elements and not any(map(is_nested, parts.members))


def _bounds(parts: KernelParts, space: Space) -> Collection[tuple[Index, int]]:
    """Return the indices, with sizes, that a kernel over a space compares with the ends of dimensions."""
    return accesses_of(parts.inputs, parts.roots, space.indices).bounds


def _starts(variable: Variable, bounds: Collection[tuple[Index, int]]) -> list[int]:
    """Return the first iterations of the pieces."""
    starts = {0}
    for index, size in bounds:
        if index.terms == ((variable, 1),):
            starts |= {-index.constant, size - index.constant}
        elif index.terms == ((variable, -1),):
            starts |= {index.constant + 1, index.constant - size + 1}
    return sorted(start for start in starts if 0 <= start < variable.extent)


def _longest(starts: Sequence[int], extent: int) -> tuple[int, int]:
    """Return the longest piece: its first iteration and the one after its last."""
    return max(zip(starts, [*starts[1:], extent], strict=True), key=lambda piece: piece[1] - piece[0])


def _replaced(index: Index, variable: Variable, by: Index) -> Index:
    """Substitute an index for a variable."""
    coefficient = dict(index.terms).get(variable, 0)
    return Index(index.constant, ((v, c) for v, c in index.terms if v is not variable)) + by * coefficient
