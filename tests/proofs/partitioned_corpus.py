"""Judge hloom's partitioner: ``python -m tests.proofs.partitioned_corpus programs.zip [--only NAME]``.

Prints each program that is not proved, and the numbers of verdicts; exits with 1 if one is refuted.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from hloom import HloError, HloModule
from hloom.proofs.partitioned import prove_partitioned
from hloom.sharding import partitioned_program
from tests.sharding_corpus import programs


def judged(text: str, devices: int) -> tuple[str, str]:
    """Return the verdict on a program's partitioning, and its reason."""
    module = HloModule.from_text(text)
    try:
        partitioned = partitioned_program(module, devices)
        verdict = prove_partitioned(
            module, partitioned.module, partitioned.parameters, partitioned.results, samples=2
        )
    except HloError as error:
        return "refused", str(error).replace("\n", " ")
    return verdict.relation.value, verdict.reason or verdict.inputs


def main() -> None:
    """Judge every program of a corpus."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--only", default="", help="Judge the programs whose names contain this.")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for entry, text in programs(options.corpus):
        if options.only in entry["name"] and not entry["template"]:
            relation, reason = judged(text, entry["num_partitions"])
            counts[relation] += 1
            if relation in ("refuted", "open", "refused"):
                print(f"{relation:10} {entry['name']:60} {reason[:140]}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    sys.exit(1 if counts["refuted"] else 0)


if __name__ == "__main__":
    main()
