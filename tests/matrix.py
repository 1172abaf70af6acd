"""`make matrix`: run the tests that depend on the versions of Python and JAX with every interpreter.

``tests/interpreters`` finds the interpreters. Each gets an environment in ``.matrix/`` with the newest JAX
that its version and the extra ``jax`` allow, and the locked versions of everything else; they are installed
at the same time.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
TESTS = (
    "tests/jax_platform", "tests/stablehlo", "tests/text", "tests/proto", "tests/test_interface.py",
    "tests/test_completeness.py",
)  # fmt: skip
PACKAGES = (".[jax]", "hypothesis", "mpmath", "pytest", "pytest-xdist")


class Interpreter(NamedTuple):
    """A Python: its version, such as 3.13, and its path."""

    version: str
    path: str


def interpreters(versions: Sequence[str] = (), path: str | None = None) -> list[Interpreter]:
    """Return the interpreters that start, the newest first; ``path`` stands for PATH."""
    environment = dict(os.environ) if path is None else {**os.environ, "PATH": path}
    command = ["/bin/sh", str(ROOT / "tests" / "interpreters"), *([" ".join(versions)] if versions else [])]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return [Interpreter(*line.split(" ", 1)) for line in output.splitlines()]


def constraints(lock: str) -> str:
    """Return the versions of a lock, without hashes and without those of JAX."""
    pins = re.findall(r"^([\w.-]+==[^\s;]+)", lock, re.MULTILINE)
    return "".join(f"{pin}\n" for pin in pins if not pin.startswith("jax"))


def environment_of(interpreter: Interpreter, folder: Path) -> Path:
    """Create or complete the environment of an interpreter; return its Python."""
    python = folder / "bin" / "python"
    stamp, sources = folder / ".installed", (ROOT / "pyproject.toml", ROOT / "requirements.lock")
    if stamp.exists() and all(stamp.stat().st_mtime > source.stat().st_mtime for source in sources):
        return python
    subprocess.run([interpreter.path, "-m", "venv", "--clear", folder], check=True)
    fixed = folder / "constraints.txt"
    fixed.write_text(constraints((ROOT / "requirements.lock").read_text()))
    install = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-compile"]
    subprocess.run([*install, "-c", fixed, "-e", *PACKAGES], cwd=ROOT, check=True)
    stamp.touch()
    return python


def run(interpreter: Interpreter, python: Path, workers: int, options: Sequence[str]) -> bool:
    """Run the tests with an interpreter, by the Python of its environment; return whether they pass.

    The tests of a file run in one process: some share programs that take a minute.
    """
    began = time.monotonic()
    code = "from importlib.metadata import version; print(version('jax'), version('jaxlib'))"
    shown = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    print(f"Python {interpreter.version}: {interpreter.path}, jax {shown[0]}, jaxlib {shown[1]}", flush=True)
    command = [python, "-m", "pytest", "-q", "-n", str(workers), "--dist=loadfile", *TESTS, *options]
    passed = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode == 0
    seconds = time.monotonic() - began
    print(
        f"Python {interpreter.version}: {'passed' if passed else 'FAILED'} in {seconds:.0f} s\n", flush=True
    )
    return passed


def main() -> int:
    """Run all; return 1 if some failed or no interpreter was there."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--python", action="append", choices=VERSIONS, default=[], help="only these versions")
    parser.add_argument("--others", action="store_true", help=f"not {OWN}, which `make test` tests")
    parser.add_argument("--prepare", action="store_true", help="create the environments only")
    parser.add_argument("--workers", type=int, default=2, help="processes of each run")
    options, rest = parser.parse_known_args()
    wanted = options.python or [v for v in VERSIONS if not (options.others and v == OWN)]
    found = interpreters(wanted)[::-1]
    with ThreadPoolExecutor(options.workers) as pool:
        pythons = [*pool.map(lambda i: environment_of(i, ROOT / ".matrix" / i.version), found)]
    if options.prepare:
        return 0
    results = {i.version: run(i, p, options.workers, rest) for i, p in zip(found, pythons, strict=True)}
    print(summary(wanted, results))
    return int(not all(results.values()) or not (results or options.others))


def summary(wanted: Sequence[str], results: dict[str, bool]) -> str:
    """Return a line for passed, failed and missing versions."""
    groups = {
        "passed": [v for v in wanted if results.get(v) is True],
        "failed": [v for v in wanted if results.get(v) is False],
        "missing on this machine": [v for v in wanted if v not in results],
    }
    return "; ".join(f"{name}: Python {', '.join(group)}" for name, group in groups.items() if group)


if __name__ == "__main__":
    sys.exit(main())
