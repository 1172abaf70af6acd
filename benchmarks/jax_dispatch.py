"""Dispatch times of JAX on hloom and on its own CPU client: ``python -m benchmarks.jax_dispatch``.

Each kind of call is timed in batches on both sides in turn, in processes of their own; the least time of a
call in any batch is printed, because others of the machine only ever add to it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final

ROUNDS: Final = 7
SIDES: Final = {"stock": {}, "hloom": {"HLOOM_AS_CPU": "1"}}


def calls() -> dict[str, Callable[[], Any]]:
    """Return the kinds of calls, each a function of one call; JAX is imported here."""
    if os.environ.get("HLOOM_AS_CPU"):
        import hloom.jax.plugin

        hloom.jax.plugin.initialize()
    import jax
    import jax.numpy as jnp
    import numpy as np

    x, host = jnp.arange(4.0), np.arange(4.0, dtype=np.float32)
    add = jax.jit(lambda v: v + 1)
    many = jax.jit(lambda *vs: tuple(v + 1 for v in vs))
    twenty = [jnp.float32(n) * jnp.ones(4) for n in range(20)]
    tree = {f"leaf{n}": jnp.ones(4) * n for n in range(200)}
    through = jax.jit(lambda t: jax.tree.map(lambda v: v + 1, t))
    return {
        "f(x), 4 floats": lambda: add(x),
        "np.asarray(f(x))": lambda: np.asarray(add(x)),
        "f(numpy array)": lambda: add(host),
        "20 in, 20 out": lambda: many(*twenty),
        "200 leaves": lambda: through(tree),
        "jnp.asarray(numpy)": lambda: jnp.asarray(host),
        "x + 1 (eager)": lambda: x + 1,
    }


def serve() -> None:
    """Time a batch of each kind of call whenever a line comes in."""
    import time

    kinds = calls()
    for _ in sys.stdin:
        times: dict[str, float] = {}
        for name, call in kinds.items():
            for _ in range(20):
                call()
            best = float("inf")
            for _ in range(5):
                start = time.perf_counter()
                for _ in range(200):
                    call()
                best = min(best, (time.perf_counter() - start) / 200)
            times[name] = best
        print(json.dumps(times), flush=True)


def main() -> None:
    """Run both sides in turn and print the table."""
    command = [sys.executable, "-m", "benchmarks.jax_dispatch", "serve"]
    processes = {
        side: subprocess.Popen(
            command,
            env={**os.environ, "JAX_PLATFORMS": "cpu", **extra},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for side, extra in SIDES.items()
    }
    best: dict[str, dict[str, float]] = {side: {} for side in SIDES}
    for _ in range(ROUNDS):
        for side, process in processes.items():
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            for name, seconds in json.loads(process.stdout.readline()).items():
                best[side][name] = min(seconds, best[side].get(name, float("inf")))
    for process in processes.values():
        process.communicate()
    print(f"{'':22}{'stock us':>10}{'hloom us':>10}{'ratio':>8}")
    for name, seconds in best["stock"].items():
        ours = best["hloom"][name]
        print(f"{name:22}{1e6 * seconds:10.2f}{1e6 * ours:10.2f}{ours / seconds:8.2f}")


if __name__ == "__main__":
    serve() if "serve" in sys.argv else main()
