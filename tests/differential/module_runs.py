"""Run generated modules: ``python -m tests.differential.module_runs --count 2000 [--seed S] [--first N]``.

They are compiled and evaluated in child processes, so that a crash of native code is a finding. A failing
module is shrunk before it is shown: results are removed, and instructions become parameters with their
evaluated values, as long as the module still fails.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

import hloom
from hloom.errors import HloError
from hloom.ir.module import HloModule

from .case import program
from .modules import Module, draw_module, same
from .shrinking import smaller


def differences(module: Module) -> list[str]:
    """Return the differences of a module on the cpu backend from its reference values."""
    text = program([module.case])
    parsed = HloModule.from_text(text)
    parsed.verify()
    wanted = hloom.compile(parsed, "evaluator")(*module.case.arguments)
    found = hloom.compile(HloModule.from_text(text), "cpu")(*module.case.arguments)
    again = hloom.compile(HloModule.from_text(text), "cpu")(*module.case.arguments)
    complaints: list[str] = []
    for number, (ours, theirs, second) in enumerate(zip(found, wanted, again, strict=True)):
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            complaints.append(f"result {number}: {ours.dtype}{ours.shape}, not {theirs.dtype}{theirs.shape}")
            continue
        wrong = module.wrong(number, ours, theirs)
        if wrong.any():
            at = tuple(int(i[0]) for i in np.nonzero(wrong)) if wrong.ndim else ()
            complaints.append(
                f"result {number} ({module.results[number]}): {int(wrong.sum())} of {wrong.size} differ, "
                f"at {list(at)} {ours[at]!r}, evaluator {theirs[at]!r}"
            )
        if not same(ours, second).all():
            complaints.append(f"result {number} is another one when the module is compiled again")
    return complaints


def complaints_of(module: Module) -> list[str]:
    """Return the differences, or the error that is raised."""
    try:
        return differences(module)
    except HloError as error:
        return [f"{type(error).__name__}: {error}"]
    except Exception:  # a defect, and not the end of the run
        return [traceback.format_exc()[-3000:]]


def checked(number: int, seed: int) -> str:
    """Check the module of a number; return its differences with its text, or ""."""
    module = draw_module(number, seed)
    if not complaints_of(module):
        return ""
    module = smaller(module, lambda m: bool(complaints_of(m)))
    complaints = "\n".join(complaints_of(module))
    arguments = "\n".join(f"  p{n} = {a!r}" for n, a in enumerate(module.case.arguments))
    return f"=== modules/{number} seed {seed}\n{complaints}\n{program([module.case])}{arguments}"


def serve(first: int, count: int, seed: int) -> None:
    """Check some modules, with the number of each on a line before it is begun."""
    for number in range(first, first + count):
        print(f"begin {number}", flush=True)
        found = checked(number, seed)
        if found:
            print(found + "\n=== end", flush=True)
    print("done", flush=True)


def run(first: int, count: int, seed: int) -> list[str]:
    """Check modules in child processes and return the findings; a crash is one."""
    findings: list[str] = []
    end = first + count
    name = f"{__package__}.module_runs"
    folder = Path(__file__).parents[name.count(".")]
    while first < end:
        command = [sys.executable, "-m", name, "--serve", "--first", str(first)]
        command += ["--count", str(end - first), "--seed", str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        parts = done.stdout.split("=== ")
        findings += [f"=== {p.strip()}" for p in parts if p.startswith("modules/")]
        if done.stdout.rstrip().endswith("done"):
            break
        begun = [line for line in done.stdout.splitlines() if line.startswith("begin ")]
        number = int(begun[-1].split()[1]) if begun else first
        text = program([draw_module(number, seed).case])
        findings.append(
            f"=== modules/{number} seed {seed}\n"
            f"the process ends: {done.returncode}\n{done.stderr[-800:]}\n{text}"
        )
        first = number + 1
    return findings


def main() -> None:
    """Check modules and print the findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential.module_runs", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help="write the findings there")
    options: Any = parser.parse_args()
    if options.serve:
        serve(options.first, options.count, options.seed)
        return
    start = time.time()
    findings = run(options.first, options.count, options.seed)
    if options.log:
        options.log.write_text("\n\n".join(findings))
    print("\n\n".join(f[:3000] for f in findings[:5]))
    print(f"{options.count} modules, {len(findings)} findings, {time.time() - start:.0f} s")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
