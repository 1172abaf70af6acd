"""Draw mutants, try them, print the table: ``python -m tests.mutation --count 300 --seed 1``."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from .coverage_map import CoverageMap, digest, load, make
from .mutants import Mutant, mutants_of
from .trial import Outcome, try_all

ROOT = Path(__file__).parents[2]
MAP = ROOT / ".mutation" / "coverage.json"
EQUIVALENT = Path(__file__).parent / "equivalent.txt"


def equivalent() -> set[tuple[str, str, str]]:
    """Return (path, line before, line after) of the equivalent changes, from the list."""
    found: set[tuple[str, str, str]] = set()
    lines = [line for line in EQUIVALENT.read_text().splitlines() if not line.startswith("#")]
    for entry in "\n".join(lines).split("\n\n"):
        parts = [line.strip() for line in entry.strip().splitlines()]
        if parts:
            path, before, after, reason = parts
            assert before[:2] == "- " and after[:2] == "+ " and reason, entry
            found.add((path, before[2:].strip(), after[2:].strip()))
    return found


def candidates(covered: CoverageMap, only: str) -> list[Mutant]:
    """Return all mutants of lines that tests run, in files unchanged since the map was made."""
    known = equivalent()
    made: list[Mutant] = []
    for path in sorted(covered.lines):
        if only not in path:
            continue
        if not (ROOT / path).is_file() or digest(ROOT / path) != covered.digests[path]:
            print(f"{path} has changed since the map was made; --fresh makes a new one", file=sys.stderr)
            continue
        for mutant in mutants_of(ROOT, path):
            listed = (path, mutant.before.strip(), mutant.after.strip()) in known
            if mutant.line in covered.lines[path] and not listed:
                made.append(mutant)
    return made


def report(outcomes: list[Outcome], candidates: int) -> str:
    """Print the table, then the survivors."""
    counts = Counter(o.result for o in outcomes)
    kinds = sorted({o.mutant.kind for o in outcomes})
    lines = [f"{len(outcomes)} of {candidates} mutants", "", f"{'':24}  killed  out of time  survived"]
    for kind in [*kinds, "all"]:
        of = Counter(o.result for o in outcomes if kind in (o.mutant.kind, "all"))
        lines.append(f"{kind:24}  {of['killed']:6}  {of['out of time']:11}  {of['survived']:8}")
    found = counts["killed"] + counts["out of time"]
    lines += ["", f"{100 * found / max(1, len(outcomes)):.1f} % found"]
    for o in outcomes:
        if o.result == "survived":
            lines += ["", f"{o.mutant}", f"    {o.tried} of {o.covering} tests that run the line were tried"]
    return "\n".join(lines)


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="a part of the paths of the files to change")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, default=90.0, help="seconds for the tests of one mutant")
    parser.add_argument("--fresh", action="store_true", help="make the map of coverage anew")
    parser.add_argument("--tests", nargs="*", default=[], help="for the map only these tests, not all")
    parser.add_argument("--out", type=Path, help="write the table there, too")
    options = parser.parse_args()
    covered = make(ROOT, MAP, options.tests) if options.fresh or not MAP.exists() else load(MAP)
    every = candidates(covered, options.only)
    drawn = random.Random(options.seed).sample(every, min(options.count, len(every)))
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="hloom-mutation-") as scratch:
        for o in try_all(ROOT, Path(scratch), covered, drawn, options.workers, options.limit):
            outcomes.append(o)
            place = f"{o.mutant.path}:{o.mutant.line}"
            print(f"{o.result:12} {o.seconds:5.0f} s  {place}  {o.killer}", flush=True)
    text = report(outcomes, len(every))
    print("\n" + text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
