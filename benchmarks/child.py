"""One program on one side, driven by lines of JSON on standard input and output.

A program is a module with the functions ``build`` and ``step``, or ``MODULE:NAME``: ``Model(NAME)`` of a
module, with these methods.

After ``build`` and the first step it says how long they took; then each line of input asks for samples, and
is answered by their seconds. The end of the input is answered by the memory that the process needed, and by
the cost of a step if the program tells it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

COMPARED = 2
"""Steps whose results are compared."""
MOST_ELEMENTS = 1 << 16
"""Elements that are compared of an array; of larger ones equally spaced ones."""


class JaxResults:
    """The results of JAX programs."""

    def ready(self, result: Any) -> Any:
        """Wait for a result."""
        import jax

        return jax.block_until_ready(jax.tree.leaves(result))

    def arrays(self, result: Any) -> list[np.ndarray]:
        """Return its leaves, those of small floating-point types as f32."""
        import jax

        arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(result)]
        return [a.astype(np.float32) if a.dtype.kind == "V" else a for a in arrays]


def program_of(name: str) -> tuple[Any, Any]:
    """Return a program and the object that reads its results."""
    module, _, model = name.partition(":")
    program = import_module(module)
    if model:
        program = program.Model(model)
    if hasattr(program, "ready"):
        return program, program
    import jax

    jax.devices()
    return program, JaxResults()


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
        program, results = program_of(name)
    except ModuleNotFoundError as error:
        print(json.dumps({"missing": error.name}), file=out, flush=True)
        return
    start = clock()
    state = program.build()
    results.ready(state)
    built = clock() - start
    compared: list[np.ndarray] = []
    first = 0.0
    most = getattr(program, "COMPARED", None) or COMPARED
    for number in range(COMPARED):
        start = clock()
        state, result = program.step(state)
        results.ready(result)
        if number == 0:
            first = clock() - start
        if number < most:
            compared += [sampled(array) for array in results.arrays(result)]
    np.savez(file, *compared)
    tolerance = getattr(program, "TOLERANCE", None)
    print(json.dumps({"build": built, "first": first, "tolerance": tolerance}), file=out, flush=True)
    for line in sys.stdin:
        seconds: list[float] = []
        for _ in range(json.loads(line)):
            start = clock()
            state, result = program.step(state)
            results.ready(result)
            seconds.append(clock() - start)
        print(json.dumps(seconds), file=out, flush=True)
    peak = peak_bytes()
    cost = program.cost(state) if hasattr(program, "cost") else {}
    print(json.dumps({"peak": peak, "cost": cost}), file=out, flush=True)


def sampled(array: np.ndarray) -> np.ndarray:
    """Copy an array, or equally spaced elements of a large one; a view would keep the results in memory."""
    step = max(1, array.size // MOST_ELEMENTS)
    return array.reshape(-1)[::step].copy() if step > 1 else array.copy()


def peak_bytes() -> int:
    """Return the most memory that the process had (``ru_maxrss`` counts its parent at the fork as well)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])


if __name__ == "__main__":
    main()
