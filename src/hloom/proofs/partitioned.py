"""Decision whether the partitioned program computes, on each device, its tiles of a global program's results.

Relations of values to the global arguments are tried first (`hloom.proofs.relations`); then, for few devices,
the programs of all devices run on fingerprints. The padding of tiles, beyond the array's bounds, is unknown
and differs between devices, so that results that depend on it are not equal to the global ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from hloom.debug.cut import inlined
from hloom.errors import HloError, expect
from hloom.ir.cloning import clone_module
from hloom.ir.module import HloModule
from hloom.ir.traits import Family
from hloom.passes.expand.multi_slice_calls import MultiSliceCalls
from hloom.proofs.algebra import Algebra
from hloom.proofs.devices import DeviceEvaluator, results_of_devices
from hloom.proofs.field import BITS
from hloom.proofs.programs import device_count
from hloom.proofs.refutation import SAMPLES
from hloom.proofs.relations.regions import in_regions, is_border
from hloom.proofs.relations.tiles import are_tiles
from hloom.proofs.sums import TooLarge
from hloom.proofs.tile_search import TileSearch, inside, tiles_of
from hloom.proofs.values import MOST_ELEMENTS, unknown
from hloom.proofs.verdict import LEAST_BITS, Relation, Verdict
from hloom.shape.shape import Shape
from hloom.sharding.reading.named_regions import normalize_regions
from hloom.sharding.storing.tiles import flat, tile_of
from hloom.sharding.tiling.tiling import Tiling

MOST_DEVICES: Final = 64
"""Programs for more devices are proved by relations only."""


def prove_partitioned(
    whole: HloModule,
    local: HloModule,
    parameters: Sequence[Tiling],
    results: Sequence[Tiling],
    *,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Verdict:
    """Decide whether the partitioned program computes the tiles of a global program's results.

    Args:
        whole: the program on global arrays.
        local: the program that every device runs.
        parameters, results: the tilings of the leaves of the global program's parameters and result.
        samples: the number of sets of arguments on which programs that are not proved equal are compared.
        seed: the seed of the first set of arguments.

    Raises HloError (``prove.tiles``) if the shapes of the local program's parameters or results are not those
    of the tiles.
    """
    expect(whole, HloModule, "an HloModule")
    expect(local, HloModule, "an HloModule")
    _require_tiles(whole, local, parameters, results)
    whole = clone_module(whole)
    normalize_regions(whole)
    before, after, reason = inlined(whole), inlined(local), ""
    before.config.num_partitions = before.config.replica_count = 1
    for module in (before, after):
        MultiSliceCalls().run(module)
    if not _has_meaning(before, (*parameters, *results)):
        return Verdict(Relation.OPEN, reason="the global program has collectives or device ids")
    if any(map(is_border, after.instructions())):
        return Verdict(Relation.OPEN, reason="the local program has regions of manual partitioning")
    proof = proof_by_relations(before, after, parameters, results)
    if proof.relation.is_proof:
        return proof
    differs = any(is_border(i) or i.operation.family is Family.COLLECTIVE for i in before.instructions())
    if differs or device_count(local) > MOST_DEVICES:
        return proof
    if any(t.unreduced for t in results):
        return Verdict(Relation.OPEN, reason="results are unreduced")
    for reals in (False, True) if not any(t.unreduced for t in parameters) else ():
        try:
            bits = _error_bits(before, after, parameters, results, Algebra(reals=reals))
        except TooLarge as error:
            reason = str(error)
            continue
        except HloError as error:
            reason = error.message
            continue
        if bits >= LEAST_BITS:
            relation = Relation.EQUAL_OVER_REALS if reals else Relation.IDENTICAL
            return Verdict(relation, error_bits=bits)
    shapes = [leaf for i in before.instructions() for _, leaf in i.shape.leaves() if leaf.is_array]
    if any(shape.element_count > MOST_ELEMENTS for shape in shapes):
        return Verdict(Relation.OPEN, reason=reason or "the arrays are too large")
    search = TileSearch(before, local, parameters, results)
    refutation = search.search(samples, seed)
    if refutation is None:
        reason = search.note or reason or "the results are compared by samples only"
        return Verdict(Relation.OPEN, reason=reason)
    return Verdict(
        Relation.REFUTED,
        inputs=refutation.inputs,
        arguments=refutation.arguments,
        comparisons=refutation.comparisons,
    )


def proof_by_relations(
    whole: HloModule, local: HloModule, parameters: Sequence[Tiling], results: Sequence[Tiling]
) -> Verdict:
    """Return the verdict by the relations of values to the global arguments."""
    reason = "the results are no tiles of the global program's, as far as relations tell"
    for reals in (False, True):
        try:
            if are_tiles(whole, local, parameters, results, reals=reals):
                return Verdict(Relation.EQUAL_OVER_REALS if reals else Relation.IDENTICAL, certain=True)
        except TooLarge as error:
            reason = str(error)
        except HloError as error:
            reason = error.message
    return Verdict(Relation.OPEN, reason=reason)


def annotated_tilings(module: HloModule, devices: int) -> tuple[list[Tiling], list[Tiling]]:
    """Return the tilings of a program's parameters and of its results, by their sharding annotations.

    Arrays without a sharding are replicated on all devices.
    """

    def tilings(shape: Shape, sharding: Any) -> Iterator[Tiling]:
        leaves = [leaf for _, leaf in shape.leaves()]
        elements = sharding.elements if sharding and sharding.kind == "tuple" else [sharding] * len(leaves)
        for leaf, each in zip(leaves, elements, strict=True):
            yield Tiling.of(each, leaf.rank if leaf.is_array else 0, devices)

    entry = module.entry
    parameters = [t for p in entry.parameters for t in tilings(p.shape, p.sharding)]
    return parameters, list(tilings(entry.root.shape, entry.root.sharding))


def _has_meaning(whole: HloModule, tilings: Sequence[Tiling]) -> bool:
    """Return whether it is clear what a global program computes.

    Collectives and numbers of devices mean what they mean in the program of a device, in regions of manual
    partitioning, and in a program of which every device has all arrays.
    """
    inside = in_regions(whole)
    collectives = [
        i for i in whole.instructions() if i.operation.family is Family.COLLECTIVE and i not in inside
    ]
    if all(i.sharding is not None and i.sharding.kind == "manual" for i in collectives):
        return True
    shardings = [i.sharding for i in whole.instructions() if i.sharding is not None]
    elements = [e for s in shardings for e in (s.elements if s.kind == "tuple" else (s,))]
    is_divided = any(any(c.digits or c.listed for c in t.coordinates) or t.unreduced for t in tilings)
    return not is_divided and all(e.kind in ("replicated", "manual") for e in elements)


def _error_bits(
    whole: HloModule,
    local: HloModule,
    parameters: Sequence[Tiling],
    results: Sequence[Tiling],
    algebra: Algebra,
) -> int:
    """Return -log2 of the probability that these programs are different though their fingerprints are equal.

    Returns 0 if the fingerprints differ.
    """
    evaluator = DeviceEvaluator(algebra)
    arguments = [unknown(p.shape, str(n)) for n, p in enumerate(whole.entry.parameters)]
    expected = evaluator.run(whole.entry, arguments)
    devices = range(device_count(local))
    padding = [
        [unknown(p.shape, f"padding {n} of device {d}") for n, p in enumerate(local.entry.parameters)]
        for d in devices
    ]
    tiles = [tiles_of(local, arguments, parameters, d, padding[d]) for d in devices]
    values, work = results_of_devices(local, algebra, tiles)
    for device, value in enumerate(values):
        for x, y, tiling in zip(flat(value), flat(expected), results, strict=True):
            if x is None:
                continue
            differs = x.residues != tile_of(y.residues, tiling, device)
            if np.any(differs & inside(y.shape, tiling, device)):
                return 0
    return BITS - 1 - (work + evaluator.degree + evaluator.evaluations).bit_length()


def _require_tiles(
    whole: HloModule, local: HloModule, parameters: Sequence[Tiling], results: Sequence[Tiling]
) -> None:
    for side, tilings in ((_parameters, parameters), (_results, results)):
        pairs = zip(side(whole), side(local), tilings, strict=False)
        shapes = [(a.dimensions, b.dimensions, t) for a, b, t in pairs if a.is_array]
        counts = len(side(whole)), len(side(local)), len(tilings)
        wrong = next((s for s in shapes if s[2].local(s[0]) != tuple(s[1])), None)
        if wrong is not None or len(set(counts)) != 1:
            detail = f"{list(wrong[1])} is no tile of {list(wrong[0])}" if wrong else f"{counts} arrays"
            raise HloError(f"the local program does not fit the shardings: {detail}", rule="prove.tiles")


def _parameters(module: HloModule) -> list[Shape]:
    return [leaf for p in module.entry.parameters for _, leaf in p.shape.leaves()]


def _results(module: HloModule) -> list[Shape]:
    return [leaf for _, leaf in module.entry.root.shape.leaves()]
