"""First calls of JAX programs on hloom and on JAX's own CPU client: ``python -m benchmarks.jax_first_call``.

Measured are a process from its start to its first result, the mean of a hundred eager operations, and a
training step of a small GPT; each in processes of their own, with an empty cache and from hloom's cache.
CPU time counts all threads; wall time means little on a machine that computes other things meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PROGRAMS: Final = {
    "start": "process start to first result",
    "eager": "mean of 100 eager operations",
    "step": "GPT train step",
}
_IGNORED: Final = ("JAX_", "XLA_FLAGS", "HLOOM_", "PYTHONDONTWRITEBYTECODE")
"""Environment variables that the measured processes do not inherit. Python keeps bytecode by default; without
it, hloom's modules would be compiled at each start, but not those of JAX, which pip compiles."""
Times = dict[str, float]
"""Seconds by ``cpu`` and ``wall``."""


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("programs", nargs="*", help=f"of {', '.join(PROGRAMS)}; default: all")
    parser.add_argument("--runs", type=int, default=3, help="processes each, of which the fastest counts")
    parser.add_argument("--child", choices=PROGRAMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _child(options.child)
        return
    print(f"{'seconds':32}{'':6}{'stock':>10}{'hloom':>10}{'ratio':>8}{'from cache':>12}{'ratio':>8}")
    for name in options.programs or PROGRAMS:
        found = _measured(name, options.runs)
        for clock in ("cpu", "wall"):
            stock, cold, warm = (found[side][clock] for side in ("stock", "cold", "cached"))
            row = f"{stock:10.4f}{cold:10.4f}{cold / stock:8.2f}{warm:12.4f}{warm / stock:8.2f}"
            print(f"{PROGRAMS[name]:32}{clock:6}{row}", flush=True)


def _measured(name: str, runs: int) -> dict[str, Times]:
    """Return the times of a program on stock JAX, and on hloom without and with its cache."""
    found: dict[str, list[Times]] = {"stock": [], "cold": [], "cached": []}
    with tempfile.TemporaryDirectory(prefix="hloom-first-call-") as folder:
        _run(name, {"HLOOM_AS_CPU": "1", "HLOOM_CACHE_DIR": f"{folder}/kept"})
        for number in range(runs):
            found["stock"].append(_run(name, {}))
            found["cold"].append(_run(name, {"HLOOM_AS_CPU": "1", "HLOOM_CACHE_DIR": f"{folder}/{number}"}))
            found["cached"].append(_run(name, {"HLOOM_AS_CPU": "1", "HLOOM_CACHE_DIR": f"{folder}/kept"}))
    return {
        side: {clock: min(times[clock] for times in tried) for clock in ("cpu", "wall")}
        for side, tried in found.items()
    }


def _run(name: str, asked: dict[str, str]) -> Times:
    """Run a program in a process of its own; return what it measured."""
    known = {k: v for k, v in os.environ.items() if not k.startswith(_IGNORED)}
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.jax_first_call", "--child", name],
        env={**known, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path, **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def _child(name: str) -> None:
    """Run a program and print its times as JSON."""
    if os.environ.get("HLOOM_AS_CPU"):
        import hloom.jax.plugin

        hloom.jax.plugin.initialize()
    import jax
    import jax.numpy as jnp

    if name == "start":
        jax.block_until_ready(jax.jit(lambda x: x * 2 + 1)(jnp.arange(4.0)))
        # The wall clock of the whole process: from its start, by the kernel's clock ticks since boot.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        begun = ticks / os.sysconf("SC_CLK_TCK")
        times = {"cpu": time.process_time(), "wall": time.clock_gettime(time.CLOCK_BOOTTIME) - begun}
    else:
        from benchmarks.first_call_programs import eager_operations, train_step

        calls = eager_operations() if name == "eager" else [train_step()]
        jax.block_until_ready(jax.jit(lambda x: jnp.tanh(x @ x))(jnp.ones((3, 3))))  # loads what it needs
        cpu, wall = time.process_time(), time.perf_counter()
        for call in calls:
            jax.block_until_ready(call())
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        times = {"cpu": cpu / len(calls), "wall": wall / len(calls)}
    print(json.dumps(times))


if __name__ == "__main__":
    main()
