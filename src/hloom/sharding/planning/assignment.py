"""Choice of an assignment, the sharded factors of an operation: the one that sends the fewest bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from hloom.ir.instruction import HloInstruction
from hloom.ir.sharding_rule import Factor
from hloom.ir.traits import Family
from hloom.records import dataclass
from hloom.shape.element_type import F32, ElementType
from hloom.shape.shape import Shape
from hloom.sharding.planning import plans
from hloom.sharding.planning.decisions import FactorAssignment, ShardedFactor
from hloom.sharding.planning.fetches import Fetch, elements_at, fetches, halo_of_current_tiles
from hloom.sharding.planning.partial_sums import scattered_dimension, stay_unreduced
from hloom.sharding.tiling.coordinates import Coordinate
from hloom.sharding.tiling.tiling import Tiling


@dataclass(frozen=True, slots=True)
class AssignmentProblem:
    """The inputs for choosing which factors of an operation to shard (an assignment).

    Factors are the indices of an operation, such as its batch and contracting dimensions.

    Attributes:
        i: the instruction.
        factors: the factors of the instruction.
        shapes: the global shapes of the operands.
        result: the global shape of the result or, for a tuple, of its first leaf.
        operand_tilings: the current tiling of each operand; None for operands that are not arrays.
        target: the annotated or else propagated tiling of the result; None if it has neither.
        fixed: coordinates (one index per device); devices with different indices must not exchange data.
        devices: the number of devices.
        bytes_to_reshard: function of (operand index, tiling) that returns the bytes that a device sends to
            reshard that operand to that tiling.
    """

    i: HloInstruction
    factors: Sequence[Factor]
    shapes: Sequence[Shape]
    result: Shape
    operand_tilings: Sequence[Tiling | None]
    target: Tiling | None
    fixed: tuple[Coordinate, ...]
    devices: int
    bytes_to_reshard: Callable[[int, Tiling], float]

    def fetches(self, factor: Factor, tiling: Tiling) -> list[Fetch] | None:
        """Return the halos that devices must fetch if ``factor``, an index of the operation, is sharded.

        ``tiling``, of rank 1, is the tiling of the factor. Returns an empty list if each device's own tiles
        suffice, None if sharding the factor is not supported.
        """
        return fetches(self.i, self.shapes, self.result, factor, tiling)


def cheapest_assignment(problem: AssignmentProblem) -> FactorAssignment:
    """Return the choice of factors to shard for which a device sends the fewest bytes.

    Factors are the indices of the operation. Of choices with equal bytes, the one with the most tiles wins.
    """
    ranked: list[tuple[float, int, int, list[ShardedFactor]]] = []
    for number, sharded in enumerate(_candidates(problem)):
        work = -math.prod(tiling.tiles[0] for _, tiling in sharded)
        ranked.append((bytes_sent(problem, sharded), work, number, sharded))
    ranked.sort(key=lambda candidate: candidate[:3])
    amount, _, _, best = ranked[0]
    others = ((sharded, sent) for sent, _, _, sharded in ranked if not _same(sharded, best))
    operands = range(len(problem.operand_tilings))
    unmoved = frozenset(n for n in operands if _bytes_to_operand(problem, best, n)[1])
    return FactorAssignment(best, amount, next(others, None), unmoved)


def _same(some: Sequence[ShardedFactor], others: Sequence[ShardedFactor]) -> bool:
    """Return true if both lists have the same sharded factors with equal tilings, in any order.

    Factors are the indices of an operation.
    """
    return len(some) == len(others) and all(sharded in others for sharded in some)


def _candidates(problem: AssignmentProblem) -> Iterator[list[ShardedFactor]]:
    """Yield candidate lists of factors (indices of the operation) to shard, with their tilings.

    Each is chosen greedily from the factors that the tilings of the operands and the wanted tiling of the
    result (``problem.target``) shard; the order of these tilings varies. The last candidate is the empty
    list, with which every device computes the full result.
    """
    sources = _sources(problem) or [[]]
    seen: list[list[ShardedFactor]] = []
    for first in range(len(sources)):
        order = [sources[first], *sources[:first], *sources[first + 1 :]]
        for kinds in (("plain", "grouped", "parallel", "halo", "indexed"), ("plain", "grouped", "parallel")):
            for reduces in (True, False):
                greedy = _greedy(problem, order, kinds, reduces)
                for candidate in (greedy, _with_unused_tilings(problem, greedy)):
                    if candidate not in seen:
                        seen.append(candidate)
                        yield candidate
    yield []


def _sources(problem: AssignmentProblem) -> list[list[ShardedFactor]]:
    """Return one list of (factor, tiling of rank 1) per array: the factors that the array's tiling shards.

    Factors are the indices of the operation. The wanted result tiling (``problem.target``) comes first, then
    the operands by descending element count. Arrays whose tiling shards no factor are left out.
    """
    sources: list[tuple[int, list[ShardedFactor]]] = []
    if problem.target is not None:
        target = problem.target
        sharded = [
            (f, target.select([f.result]))
            for f in problem.factors
            if f.result is not None and f.result < len(target.tiles) and target.is_sharded(f.result)
        ]
        sources.append((-(1 << 62), sharded))
    for number, tiling in enumerate(problem.operand_tilings):
        if tiling is None:
            continue
        sharded = [
            (f, tiling.select([f.operands[number]]))
            for f in problem.factors
            if number in f.operands and tiling.is_sharded(f.operands[number])
        ]
        sources.append((-problem.shapes[number].element_count, sharded))
    return [sharded for _, sharded in sorted(sources, key=lambda source: source[0]) if sharded]


def _greedy(
    problem: AssignmentProblem, order: Sequence[list[ShardedFactor]], kinds: Sequence[str], reduces: bool
) -> list[ShardedFactor]:
    """Return factors from ``order`` that can be sharded together: each that is compatible with those before.

    Args:
        problem: the operation to shard.
        order: lists of (factor, tiling of rank 1), by descending priority; each list holds the factors
            (indices of the operation) that the tiling of one operand or of the result shards.
        kinds: the values of ``Factor.kind`` to consider.
        reduces: True to also consider factors that the result does not have (reduced dimensions).
    """
    accepted: list[ShardedFactor] = []
    for source in order:
        for factor, tiling in source:
            allowed = factor.kind in kinds and (reduces or factor.result is not None)
            if allowed and _can_shard(problem, accepted, factor, tiling):
                accepted.append((factor, tiling))
    return accepted


def _with_unused_tilings(problem: AssignmentProblem, sharded: list[ShardedFactor]) -> list[ShardedFactor]:
    """Return ``sharded`` with further sharded factors, so that fewer devices repeat the same computation.

    Factors are the indices of the operation. The tiling of each sharded operand dimension, unless a factor
    already has it, is assigned to the largest factor that it divides evenly and that can be sharded as well.
    """
    extended = list(sharded)
    operand_tilings = [
        tiling.select([d])
        for tiling in problem.operand_tilings
        if tiling is not None
        for d in range(len(tiling.tiles))
        if tiling.is_sharded(d)
    ]
    large = [f for f in problem.factors if f.kind == "plain" and f.result is not None and f.operands]
    large.sort(key=lambda f: -f.size)
    for tiling in operand_tilings:
        if any(tiling.coordinates[0] == used.coordinates[0] for _, used in extended):
            continue
        for factor in large:
            if factor.size % tiling.tiles[0] == 0 and _can_shard(problem, extended, factor, tiling):
                extended.append((factor, tiling))
                break
    return extended


def _can_shard(
    problem: AssignmentProblem, sharded: Sequence[ShardedFactor], factor: Factor, tiling: Tiling
) -> bool:
    """Return true if ``factor`` can be sharded by ``tiling`` in addition to the factors in ``sharded``.

    Factors are the indices of the operation; their tilings are of rank 1.
    """
    if any(factor is other for other, _ in sharded) or factor.size == 0:
        return False
    if factor.combiner is not None and not _can_combine(problem, sharded, factor):
        return False
    if not is_divided(factor, tiling, problem.shapes, problem.result):
        return False
    if any(_share(other, factor) for other, _ in sharded):
        return False
    if not Tiling.product([*(other for _, other in sharded), tiling]).is_even:
        return False
    return problem.fetches(factor, tiling) is not None


def _share(a: Factor, b: Factor) -> bool:
    """Return true if two factors (indices of an operation) index the same dimension of an array."""
    if a.result is not None and a.result == b.result:
        return True
    return any(b.operands.get(number) == d for number, d in a.operands.items())


def _can_combine(problem: AssignmentProblem, sharded: Sequence[ShardedFactor], factor: Factor) -> bool:
    """Return true if one all-reduce can combine the partial results of ``factor`` and of ``sharded``.

    Factors are the indices of the operation. They must have the same combiner, which must have a neutral
    element for the result's element type.
    """
    combiner, kind = factor.combiner, problem.result.element_type
    assert combiner is not None
    same = {type(f.combiner) for f, _ in sharded if f.combiner is not None} <= {type(combiner)}
    adds_predicates = combiner.opcode == "add" and kind.is_predicate
    return same and not adds_predicates and combiner.neutral_element(kind) is not None


def is_divided(factor: Factor, tiling: Tiling, shapes: Sequence[Shape], result: Shape) -> bool:
    """Return true if the tiles divide a factor evenly, or if the factor may be padded to a multiple of them.

    Args:
        factor: the factor, an index of an operation.
        tiling: the tiling of the factor, of rank 1.
        shapes, result: the global shapes of the operands and of the result.
    """
    if factor.size % tiling.tiles[0] == 0:
        return True
    sums_parts = factor.kind == "indexed" and factor.result is None and len(factor.operands) > 1
    if factor.kind == "grouped" or sums_parts:
        return False
    extents = {shapes[n].dimensions[d] for n, d in factor.operands.items()}
    if factor.result is not None and result.is_array and factor.kind == "plain":
        extents.add(result.dimensions[factor.result])
    return factor.kind == "halo" or extents <= {factor.size}


def bytes_sent(problem: AssignmentProblem, sharded: Sequence[ShardedFactor]) -> float:
    """Return the bytes that a device sends if the factors in ``sharded`` are sharded.

    Factors are the indices of the operation. The bytes are sent to reshard operands, exchange halos, reduce
    partial results, and reshard the result to the wanted tiling (``problem.target``).
    """
    operands = range(len(problem.operand_tilings))
    total = sum(_bytes_to_operand(problem, sharded, number)[0] for number in operands)
    return total + _bytes_to_result(problem, sharded) if problem.result.is_array else total


def _bytes_to_operand(
    problem: AssignmentProblem, sharded: Sequence[ShardedFactor], number: int
) -> tuple[float, bool]:
    """Return the bytes that a device sends to reshard operand ``number`` and fetch its halos, and a flag.

    The flag is true if it is cheapest to fetch the halo from the current tiles, without resharding.
    ``sharded`` are the factors (indices of the operation) that are sharded.
    """
    current, shape = problem.operand_tilings[number], problem.shapes[number]
    if current is None:
        return 0.0, False
    halos = [factor.operands[0] for factor, _ in sharded if factor.kind == "halo"]
    required = operand_tiling(sharded, number, shape, problem.devices)
    fetched = [
        (fetch, tiling)
        for factor, tiling in sharded
        for fetch in problem.fetches(factor, tiling) or ()
        if fetch.operand == number
    ]
    width, local = shape.element_type.bits / 8, required.local(shape.dimensions)
    total = problem.bytes_to_reshard(number, required)
    for fetch, _ in fetched:
        total += width * elements_at(problem.i, local, fetch, halos) * fetch.window.halo.sent()
    if len(fetched) != 1 or total == 0:
        return total, False
    ((fetch, tiling),) = fetched
    halo = halo_of_current_tiles(fetch, current, required, tiling, problem.fixed)
    if halo is None:
        return total, False
    direct = width * halo.sent() * elements_at(problem.i, local, fetch, halos)
    return (direct, True) if direct < total else (total, False)


def _bytes_to_result(problem: AssignmentProblem, sharded: Sequence[ShardedFactor]) -> float:
    """Return the bytes that a device sends to reduce partial results and reshard to ``problem.target``.

    ``sharded`` are the factors (indices of the operation) that are sharded. If the result lacks some of them,
    each device computes a partial result.
    """
    target, dimensions = problem.target, problem.result.dimensions
    tiling = result_tiling(sharded, problem.result, problem.devices)
    width = (accumulation_type(problem.i, problem.result) or problem.result.element_type).bits / 8
    count = math.prod(reduced.tiles[0] for factor, reduced in sharded if factor.result is None)
    size = width * math.prod(tiling.local(dimensions))
    if (
        count > 1
        and target is not None
        and scattered_result_dimension(tiling, target, dimensions, sharded) is not None
    ):
        return size * (count - 1) / count
    if stay_unreduced(tiling, target, sharded):
        return 0.0
    total = 2 * size * (count - 1) / count
    if target is not None and target.unreduced is None:
        total += width * plans.sent(dimensions, tiling, target, problem.fixed)
    return total


def accumulation_type(i: HloInstruction, result: Shape) -> ElementType | None:
    """Return F32 if devices must add their partial sums in F32, which is wider than the element type.

    This holds for contractions with floating-point results of fewer than 32 bits. Returns None for all other
    operations, whose partial sums are added in the element type of the result.
    """
    kind = result.element_type
    narrow = kind.is_floating and kind.bits < 32
    return F32 if narrow and i.operation.family is Family.CONTRACTION else None


def scattered_result_dimension(
    tiling: Tiling, target: Tiling, dimensions: Sequence[int], sharded: Sequence[ShardedFactor]
) -> int | None:
    """Return the dimension along which a reduce-scatter of partial results yields the tiling ``target``.

    Returns None if there is no such dimension.

    Args:
        tiling: the tiling of the partial results.
        target: the wanted tiling of the result.
        dimensions: the dimensions of the global result.
        sharded: the sharded indices of the operation (factors), with their tilings; devices have partial
            results because the result lacks some of these indices.
    """
    reduced = [reduced_tiling.coordinates[0] for factor, reduced_tiling in sharded if factor.result is None]
    return scattered_dimension(tiling, reduced, target, dimensions)


def operand_tiling(sharded: Sequence[ShardedFactor], number: int, shape: Shape, devices: int) -> Tiling:
    """Return the tiling that an operand must have if the factors in ``sharded`` are sharded.

    Factors are the indices of the operation. ``number`` is the index of the operand, ``shape`` its global
    shape.
    """
    by_dimension = {f.operands[number]: tiling for f, tiling in sharded if number in f.operands}
    return from_dimensions(shape, by_dimension, devices)


def result_tiling(sharded: Sequence[ShardedFactor], shape: Shape, devices: int) -> Tiling:
    """Return the tiling that the result has if the factors in ``sharded`` are sharded.

    Factors are the indices of the operation, each with its tiling. ``shape`` is the result's global shape.
    """
    by_dimension = {f.result: tiling for f, tiling in sharded if f.result is not None}
    return from_dimensions(shape, by_dimension, devices)


def from_dimensions(shape: Shape, by_dimension: dict[int, Tiling], devices: int) -> Tiling:
    """Return the tiling of an array whose dimension d is sharded by ``by_dimension[d]``, a tiling of rank 1.

    Other dimensions are replicated. ``shape`` is the global shape.
    """
    replicated = Tiling.replicated(1, devices)
    tilings = [by_dimension.get(d, replicated) for d in range(shape.rank if shape.is_array else 0)]
    return Tiling.product(tilings) if tilings else Tiling.replicated(0, devices)


def extended(tiling: Tiling, have: Tiling, dimensions: Iterable[int]) -> Tiling:
    """Return ``tiling``, but with replicated dimensions among ``dimensions`` sharded as in ``have``.

    This avoids resharding where an annotation leaves dimensions open. A dimension stays replicated if
    otherwise tiles would be on unequal numbers of devices. Returns ``tiling`` itself if ``tiling`` or
    ``have`` has partial sums.

    Args:
        tiling: the tiling to extend.
        have: the current tiling of the same array.
        dimensions: the dimensions that may be sharded.
    """
    if have.unreduced is not None or tiling.unreduced is not None:
        return tiling
    for d in dimensions:
        candidate = tiling.replaced(d, have.select([d]))
        if not tiling.is_sharded(d) and have.is_sharded(d) and candidate.is_even:
            tiling = candidate
    return tiling
