"""One measurement: ``python -m benchmarks.large_programs.child SIDE KIND SIZE SEED`` prints JSON."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from benchmarks.large_programs.kinds import program_text

T = TypeVar("T")


def hloom_times(text: str) -> dict[str, Any]:
    """Return seconds and peak memory of everything that hloom does with a program."""
    os.environ["HLOOM_CACHE"] = "0"
    import hloom
    from benchmarks.sides import WARM_UP
    from hloom.debug.inputs import random_arguments

    hloom.compile(hloom.HloModule.from_text(WARM_UP))
    cpu: dict[str, float] = {}

    def timed(name: str, work: Callable[[], T]) -> T:
        start = time.process_time()
        result = work()
        cpu[name] = time.process_time() - start
        return result

    module = timed("parse", lambda: hloom.HloModule.from_text(text))
    start = time.perf_counter()
    executable = timed("compile", lambda: hloom.compile(module))
    elapsed = time.perf_counter() - start
    peak = peak_bytes()
    arguments = random_arguments(module, 0)
    timed("first call", lambda: executable(*arguments))
    timed("cost", lambda: executable.cost)
    timed("memory report", lambda: executable.memory)
    timed("print", module.to_text)
    proto = timed("to proto", module.to_proto)
    timed("from proto", lambda: hloom.HloModule.from_proto(proto))
    profile = executable.compile_profile
    stages = {stage: profile.of_stage(stage) for stage in dict.fromkeys(p.stage for p in profile.phases)}
    phases = {f"{p.stage}: {p.name}": p.seconds for p in profile.phases}
    return {"elapsed": elapsed, "cpu": cpu, "stages": stages, "phases": phases, "peak": peak}


def xla_times(text: str) -> dict[str, Any]:
    """Return the seconds in which XLA:CPU compiles a program, and its peak memory."""
    from benchmarks.sides import WARM_UP
    from hloom.debug import xla_cpu

    xla_cpu.compile_stablehlo(xla_cpu.stablehlo(WARM_UP))
    program = xla_cpu.stablehlo(text)
    start, cpu = time.perf_counter(), time.process_time()
    xla_cpu.compile_stablehlo(program)
    elapsed = time.perf_counter() - start
    return {"elapsed": elapsed, "cpu": {"compile": time.process_time() - cpu}, "peak": peak_bytes()}


def peak_bytes() -> int:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main() -> None:
    """Measure and print."""
    side, kind, size, seed = sys.argv[1:5]
    text = program_text(kind, int(size), int(seed))
    print(json.dumps(hloom_times(text) if side == "hloom" else xla_times(text)))


if __name__ == "__main__":
    main()
