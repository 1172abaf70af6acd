"""Judge the passes of a pipeline: the program after each pass that changed it against the one before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hloom.debug.optimization import optimized
from hloom.ir.module import HloModule
from hloom.passes.pipeline import Pass
from hloom.proofs.dumps import judged
from hloom.proofs.verdict import SAMPLES, Fingerprinted, Verdict


@dataclass(frozen=True)
class PassStep:
    """A pass that changed a program.

    Attributes:
        pass_name: its name.
        before, after: the program before and after it.
        verdict: their relation.
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
    """Run passes, and judge each that changes the program; see `hloom.debug.optimization.optimized`.

    A pass that changes parameters or results is open. Raises HloError for an invalid program, an unknown pass
    or backend.
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
