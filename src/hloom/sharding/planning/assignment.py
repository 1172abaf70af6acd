"""Assignments: which factors of an operation are cut, and how; the cheapest in bytes is taken."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from hloom.ir.instruction import HloInstruction
from hloom.ir.sharding_rule import Factor
from hloom.ir.traits import Family
from hloom.shape.element_type import F32, ElementType
from hloom.shape.shape import Shape
from hloom.sharding.planning import plans
from hloom.sharding.planning.decisions import Choice, Cut
from hloom.sharding.planning.fetches import elements_at, fetches, from_own_tiles
from hloom.sharding.planning.partial_sums import are_left, scattered_dimension
from hloom.sharding.tiling.coordinates import Column, are_independent
from hloom.sharding.tiling.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Question:
    """The input of the choice of an assignment: an instruction, its factors, and tiles.

    Attributes:
        i: the instruction.
        factors: its factors.
        shapes: the shapes of the whole operands.
        result: the shape of the whole result, or of its first leaf.
        have: the tiles of the operands; None for those that are no arrays.
        target: the wanted tiles of the result; None if any will do.
        fixed: columns in which devices that work together must agree.
        devices: the number of devices.
        fit: returns the bytes that a device sends to give an operand, by its number, other tiles.
    """

    i: HloInstruction
    factors: Sequence[Factor]
    shapes: Sequence[Shape]
    result: Shape
    have: Sequence[Tiling | None]
    target: Tiling | None
    fixed: tuple[Column, ...]
    devices: int
    fit: Callable[[int, Tiling], float]


def cheapest(question: Question) -> Choice:
    """Return the factors to cut that send the fewest bytes, among those the most tiles."""
    found: list[tuple[float, int, int, list[Cut]]] = []
    for number, accepted in enumerate(_candidates(question)):
        work = -math.prod(cut.tiles[0] for _, cut in accepted)
        found.append((bytes_sent(question, accepted), work, number, accepted))
    found.sort(key=lambda one: one[:3])
    amount, _, _, best = found[0]
    second = next(((cuts, more) for more, _, _, cuts in found if not _same(cuts, best)), None)
    staying = frozenset(n for n in range(len(question.have)) if _bytes_to_operand(question, best, n)[1])
    return Choice(best, amount, second, staying)


def _same(some: Sequence[Cut], others: Sequence[Cut]) -> bool:
    """Return true if two assignments cut the same factors in the same way, in any order."""
    return len(some) == len(others) and all(one in others for one in some)


def _candidates(question: Question) -> Iterator[list[Cut]]:
    """Return assignments that follow an operand or the target first, then the others, and the empty one."""
    sources = _sources(question) or [[]]
    seen: list[list[Cut]] = []
    for first in range(len(sources)):
        order = [sources[first], *sources[:first], *sources[first + 1 :]]
        for kinds in (("plain", "grouped", "parallel", "halo", "indexed"), ("plain", "grouped", "parallel")):
            for reduces in (True, False):
                accepted = _greedy(question, order, kinds, reduces)
                for more in (accepted, _moved(question, accepted, order)):
                    if more not in seen:
                        seen.append(more)
                        yield more
    yield []


def _sources(question: Question) -> list[list[Cut]]:
    """Return the cuts of the target, then of each operand, large ones first."""
    found: list[tuple[int, list[Cut]]] = []
    if question.target is not None:
        target = question.target
        cuts = [
            (f, target.select([f.result]))
            for f in question.factors
            if f.result is not None and f.result < len(target.tiles) and target.cuts(f.result)
        ]
        found.append((-(1 << 62), cuts))
    for number, tiling in enumerate(question.have):
        if tiling is None:
            continue
        cuts = [
            (f, tiling.select([f.operands[number]]))
            for f in question.factors
            if number in f.operands and tiling.cuts(f.operands[number])
        ]
        found.append((-question.shapes[number].element_count, cuts))
    return [cuts for _, cuts in sorted(found, key=lambda pair: pair[0]) if cuts]


def _greedy(question: Question, order: Sequence[list[Cut]], kinds: Sequence[str], reduces: bool) -> list[Cut]:
    accepted: list[Cut] = []
    for cuts in order:
        for factor, cut in cuts:
            wanted = factor.kind in kinds and (reduces or factor.result is not None)
            if wanted and _fits(question, accepted, factor, cut):
                accepted.append((factor, cut))
    return accepted


def _moved(question: Question, accepted: list[Cut], order: Sequence[list[Cut]]) -> list[Cut]:
    """Cut other factors where the ones that are cut cannot be used."""
    made = list(accepted)
    columns = [
        tiling.select([d])
        for tiling in question.have
        if tiling is not None
        for d in range(len(tiling.tiles))
        if tiling.cuts(d)
    ]
    large = [f for f in question.factors if f.kind == "plain" and f.result is not None and f.operands]
    large.sort(key=lambda f: -f.size)
    for cut in columns:
        if any(cut.column(0) == used.column(0) for _, used in made):
            continue  # two factors cannot have one cut
        for factor in large:
            if factor.size % cut.tiles[0] == 0 and _fits(question, made, factor, cut):
                made.append((factor, cut))
                break
    return made


def _fits(question: Question, accepted: Sequence[Cut], factor: Factor, cut: Tiling) -> bool:
    """Return true if a factor can be cut beside those that are cut already."""
    if any(factor is other for other, _ in accepted) or factor.size == 0:
        return False
    if factor.combiner is not None and not _combines(question, accepted, factor):
        return False
    if not is_divided(factor, cut, question.shapes, question.result):
        return False
    shared = [other for other, _ in accepted if _share(other, factor)]
    if shared or not is_complete([*(c for _, c in accepted), cut]):
        return False
    return fetches(question.i, question.shapes, question.result, factor, cut) is not None


def _share(a: Factor, b: Factor) -> bool:
    """Return true if two factors are the same dimension of an array."""
    if a.result is not None and a.result == b.result:
        return True
    return any(b.operands.get(number) == d for number, d in a.operands.items())


def _combines(question: Question, accepted: Sequence[Cut], factor: Factor) -> bool:
    kinds = {type(f.combiner) for f, _ in accepted if f.combiner is not None}
    assert factor.combiner is not None
    neutral = factor.combiner.neutral_element(question.result.element_type)
    is_known = neutral is not None and not question.result.element_type.is_predicate
    own = factor.combiner.opcode != "add" or not question.result.element_type.is_predicate
    return kinds <= {type(factor.combiner)} and own and (is_known or neutral is not None)


def is_divided(factor: Factor, cut: Tiling, shapes: Sequence[Shape], result: Shape) -> bool:
    """Return true if tiles divide a factor evenly, where they must.

    Args:
        shapes, result: the shapes of the whole operands and of the whole result.
    """
    if factor.size % cut.tiles[0] == 0:
        return True
    sums_parts = factor.kind == "indexed" and factor.result is None and len(factor.operands) > 1
    if factor.kind == "grouped" or sums_parts:
        return False
    extents = {shapes[n].dimensions[d] for n, d in factor.operands.items()}
    if factor.result is not None and result.is_array and factor.kind == "plain":
        extents.add(result.dimensions[factor.result])
    return factor.kind == "halo" or extents <= {factor.size}


def bytes_sent(question: Question, accepted: Sequence[Cut]) -> float:
    """Return the bytes that a device sends to fit operands, to combine, and to reach the target."""
    total = sum(_bytes_to_operand(question, accepted, number)[0] for number in range(len(question.have)))
    if not question.result.is_array:
        return total
    return total + _after(question, accepted)


def _bytes_to_operand(question: Question, accepted: Sequence[Cut], number: int) -> tuple[float, bool]:
    """Return the bytes that a device sends for an operand, and whether it stays in its tiles."""
    have, shape = question.have[number], question.shapes[number]
    if have is None:
        return 0.0, False
    halos = [factor.operands[0] for factor, _ in accepted if factor.kind == "halo"]
    want = operand_tiling(accepted, number, shape, question.devices)
    found = [
        (one, cut)
        for factor, cut in accepted
        for one in fetches(question.i, question.shapes, question.result, factor, cut) or ()
        if one.operand == number
    ]
    total, width, local = (
        question.fit(number, want),
        shape.element_type.bits / 8,
        want.local(shape.dimensions),
    )
    for one, _ in found:
        rest = elements_at(question.i, local, one, halos)
        total += width * rest * one.window.halo.sent()
    if len(found) != 1 or total == 0:
        return total, False
    ((one, cut),) = found
    own = from_own_tiles(one, have, want, cut, question.fixed)
    if own is None:
        return total, False
    direct = width * own.sent() * elements_at(question.i, local, one, halos)
    return (direct, True) if direct < total else (total, False)


def _after(question: Question, accepted: Sequence[Cut]) -> float:
    """Return the bytes sent after the local operation."""
    dimensions = question.result.dimensions
    made = result_tiling(accepted, question.result, question.devices)
    width = (summed_in(question.i, question.result) or question.result.element_type).bits / 8
    count = math.prod(cut.tiles[0] for f, cut in accepted if f.result is None)
    size = width * math.prod(made.local(dimensions))
    if count > 1 and question.target is not None:
        found = scattered(made, question.target, dimensions, accepted)
        if found is not None:
            return size * (count - 1) / count
    total = 2 * size * (count - 1) / count
    if are_left(made, question.target, accepted):
        return 0.0
    if question.target is not None and question.target.summands is None:
        total += width * plans.sent(dimensions, made, question.target, question.fixed)
    return total


def summed_in(i: HloInstruction, result: Shape) -> ElementType | None:
    """Return the type in which devices add up products if it is not the result's: f32 for narrow floats."""
    kind = result.element_type
    narrow = kind.is_floating and kind.bits < 32
    return F32 if narrow and i.operation.family is Family.CONTRACTION else None


