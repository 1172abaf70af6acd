"""Draw mutants, try them, print the table: ``python -m tests.mutation --count 300 --seed 1``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import tempfile
from collections import Counter
from itertools import islice
from pathlib import Path

from .coverage_map import load, record
from .mutants import Mutant, mutants_of
from .trial import Outcome, copy_tree, try_all

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".mutation"
EQUIVALENT = Path(__file__).parent / "equivalent.txt"
Change = tuple[str, str, str]


def change_of(mutant: Mutant) -> Change:
    """Return (path, line before, line after), which identify a mutant after lines have moved."""
    return mutant.path, mutant.before.strip(), mutant.after.strip()


def equivalent() -> set[Change]:
    """Return the equivalent changes, from the list."""
    found: set[Change] = set()
    lines = [line for line in EQUIVALENT.read_text().splitlines() if not line.startswith("#")]
    for entry in "\n".join(lines).split("\n\n"):
        parts = [line.strip() for line in entry.strip().splitlines()]
        if parts:
            path, before, after, reason = parts
            assert before[:2] == "- " and after[:2] == "+ " and reason, entry
            found.add((path, before[2:].strip(), after[2:].strip()))
    return found


def candidates(only: str) -> list[Mutant]:
    """Return all mutants of the files whose paths contain a text."""
    files = [str(file.relative_to(ROOT)) for file in sorted((ROOT / "src").rglob("*.py"))]
    return [
        m for path in files if only in path and not path.endswith("_pb2.py") for m in mutants_of(ROOT, path)
    ]


def report(outcomes: list[Outcome], candidates: int) -> str:
    """Return the table, then the survivors."""
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


def recorded(log: Path) -> dict[Change, Outcome]:
    """Return the last outcome of each change in a log."""
    lines = log.read_text().splitlines() if log.exists() else []
    entries = [json.loads(line) for line in lines]
    outcomes = [Outcome(**entry | {"mutant": Mutant(**entry["mutant"])}) for entry in entries]
    return {change_of(o.mutant): o for o in outcomes}


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="a part of the paths of the files to change")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--budget", type=float, default=60.0, help="CPU seconds of the tests of one mutant")
    parser.add_argument("--fresh", action="store_true", help="record all tests anew, not the changed ones")
    parser.add_argument("--record", action="store_true", help="record tests, try nothing")
    parser.add_argument(
        "--log",
        type=Path,
        default=KEPT / "outcomes.jsonl",
        help="outcomes; mutants in it are not tried again",
    )
    parser.add_argument("--again", action="store_true", help="try the survivors in the log, no others")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hloom-coverage-", ignore_cleanup_errors=True) as scratch:
        copy_tree(ROOT, Path(scratch) / "tree")
        record(Path(scratch) / "tree", KEPT, options.workers, options.fresh)
    if options.record:
        return
    covered = load(ROOT, KEPT)
    every, before = candidates(options.only), recorded(options.log)
    if options.again:
        survivors = {change for change, o in before.items() if o.result == "survived"}
        drawn = [m for m in every if change_of(m) in survivors and covered.tests_of(m)]
    else:
        shuffled = random.Random(options.seed).sample(every, len(every))
        drawn = list(islice((m for m in shuffled if m.compiles(ROOT)), options.count))
    known = equivalent()
    drawn = [m for m in drawn if change_of(m) not in known]
    tried = dict(before)
    new = [m for m in drawn if options.again or change_of(m) not in tried]
    with (
        tempfile.TemporaryDirectory(prefix="hloom-mutation-", ignore_cleanup_errors=True) as scratch,
        options.log.open("a") as log,
    ):
        for o in try_all(ROOT, Path(scratch), covered, new, options.workers, options.budget):
            tried[change_of(o.mutant)] = o
            print(json.dumps(dataclasses.asdict(o)), file=log, flush=True)
            place = f"{o.mutant.path}:{o.mutant.line}"
            print(f"{o.result:12} {o.seconds:5.0f} s  {place}  {o.killer}", flush=True)
    print("\n" + report([tried[change_of(m)] for m in drawn], len(every)))


if __name__ == "__main__":
    main()
