"""One program on one platform, driven by lines of JSON on standard input and output.

After ``build`` and the first step it says how long they took; then each line of input asks for samples, and
is answered by their seconds. The end of the input is answered by the memory that the process needed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

COMPARED = 2
"""Steps whose results are compared."""


def main() -> None:
    """Serve: ``child PROGRAM FILE CLOCK``; the results of the first steps go to the file."""
    name, file, clock_name = sys.argv[1:]
    clock = time.process_time if clock_name == "cpu" else time.perf_counter
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what programs print is not an answer
    if os.environ.get("HLOOM_AS_CPU"):
        from hloom.jax import plugin

        plugin.initialize()
    try:
        module = import_module(f"benchmarks.jax_programs.programs.{name}")
    except ModuleNotFoundError as error:
        print(json.dumps({"missing": error.name}), file=out, flush=True)
        return
    import jax
    import numpy as np

    jax.devices()
    start = clock()
    state = module.build()
    jax.block_until_ready(jax.tree.leaves(state))
    built = clock() - start
    compared: list[Any] = []
    first = 0.0
    for number in range(COMPARED):
        start = clock()
        state, result = module.step(state)
        jax.block_until_ready(result)
        if number == 0:
            first = clock() - start
        compared += [np.asarray(leaf) for leaf in jax.tree.leaves(result)]
    np.savez(file, *compared)
    tolerance = getattr(module, "TOLERANCE", None)
    print(json.dumps({"build": built, "first": first, "tolerance": tolerance}), file=out, flush=True)
    for line in sys.stdin:
        seconds: list[float] = []
        for _ in range(json.loads(line)):
            start = clock()
            state, result = module.step(state)
            jax.block_until_ready(result)
            seconds.append(clock() - start)
        print(json.dumps(seconds), file=out, flush=True)
    print(json.dumps({"peak": peak_bytes()}), file=out, flush=True)


def peak_bytes() -> int:
    """Return the most memory that the process had (``ru_maxrss`` counts its parent at the fork as well)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])


if __name__ == "__main__":
    main()
