"""Run a conformance corpus: ``python -m tests.conformance DIR A|B|C [--name A] [--backend cpu]``.

Exits with 1 if a case was missed that XLA passes. A and B hold programs with known answers, C texts with
XLA's canonical print. See the corpus' own README.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np

import hloom
import hloom.operations
from hloom.debug.error_analysis import ErrorAnalysis
from hloom.errors import HloError, NoBound
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions
from hloom.ir.xla_version import OLDEST
from hloom.shape.element_type import ElementType
from tests import agreement

CANONICAL: Final = PrintOptions(xla_version=OLDEST)
"""The form of the corpus' texts, which jaxlib 0.10.2 printed."""


def cases(folder: Path) -> Iterator[dict[str, Any]]:
    """Return the entries of a corpus' index."""
    with open(folder / "index.jsonl") as index:
        yield from map(json.loads, index)


def load(folder: Path, case: dict[str, Any], *, proto: bool) -> HloModule:
    """Return the program of a case, from its text or its (exact) proto."""
    path = folder / (case.get("hlo") or case["name"] + ".hlo")
    if proto:
        return HloModule.from_proto(path.with_suffix(".pb").read_bytes())
    return HloModule.from_text(path.read_text())


def evaluated(module: HloModule, arguments: list[Any], backend: str) -> Any:
    """Return the result of a program on a backend."""
    if backend == "evaluator":
        return Evaluator().run(module.entry, arguments)
    return hloom.compile(module, backend=backend)(*arguments)


def check_single(folder: Path, case: dict[str, Any], *, proto: bool, check: Any, backend: str) -> str:
    """Return a message if a case of one program fails, else ""."""
    module = load(folder, case, proto=proto)
    module.verify()
    if case.get("subset") == "dynamic":
        stored = np.load(folder / (case["name"] + ".npz"))
        inputs = [_typed(stored[f"in_{i}"], t) for i, t in enumerate(case["in_dtypes"])]
        wanted = [_typed(stored[f"out_{i}"], t) for i, t in enumerate(case["out_dtypes"])]
        value = evaluated(module, inputs, backend)
        found = list(value) if isinstance(value, tuple) else [value]
        return rounding_difference(module, inputs, found, wanted)
    value = evaluated(module, [], backend)
    leaves: Any = value if isinstance(value, tuple) else (value,)
    for c in case["checks"]:  # with the tolerances of XLA's own tests
        ok, info = check(c["kind"], c["tolerance"], leaves[c["actual_index"]], leaves[c["expected_index"]])
        if not ok and (c["kind"] == "exact" or not _is_rounding(module, leaves, c)):
            return f"{c['kind']} {c['tolerance']}: {info}"
    return ""


def _is_rounding(module: HloModule, leaves: Sequence[Any], check: dict[str, Any]) -> bool:
    """Return whether a result is within the rounding error of the program, which sums of large terms need."""
    number, wanted = check["actual_index"], leaves[check["expected_index"]]
    return not rounding_difference(module, [], [leaves[number]], [wanted], number)


def rounding_difference(
    module: HloModule, inputs: list[Any], found: list[Any], wanted: list[Any], first: int = 0
) -> str:
    """Return a message if results, from number ``first`` on, exceed the program's rounding error, else ""."""
    try:
        bounds = agreement.flat(ErrorAnalysis(module).run(inputs)[1])[first : first + len(found)]
        agreement.within([flushed(f) for f in found], wanted, bounds)
    except (AssertionError, NoBound) as error:
        return str(error)
    return ""