def scattered(made: Tiling, target: Tiling, dimensions: Sequence[int], accepted: Sequence[Cut]) -> int | None:
    """Return the dimension along which a reduce-scatter of partial sums gives the target; None if none."""
    reduced = [cut.column(0) for f, cut in accepted if f.result is None]
    return scattered_dimension(made, reduced, target, dimensions)


def operand_tiling(accepted: Sequence[Cut], number: int, shape: Shape, devices: int) -> Tiling:
    """Return the tiles of an operand that an assignment needs."""
    columns = {f.operands[number]: cut for f, cut in accepted if number in f.operands}
    return joined(shape, columns, devices)


def result_tiling(accepted: Sequence[Cut], shape: Shape, devices: int) -> Tiling:
    """Return the tiles of the result that an assignment makes."""
    columns = {f.result: cut for f, cut in accepted if f.result is not None}
    return joined(shape, columns, devices)


def joined(shape: Shape, columns: dict[int, Tiling], devices: int) -> Tiling:
    """Return the tiling of an array some of whose dimensions are cut by tilings of rank 1."""
    whole = Tiling.replicated(1, devices)
    cuts = [columns.get(d, whole) for d in range(shape.rank if shape.is_array else 0)]
    return product(cuts) if cuts else Tiling.replicated(0, devices)


def product(cuts: Sequence[Tiling]) -> Tiling:
    """Return the tiling whose dimensions are cut by tilings of rank 1."""
    tiles = tuple(cut.tiles[0] for cut in cuts)
    return Tiling(tiles, tuple(cut.column(0) for cut in cuts), cuts[0].devices)


def extended(tiling: Tiling, have: Tiling, dimensions: Iterable[int]) -> Tiling:
    """Return a tiling that also has the cuts of ``have`` along whole dimensions, if they are independent."""
    columns = [tiling.select([d]) for d in range(len(tiling.tiles))]
    if have.summands is not None or tiling.summands is not None:
        return tiling
    for d in dimensions:
        added = [*columns[:d], have.select([d]), *columns[d + 1 :]]
        if not tiling.cuts(d) and have.cuts(d) and is_complete(added):
            columns = added
    return product(columns) if columns else tiling


def is_complete(cuts: Sequence[Tiling]) -> bool:
    """Return true if every combination of tiles is on equally many devices: the cuts are independent."""
    return are_independent([cut.column(0) for cut in cuts])
