"""Judgement of the passes of a pipeline: the program after each that changed it against the one before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hloom.debug.optimization import optimized
from hloom.ir.module import HloModule
from hloom.passes.pipeline import Pass
from hloom.proofs.dumps import judged
from hloom.proofs.refutation import SAMPLES
from hloom.proofs.verdict import Fingerprinted, Verdict
from hloom.records import dataclass


@dataclass(frozen=True)
class PassStep:
    """A pass that changed a program.

    Attributes:
        pass_name: the name of the pass.
        before, after: the program before and after the pass.
        verdict: whether both compute the same results.
    """

    pass_name: str
    before: HloModule
    after: HloModule
    verdict: Verdict


def judge_passes(
    module: HloModule,
    names: str | Sequence[str] = "",
    *,
    backend: str = "cpu",
    samples: int = SAMPLES,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[PassStep]:
    """Run passes, and yield the verdict on each pass that changes the program.

    The verdict on a pass that changes the shapes of parameters or results is `OPEN`. `names` and `backend`
    choose the passes as for `hloom.debug.optimization.optimized`; `progress` is called with the name of each
    pass before it is judged. Raises HloError for an invalid program, an unknown pass or backend.
    """
    steps: list[tuple[str, HloModule]] = []

    def observe(item: Pass, program: HloModule) -> None:
        steps.append((item.name, program.clone()))

    before = Fingerprinted(module.clone())
    optimized(module, names, backend=backend, observe=observe)
    for name, program in steps:
        progress(name)
        after = Fingerprinted(program)
        yield PassStep(name, before.module, program, judged(before, after, samples))
        before = after
