"""Compile times in fresh processes: ``python -m benchmarks.fresh FILE`` prints that of a program.

The time is that of ``hloom.compile``, including the import of LLVM if it is needed, but not the start of
Python or the import of hloom.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class FreshTimes:
    """Seconds of ``hloom.compile`` in a fresh process.

    Attributes:
        cold: with nothing in the cache.
        cached: with the program in the cache.
        loads_llvm: whether LLVM was loaded although the program was in the cache.
    """

    cold: float
    cached: float
    loads_llvm: bool


def fresh_times(file: Path, tries: int = 3) -> FreshTimes:
    """Compile a program in one process with an empty cache, then in several with the cache that it filled.

    The fastest of the latter counts. Raises RuntimeError if a process fails.
    """
    with tempfile.TemporaryDirectory(prefix="hloom-bench-") as cache:
        first = _child(file, cache)
        later = [_child(file, cache) for _ in range(tries)]
    best = min(float(found["seconds"]) for found in later)
    return FreshTimes(float(first["seconds"]), best, any(bool(found["llvm"]) for found in later))


def _child(file: Path, cache: str) -> dict[str, object]:
    environment = {**os.environ, "HLOOM_CACHE_DIR": cache}
    environment.pop("HLOOM_CACHE", None)
    command = [sys.executable, "-m", "benchmarks.fresh", str(file)]
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if made.returncode:
        said = [line for line in made.stderr.splitlines() if re.match(r"[\w.]+Error: ", line)]
        raise RuntimeError(said[-1] if said else f"the process ended with {made.returncode}")
    return json.loads(made.stdout.splitlines()[-1])


def main() -> None:
    """Compile the program of a file and print seconds as JSON."""
    import time

    import hloom
    from hloom import compile as compile_module

    module = hloom.load(sys.argv[1])
    start = time.perf_counter()
    compile_module(module, backend="cpu")
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "llvm": "hloom.cpu.jit.llvm" in sys.modules}))


if __name__ == "__main__":
    main()
