"""Run programs next to unmapped pages: ``python -m tests.guard_pages [--all] [--only TEXT]``.

Every program runs twice in child processes, with its arrays before an unmapped page and after one; both
results must be equal. A program that ends its process is reported, and the others continue.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

SAMPLE_STRIDE: Final = 23
"""Without ``--all``, one of this many programs runs."""


def serve(options: Any) -> None:
    """Run programs; print the number of each before it begins."""
    from hloom import HloError
    from tests.guard_pages.memory import BEGINNING, END, guarded
    from tests.guard_pages.programs import all_programs
    from tests.samples import equal_bits

    chosen = [p for p in all_programs(options.modules, options.corpus) if options.only in p.name]
    chosen = chosen if options.all or options.only else chosen[::SAMPLE_STRIDE]
    for number, program in enumerate(chosen):
        if number < options.first:
            continue
        print(f"begin {number} {program.name}", flush=True)
        found: list[list[Any]] = []
        for place in (END, BEGINNING):
            print(f"place {place}", flush=True)
            try:
                with guarded(place):
                    found.append(program.run())
            except HloError as error:
                print(f"refused {program.name}: {error.rule}", flush=True)
                break
        if len(found) == 2 and not all(
            equal_bits(a.reshape(-1), b.reshape(-1)).all() for a, b in zip(*found, strict=True)
        ):
            print(f"differs {program.name}", flush=True)
    print(f"done {len(chosen)}", flush=True)


def run(arguments: list[str]) -> tuple[int, list[str]]:
    """Return (number of programs, failures) for the arguments of the command line."""
    findings: list[str] = []
    first = 0
    while True:
        command = [sys.executable, "-m", "tests.guard_pages", "--serve", "--first", str(first), *arguments]
        folder = Path(__file__).parents[2]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        lines = done.stdout.splitlines()
        findings += [line for line in lines if line.startswith("differs ")]
        if lines and lines[-1].startswith("done "):
            return int(lines[-1].split()[1]), findings
        begun = [line for line in lines if line.startswith("begin ")]
        if not begun:
            raise RuntimeError(done.stderr[-2000:])
        _, number, name = begun[-1].split(" ", 2)
        place = lines[-1].removeprefix("place ")
        how = f"{done.returncode}, arrays at the {place}"
        findings.append(f"ends the process ({how}) {name}\n{done.stderr[-1500:]}")
        first = int(number) + 1


def main() -> None:
    """Run programs and print the failures."""
    parser = argparse.ArgumentParser(prog="python -m tests.guard_pages", description=__doc__)
    parser.add_argument("--all", action="store_true", help="every program, not a sample")
    parser.add_argument("--only", default="", help="programs whose name holds a text")
    parser.add_argument("--modules", type=int, default=60, help="how many generated modules")
    parser.add_argument("--corpus", type=Path, help="directory of a conformance corpus")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    options: Any = parser.parse_args()
    if options.serve:
        serve(options)
        return
    start = time.time()
    count, findings = run(sys.argv[1:])
    print("\n".join(findings))
    print(f"{count} programs, {len(findings)} findings, {time.time() - start:.0f} s")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
