"""``make aarch64``: run tests on an emulated aarch64 processor, and print what passed.

::

    python -m tests.aarch64 conformance jax --count 500 --workers 2
    QEMU_CPU=max python -m tests.aarch64 kernels

The conformance corpus is read from ``../shared/conformance``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from typing import Final

from tests.aarch64.environment import FOLDER, PROCESSOR, ROOT, prepare

CORPUS: Final = ROOT.parent / "shared" / "conformance"
SHARES: Final = {"A": 0.6, "B": 0.1, "C": 0.3}
"""Shares of the parts of the conformance corpus in a sample."""
JAX_PROGRAMS: Final = 20


def conformance(count: int, workers: int) -> Iterator[list[str]]:
    """Yield the commands that run a sample of the conformance corpus on the cpu backend."""
    del workers  # a case takes a fraction of the time in which a worker starts
    folder = FOLDER / "conformance"
    for part, share in SHARES.items():
        if not (folder / part).exists():
            zipfile.ZipFile(CORPUS / f"{part}.zip").extractall(folder / part)
            shutil.copy(CORPUS / "check.py", folder)
        sample = f"--sample={round(count * share)}"
        yield ["-m", "tests.conformance", str(folder), part, "--backend=cpu", "--quiet", sample]


def kernels(count: int, workers: int) -> Iterator[list[str]]:
    """Yield the command that runs the tests of the cpu backend's kernels, code generation and loader."""
    del count
    yield pytest(workers, "tests/cpu", "tests/codegen")


def runtime(count: int, workers: int) -> Iterator[list[str]]:
    """Yield the command that runs the tests of the run time."""
    del count
    yield pytest(workers, "tests/runtime")


def jax(count: int, workers: int) -> Iterator[list[str]]:
    """Yield the command that runs JAX programs on hloom and on JAX's own client."""
    from tests.jax_platform.test_programs import NAMES

    del count, workers  # all run in one process for each client
    test = "tests/jax_platform/test_programs.py::test_programs_agree"
    yield pytest(0, *(f"{test}[{name}]" for name in spread(NAMES, JAX_PROGRAMS)))


GROUPS: Final = {group.__name__: group for group in (conformance, kernels, runtime, jax)}


def spread(names: Sequence[str], count: int) -> list[str]:
    """Return names at equal distances."""
    return [names[n * len(names) // count] for n in range(min(count, len(names)))]


def pytest(workers: int, *tests: str) -> list[str]:
    """Return the command that runs tests."""
    return ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(workers), *tests]


def main() -> int:
    """Run the groups, print a line for each, and return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.aarch64", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"{', '.join(GROUPS)} (all)")
    parser.add_argument("--count", type=int, default=500, help="cases of the conformance corpus")
    parser.add_argument("--workers", type=int, default=2, help="processes of pytest")
    options = parser.parse_args()
    python = prepare()
    environment = {**os.environ, "QEMU_CPU": os.environ.get("QEMU_CPU", PROCESSOR)}
    outcomes: list[tuple[str, str]] = []
    for name in options.groups or GROUPS:
        for command in GROUPS[name](options.count, options.workers):
            began = time.monotonic()
            status = subprocess.run([python, *command], cwd=ROOT, env=environment).returncode
            outcome = "passed" if status == 0 else f"FAILED ({status})"
            outcomes.append((name, f"{outcome} in {time.monotonic() - began:.0f} s: {' '.join(command[:4])}"))
    for name, outcome in outcomes:
        print(f"{environment['QEMU_CPU']}: {name} {outcome}")
    return int(any("FAILED" in outcome for _, outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