def flushed(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Zero for subnormal numbers, as in the stored results, which XLA:CPU made."""
    kind = ElementType.from_dtype(array.dtype)
    least = 2.0**-1022 if kind.bits == 64 else 2.0**-126
    if not kind.is_floating:
        return array
    return np.where(np.abs(array.astype(np.float64)) < least, array.dtype.type(0), array)


def _typed(array: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    wanted = np.dtype(getattr(ml_dtypes, dtype, dtype))
    return array if array.dtype == wanted else array.view(wanted)


def check_parallel(folder: Path, case: dict[str, Any], *, check: Any, backend: str, **_: Any) -> str:
    """Return a message if the programs of several devices fail, else ""."""
    stored = json.loads((folder / case["json"]).read_text())
    impossible = [f"{name}: {p['error'][:200]}" for name, p in stored["programs"].items() if "hlo" not in p]
    if impossible:
        return f"SKIP, not expressible in HLO: {impossible[0]}"
    modules = {name: HloModule.from_text(p["hlo"]) for name, p in stored["programs"].items()}
    problems: list[str] = []
    for run in stored["runs"]:
        programs = [modules[name] for row in run["grid"] for name in row]
        executable = hloom.compile(
            programs, backend, num_replicas=run["num_replicas"], num_partitions=run["num_partitions"]
        )
        for name in run["infeed"]:
            executable.devices[0].transfer_to_infeed(hloom.compile(modules[name])())
        results = executable.run([[_argument(i) for i in p["inputs"]] for p in run["processes"]])
        for process, result in zip(run["processes"], results, strict=True):
            for index, expected in (process.get("expected") or {}).items():
                ok, info = check("exact", 0, result[int(index)], _argument(expected))
                if not ok:
                    problems.append(f"replica {process['replica']} partition {process['partition']}: {info}")
    return "; ".join(problems)


def _argument(stored: Any) -> Any:
    if stored == "token":
        return None
    dtype = np.dtype(getattr(ml_dtypes, stored["dtype"], stored["dtype"]))
    return np.array(stored["value"], dtype).reshape(stored["shape"])


def check_text(folder: Path, case: dict[str, Any], **_: Any) -> str:
    """Return a message if a text is not accepted and printed (or refused) as by XLA, else ""."""
    text = (folder / (case["name"] + ".hlo")).read_text()
    try:
        module = HloModule.from_text(text)
    except HloError as error:
        if case["accepted"]:
            return f"refused: {error}"
        return "" if error.line else f"refused without a place: {error}"
    if not case["accepted"]:
        return f"accepted, but XLA says: {case['error'][:300]}"
    printed = module.to_text(CANONICAL)
    wanted = (folder / (case["name"] + ".canon")).read_text()
    if printed.strip() != wanted.strip():
        return "\n".join(_first_difference(printed, wanted))
    if not case.get("full_fixed_point"):
        return ""  # XLA cannot parse its own print
    again = HloModule.from_text(printed).to_text(CANONICAL)
    return "" if again == printed else "print -> parse -> print differs"


def _first_difference(printed: str, wanted: str) -> Iterator[str]:
    for a, b in zip((printed + "\n\0").split("\n"), (wanted + "\n\0").split("\n"), strict=False):
        if a != b:
            yield f"    got {a[:400]}"
            yield f"   want {b[:400]}"
            return


def main() -> int:
    """Run the chosen cases, print the misses, and return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("corpus", choices=["A", "B", "C"])
    parser.add_argument("--name", default="")
    parser.add_argument("--opcode", default="")
    parser.add_argument("--sample", type=int, metavar="N", help="only N of these cases, at equal distances")
    parser.add_argument("--proto", action="store_true")
    parser.add_argument("--backend", choices=["evaluator", "cpu"], default="evaluator")
    parser.add_argument("--quiet", action="store_true", help="names of the misses only")
    options = parser.parse_args()
    folder = options.folder / options.corpus
    sys.path.insert(0, str(folder))
    check = _checker(options.folder)
    passed, missed, missed_by_xla, skipped, start = 0, 0, 0, 0, time.time()
    chosen = [
        case
        for case in cases(folder)
        if options.name in case["name"] and (not options.opcode or options.opcode in case.get("opcodes", {}))
    ]
    count = len(chosen) if options.sample is None else min(options.sample, len(chosen))
    for case in (chosen[n * len(chosen) // count] for n in range(count)):
        try:
            run = check_text if options.corpus == "C" else check_single
            if case.get("kind") == "parallel":
                run = check_parallel
            problem = run(folder, case, proto=options.proto, check=check, backend=options.backend)
        except HloError as error:
            problem = f"{type(error).__name__}: {error}"
        except Exception as error:  # a crash is a miss with a name, not the end of the run
            problem = f"CRASH {type(error).__name__}: {error}"
        if problem.startswith("SKIP"):
            skipped += 1
            print(f"{case['name']}: {problem}")
        elif problem:
            is_xlas = case.get("oracle_ok") is False
            missed, missed_by_xla = missed + (not is_xlas), missed_by_xla + is_xlas
            whose = ", as XLA does" if is_xlas else ""
            print(f"MISS {case['name']}{whose}" + ("" if options.quiet else f": {problem[:900]}"))
        else:
            passed += 1
    counts = f"{passed} passed, {missed} missed, {missed_by_xla} missed by XLA too, {skipped} skipped"
    print(f"{counts}, {time.time() - start:.1f} s")
    return int(missed > 0)


def _checker(folder: Path) -> Any:
    for place in (folder, Path("../shared/conformance")):
        if (place / "check.py").exists():
            sys.path.insert(0, str(place))
            import check  # type: ignore[import-not-found]

            return check.check
    raise SystemExit("check.py of the corpus is not there")


if __name__ == "__main__":
    sys.exit(main())
