"""Judge the passes of compilers: ``python -m tests.proofs.pipeline_corpus OUT.jsonl PATH... [--by xla]``.

Each program file, and the first stage of each program in a folder of dumps, runs through hloom's passes;
with ``--by xla`` the stages that XLA dumped are judged. Every program is judged in a process of its own, and
adds a line to OUT: its name, peak memory, and for each pass the verdict and the seconds of CPU time. Programs
that are in OUT are not judged again. Prints what is open, refuted or slow, and a summary.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hloom.debug.optimization import optimized
from hloom.dumps import DumpedProgram, dumped_programs
from hloom.errors import HloError
from hloom.files import load
from hloom.ir.module import HloModule
from hloom.proofs.dumps import judged
from hloom.proofs.refutation import SAMPLES
from hloom.proofs.verdict import Fingerprinted

SLOW = 10.0
"""Seconds from which on a pass is printed."""


def stages(path: Path, program: DumpedProgram | None, by: str) -> Iterator[tuple[str, HloModule]]:
    """Yield a program before its passes, and after each."""
    if by == "xla":
        assert program is not None
        yield from ((stage.title, load(stage.path)) for stage in program.passes or program.stages)
        return
    module = load(program.stages[0].path if program is not None else path)
    results = [("", module.clone())]
    optimized(module, backend="cpu", observe=lambda item, after: results.append((item.name, after.clone())))
    yield from results


def rows(path: Path, program: DumpedProgram | None, by: str) -> Iterator[dict[str, Any]]:
    """Yield the verdict on each pass."""
    before: Fingerprinted | None = None
    for name, module in stages(path, program, by):
        start = time.process_time()
        after = Fingerprinted(module)
        if before is not None:
            verdict = judged(before, after, SAMPLES)
            yield {
                "pass": name,
                "relation": verdict.relation.value,
                "seconds": round(time.process_time() - start, 2),
                "why": " ".join(filter(None, (verdict.inputs, verdict.reason, verdict.instruction))),
            }
        before = after


def judged_apart(path: Path, program: DumpedProgram | None, by: str, out: Path) -> None:
    """Append the verdicts on a program to a file, from a process of its own."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    line: dict[str, Any] = {"program": name_of(path, program), "passes": []}
    try:
        line["passes"] = list(rows(path, program, by))
    except HloError as error:
        line["error"] = str(error)
    line["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    with out.open("a") as file:
        print(json.dumps(line), file=file)
    os._exit(0)


def name_of(path: Path, program: DumpedProgram | None) -> str:
    """Return the name of a program: its last folder and its own."""
    return f"{path.name}/{program.name}" if program is not None else "/".join(path.parts[-2:])


def lines_of(out: Path) -> list[dict[str, Any]]:
    """Return the programs that are judged."""
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def summary(programs: list[dict[str, Any]]) -> str:
    """Return the numbers of verdicts, the median and the largest time, and the largest memory."""
    passes = [row for line in programs for row in line["passes"]]
    counts = Counter(row["relation"] for row in passes)
    seconds = [row["seconds"] for row in passes]
    return (
        f"{len(programs)} programs, {len(passes)} passes: "
        + ", ".join(f"{number} {word}" for word, number in counts.items())
        + f"; median {statistics.median(seconds):.2f} s, at most {max(seconds):.1f} s, "
        + f"{max(line['megabytes'] for line in programs)} MB"
    )


def main() -> int:
    """Judge programs; return 1 if a pass is refuted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("paths", type=Path, nargs="*")
    parser.add_argument("--by", choices=("hloom", "xla"), default="hloom", help="The compiler.")
    options = parser.parse_args()
    done = {line["program"] for line in lines_of(options.out)}
    for path in options.paths:
        programs = dumped_programs(path) if path.is_dir() else [None]
        for program in programs:
            if name_of(path, program) not in done:
                judged_apart(path, program, options.by, options.out)
    programs = lines_of(options.out)
    for line in programs:
        if "error" in line:
            print(line["program"], line["error"])
        for row in line["passes"]:
            if row["relation"] in ("open", "refuted") or row["seconds"] >= SLOW:
                print(line["program"], *row.values(), sep="\t")
    print(summary(programs))
    return int(any(row["relation"] == "refuted" for line in programs for row in line["passes"]))


if __name__ == "__main__":
    sys.exit(main())
