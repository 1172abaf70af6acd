"""The demonstration: train a small GPT for a few steps, straight from the HLO that JAX emitted for it.

``make demo`` or ``python -m hloom.tools.demo``. The program is one step of training: forward pass, backward
pass and the Adam update. Parameters and optimizer state go in, the loss and their new values come out, and go
in again.
"""

from __future__ import annotations

import collections
import sys
import time
from typing import Any

import numpy as np

import hloom
from hloom.tools.workload import draw_inputs, examples

NAME = "gpt_train_step"
STEPS = 6
Array = np.ndarray[Any, Any]


def main() -> None:
    """Parse, check, evaluate, and compare with XLA where it is installed."""
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
    first = _train(module, arguments)
    _compare(text, arguments, first)
    print("\nLook further:  hloom --help   hloom op dot   hloom layout 'bf16[64,256]{1,0:T(8,128)(2,1)}'")


def _introduce(module: hloom.HloModule, size: int, parsed: float, checked: float) -> None:
    instructions = list(module.instructions())
    counts = collections.Counter(i.opcode for i in instructions)
    weights = sum(p.shape.element_count for p in module.entry.parameters[:24])
    print(f"{NAME}: a training step of a GPT with {weights:,} weights, as JAX lowered it to HLO")
    read = f"{len(instructions):,} instructions, {size / 1024:.0f} KiB of text"
    print(f"  read     {read}   {parsed * 1e3:6.0f} ms")
    print(f"  checked  every shape rule of every instruction        {checked * 1e3:6.0f} ms")
    print("  holds    " + ", ".join(f"{n} {opcode}" for opcode, n in counts.most_common(8)) + " …\n")


def _train(module: hloom.HloModule, arguments: list[Array]) -> list[Array]:
    """Run some steps, feeding the new state back; returns the results of the first one."""
    executable = hloom.compile(module, backend="evaluator")
    state = list(arguments)
    batch, first_step = state[-2], float(state[-1])
    first: list[Array] = []
    start_loss = 0.0
    for step in range(STEPS):
        start = time.perf_counter()
        result = executable(*state)
        seconds = time.perf_counter() - start
        loss = float(result[0])
        first = first or [np.asarray(r) for r in result]
        start_loss = start_loss or loss
        bar = "█" * round(40 * loss / start_loss)
        print(f"  step {step + 1}   loss {loss:7.4f}   {seconds * 1e3:6.0f} ms   {bar}")
        state = [*(np.asarray(r) for r in result[1:]), batch, np.float32(first_step + step + 1)]
    return first


def _compare(text: str, arguments: list[Array], ours: list[Array]) -> None:
    try:
        from hloom.tools.xla_cpu import run_on_xla
    except ImportError:
        print("\nXLA is not installed here (pip install 'hloom[jax]'): no comparison.")
        return
    theirs = run_on_xla(text, arguments)
    worst = max(
        float(np.max(np.abs(a - b)) / max(float(np.max(np.abs(b))), 1e-30))
        for a, b in zip(ours, theirs)
        if a.size
    )
    print(f"\n  XLA:CPU, same step: loss {float(theirs[0]):.4f}; hloom {float(ours[0]):.4f}")
    print(f"  largest difference over all {len(ours)} results, as parts of the largest value: {worst:.1e}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except hloom.HloError as error:
        sys.exit(f"error: {error}")
