"""``make demo``: train a small GPT for a few steps from HLO that JAX emitted.

The program is one training step: forward pass, backward pass and Adam update. It takes parameters and
optimizer state, and returns the loss and their new values. The reference evaluator runs the first steps; then
the program is compiled to native code, compared with the evaluator, trained further, and timed against
XLA:CPU if jaxlib is installed.
"""

from __future__ import annotations

import collections
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

import hloom
from hloom.errors import plural
from hloom.runtime.executable import Executable
from hloom.tools.examples.workload import draw_inputs, examples

NAME: Final = "gpt_train_step"
EVALUATED_STEPS: Final = 3
COMPILED_STEPS: Final = 120
SHOWN: Final = 20
"""Number of compiled steps for each printed line."""
ROUNDS: Final = 40
Array = np.ndarray


def main() -> None:
    """Parse, verify, evaluate, compile and run the program; compare with XLA if it is installed."""
    path = examples() / f"{NAME}.hlo"
    text = path.read_text()
    start = time.perf_counter()
    module = hloom.HloModule.from_text(text)
    parsed = time.perf_counter() - start
    start = time.perf_counter()
    module.verify()
    checked = time.perf_counter() - start
    _introduce(module, len(text), parsed, checked)
    arguments = draw_inputs(path.parent, NAME)
    print("The reference evaluator, with numpy:")
    evaluated = _train(hloom.compile(module, backend="evaluator"), arguments, EVALUATED_STEPS, 1)
    compiled, seconds = _compiled(module)
    memory = compiled.memory
    size = (
        f"{plural(len(compiled.to_hlo().splitlines()), 'line')} of HLO, "
        f"{memory.temp / 2**20:.1f} MiB of temporaries"
    )
    print(f"\nCompiled to native code for this machine in {seconds:.2f} s ({size}):")
    native = _train(compiled, arguments, COMPILED_STEPS, SHOWN)
    print(
        f"  first step as by the evaluator, up to {_difference(native, evaluated):.0e} of the largest value"
    )
    _compare(text, compiled, seconds, arguments, native)
    print("\nLook further:  hloom --help   hloom op dot   hloom layout 'bf16[64,256]{1,0:T(8,128)(2,1)}'")


def _introduce(module: hloom.HloModule, size: int, parsed: float, checked: float) -> None:
    instructions = list(module.instructions())
    counts = collections.Counter(i.opcode for i in instructions)
    weights = sum(p.shape.element_count for p in module.entry.parameters[:24])
    print(f"{NAME}: a training step of a GPT with {weights:,} weights, as JAX lowered it to HLO")
    read = f"{plural(len(instructions), 'instruction')}, {size / 1024:.0f} KiB of text"
    print(f"  read     {read}   {parsed * 1e3:6.0f} ms")
    print(f"  checked  every shape rule of every instruction        {checked * 1e3:6.0f} ms")
    print("  holds    " + ", ".join(f"{n} {opcode}" for opcode, n in counts.most_common(8)) + " …\n")


def _compiled(module: hloom.HloModule) -> tuple[Executable, float]:
    """Compile the program without the cache; return it with the compile time in seconds."""
    before = os.environ.get("HLOOM_CACHE")
    os.environ["HLOOM_CACHE"] = "0"
    try:
        start = time.perf_counter()
        executable = hloom.compile(module, backend="cpu")
        return executable, time.perf_counter() - start
    finally:
        if before is None:
            del os.environ["HLOOM_CACHE"]
        else:
            os.environ["HLOOM_CACHE"] = before


def _train(executable: Executable, arguments: Sequence[Array], steps: int, shown: int) -> list[Array]:
    """Run a number of steps, each on the state of the step before; return the results of the first."""
    state = list(arguments)
    batch, first_step = state[-2], float(state[-1])
    first: list[Array] = []
    start_loss, seconds = 0.0, 0.0
    for step in range(1, steps + 1):
        start = time.perf_counter()
        result = executable(*state)
        seconds += time.perf_counter() - start
        loss = float(result[0])
        first = first or [np.asarray(r) for r in result]
        start_loss = start_loss or loss
        if step % shown == 0 or step == 1:
            steps_here = 1 if step == 1 else shown - (step == shown)
            bar = "█" * round(40 * loss / start_loss)
            print(f"  step {step:3}   loss {loss:7.4f}   {seconds / steps_here * 1e3:6.1f} ms   {bar}")
            seconds = 0.0
        state = [*(np.asarray(r) for r in result[1:]), batch, np.float32(first_step + step)]
    return first


def _difference(ours: Sequence[Array], theirs: Sequence[Array]) -> float:
    """Return the largest difference of an element, relative to the largest element of its array."""
    return max(
        float(np.max(np.abs(a - b)) / max(float(np.max(np.abs(b))), 1e-30))
        for a, b in zip(ours, theirs, strict=True)
        if a.size
    )


def _compare(
    text: str, compiled: Executable, seconds: float, arguments: Sequence[Array], ours: Sequence[Array]
) -> None:
    """Compile the program with XLA:CPU, compare results, and time both in alternation."""
    try:
        from hloom.debug import xla_cpu
    except ImportError:
        print("\nXLA is not installed here (pip install 'hloom[jax]'): no comparison.")
        return
    program = xla_cpu.stablehlo(text)
    start = time.perf_counter()
    executable = xla_cpu.compile_stablehlo(program)
    xla_seconds = time.perf_counter() - start
    buffers = [xla_cpu.on_device(a) for a in arguments]

    def on_xla() -> Any:
        results = executable.execute(buffers)
        for result in results:
            result.block_until_ready()
        return results

    theirs = [np.asarray(r) for r in on_xla()]
    xla_run, our_run = _medians(on_xla, lambda: compiled(*arguments))
    print("\nAlternating runs:           compile    one step")
    print(f"  XLA:CPU                   {xla_seconds:5.2f} s   {xla_run * 1e3:6.1f} ms")
    print(f"  hloom                     {seconds:5.2f} s   {our_run * 1e3:6.1f} ms")
    print(f"  results are the same up to {_difference(ours, theirs):.0e} of the largest value")


def _medians(*calls: Callable[[], object]) -> list[float]:
    """Return the median time of each function in seconds; calls alternate."""
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for call, times in zip(calls, samples, strict=True):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in samples]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except hloom.HloError as error:
        sys.exit(f"error: {error}")
