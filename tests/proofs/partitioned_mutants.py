"""Wrong programs of devices: ``python -m tests.proofs.partitioned_mutants programs.zip --count N --seed S``.

The programs of a corpus are partitioned, and the program of a device gets one mistake: a collective that is
lost, other groups, another table of offsets, exchanged operands. No mutant is proved that the evaluator
tells from the global program.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from pathlib import Path

from hloom.debug.cut import inlined
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.proofs import Relation
from hloom.proofs.partitioned import MOST_DEVICES, prove_partitioned
from hloom.sharding import partitioned_program
from hloom.sharding.partitioning.partitioner import Partitioned
from tests.proofs.judging import is_told_apart
from tests.proofs.mutants import mutants
from tests.sharding_corpus import programs

MOST_ELEMENTS = 1 << 14
"""Programs of larger arrays have no mutants here."""


def judged(whole: HloModule, partitioned: Partitioned, mutant: HloModule) -> str:
    """Return the verdict on a mutant, and whether the evaluator tells it apart if it is not refuted."""
    tilings = partitioned.parameters, partitioned.results
    relation = prove_partitioned(whole, mutant, *tilings).relation
    if relation is Relation.REFUTED:
        return relation.value
    before = inlined(whole)
    before.config.num_partitions = before.config.replica_count = 1
    differs = is_told_apart(before, mutant, relation, tilings)
    return f"{relation.value}, {'different' if differs else 'equal on all arguments'}"


def is_small(module: HloModule) -> bool:
    """Return whether a program is evaluated in a moment."""
    leaves = [leaf for i in module.instructions() for _, leaf in i.shape.leaves() if leaf.is_array]
    return all(leaf.element_count <= MOST_ELEMENTS for leaf in leaves)


def wrong_proofs(whole: HloModule, devices: int, seed: int, most: int = 4) -> Counter[str]:
    """Return the verdicts on mutants of a partitioned program."""
    partitioned = partitioned_program(whole, devices)
    words: Counter[str] = Counter()
    if any(tiling.unreduced for tiling in partitioned.results):
        return words
    for kind, mutant in mutants(partitioned.module, seed):
        try:
            word = judged(whole, partitioned, mutant)
        except HloError:
            word = "refused"
        if word.endswith("different"):
            print(word, kind, sep="\t", flush=True)
        words[word] += 1
        if words.total() == most:
            break
    return words


def main() -> int:
    """Judge mutants; return the number of wrong proofs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    generator = random.Random(options.seed)
    entries = [
        (entry, text)
        for entry, text in programs(options.corpus)
        if not entry["template"] and entry["num_partitions"] <= MOST_DEVICES
    ]
    counts: Counter[str] = Counter()
    while counts.total() < options.count:
        entry, text = generator.choice(entries)
        module, seed = HloModule.from_text(text), generator.randrange(1 << 30)
        if not is_small(module):
            continue
        try:
            words = wrong_proofs(module, entry["num_partitions"], seed)
        except HloError:
            continue
        if any(word.endswith("different") for word in words):
            print(entry["name"], dict(words), flush=True)
        counts += words
    apart = counts["refuted"] + sum(n for word, n in counts.items() if word.endswith("different"))
    print(f"{counts.total()} mutants, {apart} told apart, {counts['refuted']} refuted:", dict(counts))
    return sum(counts[f"{r.value}, different"] for r in Relation if r.is_proof)


if __name__ == "__main__":
    sys.exit(bool(main()))
