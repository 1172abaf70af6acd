"""Generated modules with random shardings: ``python -m tests.sharding.generated --count 500 [--seed S]``.

A share of the instructions of a module, its parameters and results among them, gets random tilings over a
random mesh. Tiles run on virtual devices; results are compared with one device within rounding errors.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

from hloom.fuzzing.campaign import FormError, differences, elements
from hloom.fuzzing.generators.case import Case
from hloom.fuzzing.generators.modules import draw_module
from hloom.fuzzing.generators.shardings import retargeted
from hloom.ir.module import HloModule
from tests.sharding.runs import run_partitioned

MESHES = ((2,), (3,), (4,), (1, 2), (2, 2), (4, 2), (3, 2), (2, 2, 2))


def draw(number: int, seed: int) -> tuple[Case, HloModule]:
    """Draw the module of a number, and the same with shardings."""
    random = np.random.default_rng((seed, number))
    mesh = MESHES[int(random.integers(len(MESHES)))]
    case = draw_module(number, seed)
    return case, retargeted(case.module, mesh, number, float(random.choice([0.1, 0.3, 0.6])))


def complaints(case: Case, module: HloModule) -> list[str]:
    """Return how results on tiles differ from those of the whole."""
    arguments = [np.asarray(a) for a in case.arguments]
    _, found = run_partitioned(module, module.config.num_partitions, arguments)
    try:
        return ["\n".join(elements(d, d.where, "tiles")) for d in differences(case, [found])]
    except FormError as error:
        return [str(error)]


def main() -> None:
    """Check modules; print those that differ or are refused, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="Print the text of modules that fail.")
    chosen = parser.parse_args()
    counts: Counter[str] = Counter()
    for number in range(chosen.first, chosen.first + chosen.count):
        case, module = draw(number, chosen.seed)
        try:
            texts = complaints(case, module)
            status = "different" if texts else "equal"
        except Exception as error:  # a refusal or a defect, and not the end of the run
            status, texts = type(error).__name__, [str(error)[:300]]
        counts[status] += 1
        if texts:
            print(f"{number}: {status}: {texts[0]}", flush=True)
            if chosen.show:
                print(module.to_text(), flush=True)
    print(", ".join(f"{count} {status}" for status, count in sorted(counts.items())))


if __name__ == "__main__":
    main()
