"""Generated modules with random shardings: ``python -m tests.sharding.generated --count 500 [--seed S]``.

The modules are those of the differential test. A share of the instructions, drawn for each module, gets
random tilings over a random mesh. Tiles run on virtual devices; results are compared with one device within
the errors that the module states, exactly where it is exact.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

import hloom
from hloom.ir.module import HloModule
from tests.differential.case import program
from tests.differential.modules import Module, draw_module
from tests.sharding.retargeting import retargeted
from tests.sharding.runs import run_partitioned

MESHES = ((2,), (3,), (4,), (1, 2), (2, 2), (4, 2), (3, 2), (2, 2, 2))


@dataclass(frozen=True)
class Sharded:
    """A generated module with shardings.

    Attributes:
        generated: the module, with its arguments and the errors of its results.
        module: the same with shardings.
        mesh: the sizes of the axes.
    """

    generated: Module
    module: HloModule
    mesh: tuple[int, ...]

    def differences(self) -> list[str]:
        """Return in which results tiles differ from the whole."""
        arguments = self.generated.case.arguments
        wanted = hloom.compile(HloModule.from_text(program([self.generated.case])), "evaluator")(*arguments)
        _, found = run_partitioned(self.module, math.prod(self.mesh), list(arguments))
        complaints: list[str] = []
        for number, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
            if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
                complaints.append(f"result {number}: {ours.dtype}{ours.shape}, {theirs.dtype}{theirs.shape}")
                continue
            wrong = self.generated.wrong(number, ours, theirs)
            if wrong.any():
                at = tuple(int(i[0]) for i in np.nonzero(wrong)) if wrong.ndim else ()
                value = self.generated.results[number]
                complaints.append(f"result {number} ({value}) at {list(at)}: {ours[at]!r}, {theirs[at]!r}")
        return complaints


def draw(number: int, seed: int) -> Sharded:
    """Draw the module of a number, with its mesh and its shardings."""
    random = np.random.default_rng((seed, number))
    mesh = MESHES[int(random.integers(len(MESHES)))]
    generated = draw_module(number, seed)
    added = float(random.choice([0.1, 0.3, 0.6]))
    module = retargeted(HloModule.from_text(program([generated.case])), mesh, number, added)
    return Sharded(generated, module, mesh)


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
        sharded = draw(number, chosen.seed)
        try:
            complaints = sharded.differences()
            status = "different" if complaints else "equal"
        except Exception as error:  # a refusal or a defect, and not the end of the run
            status, complaints = type(error).__name__, [str(error)[:300]]
        counts[status] += 1
        if complaints:
            print(f"{number} over {sharded.mesh}: {status}: {complaints[0]}", flush=True)
            if chosen.show:
                print(sharded.module.to_text(), flush=True)
    print(", ".join(f"{count} {status}" for status, count in sorted(counts.items())))


if __name__ == "__main__":
    main()
