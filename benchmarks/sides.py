"""The two sides of a comparison: a program compiled by hloom or by XLA:CPU, with its arguments.

On both sides a call is one run of the executable: XLA's arguments are on its device, hloom's are numpy
arrays, and a call ends when all results are available.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import hloom

Array = np.ndarray[Any, Any]
WARM_UP = """
HloModule warm_up

ENTRY main {
  x = f32[8,8] parameter(0)
  y = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT z = f32[8,8] tanh(y)
}
"""
"""Program that each side compiles once before timing, so that libraries are loaded."""


@dataclass(frozen=True)
class Prepared:
    """A compiled program with its arguments.

    Attributes:
        call: runs the program once and returns the available result.
        values: the leaves of such a result as arrays.
        compile_seconds: from the parsed program to the executable.
        temp_bytes: memory beside arguments and results.
        executable: hloom's, or XLA's.
    """

    call: Callable[[], Any]
    values: Callable[[Any], list[Array]]
    compile_seconds: float
    temp_bytes: int
    executable: Any


def on_hloom(text: str, arguments: Sequence[Array]) -> Prepared:
    """Compile a program for hloom's cpu backend without the cache. Raises HloError."""
    module = hloom.HloModule.from_text(text)
    before = os.environ.get("HLOOM_CACHE")
    os.environ["HLOOM_CACHE"] = "0"
    try:
        start = time.perf_counter()
        executable = hloom.compile(module, backend="cpu")
        seconds = time.perf_counter() - start
    finally:
        if before is None:
            del os.environ["HLOOM_CACHE"]
        else:
            os.environ["HLOOM_CACHE"] = before
    given = tuple(arguments)
    return Prepared(lambda: executable(*given), leaves_of, seconds, executable.memory.temp, executable)


def on_xla(text: str, arguments: Sequence[Array]) -> Prepared:
    """Compile a program for XLA:CPU. Raises ImportError if jax is missing, and XLA's errors."""
    from hloom.debug import xla_cpu

    program = xla_cpu.stablehlo(text)
    start = time.perf_counter()
    executable = xla_cpu.compile_stablehlo(program)
    seconds = time.perf_counter() - start
    buffers = [xla_cpu.on_device(a) for a in arguments]

    def call() -> Any:
        results = executable.execute(buffers)
        for result in results:
            result.block_until_ready()
        return results

    temp = executable.get_compiled_memory_stats().temp_size_in_bytes
    return Prepared(call, lambda results: [np.asarray(r) for r in results], seconds, temp, executable)


def xla_is_there() -> bool:
    """Return whether jaxlib is installed."""
    try:
        from hloom.debug import xla_cpu  # noqa: F401
    except ImportError:
        return False
    return True


def warm_up() -> None:
    """Load both compilers."""
    arguments = [np.ones((8, 8), np.float32)]
    on_hloom(WARM_UP, arguments).call()
    if xla_is_there():
        on_xla(WARM_UP, arguments).call()


def leaves_of(value: Any) -> list[Array]:
    """Return the arrays of a nested tuple, in order."""
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves_of(part)]
    return [] if value is None else [np.asarray(value)]
